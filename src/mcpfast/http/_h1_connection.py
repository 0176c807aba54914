"""One connection of the native server: bytes in, requests to the handler one after the other.

What is read goes through these states::

    HEAD ──head is whole──> BODY ──body is whole──> ANSWER ──answer is complete──> HEAD
      └──────head without body, or all in one read───^

    any ──refused, or the connection cannot stay──> CLOSING: input is read and dropped until it closes

Only one request is with its handler at a time; a pipelining client's next ones wait in the input, so
answers cannot change places. Input is read on while a handler runs, for a paused transport would not
see the client leave; the socket is left unread only above ``pipelined_bytes``.

The end of the input (a FIN) counts as the client leaving, also of one that only closed its sending
side: the two look the same until something is written, and a request must not outlive its client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from ._backlog import Backlog
from ._h1_body import IncomingBody
from ._h1_chunked import MalformedChunk
from ._h1_head import BadRequest, date_now, status_line
from ._h1_parser import Head, HeadParser
from ._h1_responder import H1Responder
from ._running import answer_failure, start_task
from .deadlines import MovingDeadline
from .interface import Request
from .limits import MIN_BODY_BYTES_PER_S

if TYPE_CHECKING:
    from .native_server import NativeServer

__all__ = ["H1Connection"]

HEAD, BODY, ANSWER, CLOSING = range(4)

# Requests taken from one read before other connections have their turn.
_REQUESTS_PER_TURN = 32
# After a refusal the client may still be sending. Closing at once would make the system answer with a
# reset, which can destroy the refusal before it is read; so input is dropped for a while.
_LINGER_S = 2.0
# What is left of a body nobody wants is read, to keep the connection, up to this size.
_DISCARD_BYTES = 64 << 10

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class H1Connection(asyncio.Protocol):
    """Lives as long as its socket; owned by its :class:`NativeServer`."""

    __slots__ = (
        "_backlog",
        "_body_mark",
        "_close_reason",
        "_data",
        "_is_advancing",
        "_is_fresh",
        "_is_reading_paused",
        "_limit",
        "_parser",
        "_pos",
        "_responder",
        "_resume_handle",
        "_scanned",
        "_server",
        "_state",
        "_taken_mark",
        "_task",
        "body",
        "bytes_in",
        "bytes_out",
        "client",
        "last_message_bytes",
        "loop",
        "transport",
    )

    def __init__(self, server: NativeServer) -> None:
        self._server = server
        self.loop = server.loop
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # set before anything else runs
        self.client: tuple[str, int] | None = None
        self._state = HEAD
        self._close_reason = ""
        # Input not consumed yet: _data from _pos on, of which _scanned bytes were searched for a head's end.
        self._data: bytes | bytearray = b""
        self._pos = 0
        self._scanned = 0
        self._is_advancing = False
        self._is_reading_paused = False
        self._resume_handle: asyncio.Handle | None = None
        self._parser = HeadParser()
        self._is_fresh = True  # nothing of the next request has come
        # The request being served.
        self._responder: H1Responder | None = None
        self.body: IncomingBody | None = None  # of the request being served, until it is whole
        self._body_mark = 0
        self._task: asyncio.Future[None] | None = None
        # The one time limit on input that is set now.
        self._limit = MovingDeadline(server.deadlines, self._limit_passed)
        self.bytes_in = 0
        # Output.
        self.bytes_out = 0
        self.last_message_bytes = 0
        self._backlog: Backlog | None = None
        self._taken_mark = 0  # bytes the system had taken when closing began

    # The loop calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, whatever the annotations say.
        self.transport = transport = cast("asyncio.Transport", transport)
        server = self._server
        if not server.admit(self):
            self._state = CLOSING
            transport.abort()
            return
        self._limit_buffer()
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.client = peer[:2]
        self._limit.set(server.limits.head_timeout_s)

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        if self._data:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            del self._data[: self._pos]
            self._data += data
        else:
            self._data = data
        self._pos = 0
        if self._resume_handle is None:
            self._advance()

    def eof_received(self) -> None:
        self._disconnect()
        self._close("client")

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.dismiss(self, self._close_reason or "client")
        self._disconnect()
        self._state = CLOSING
        self.transport.close()  # else asyncio's TLS of Python 3.10 warns that nobody closed it
        if self._resume_handle is not None:
            self._resume_handle.cancel()
            self._resume_handle = None
        self._limit.close()
        self._parser.close()
        self._data = b""
        self._pos = 0

    def pause_writing(self) -> None:
        self._backlog = Backlog(self, self._server.limits, self._server.deadlines)

    def resume_writing(self) -> None:
        self._end_backlog()

    # Input

    def _advance(self) -> None:
        """Consume input until there is none, or the state says to wait."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            turns = _REQUESTS_PER_TURN
            while self._pos < len(self._data):
                state = self._state
                if state == HEAD:
                    if turns == 0:
                        self._advance_soon()
                        return
                    turns -= 1
                    head = self._parser.last
                    if head is not None and self._data.startswith(head.raw, self._pos):
                        self._pos += len(head.raw)
                        self._scanned = 0
                        self._is_fresh = True
                    else:
                        raw = self._take_head()
                        if raw is None:
                            return
                        if not raw:
                            continue
                        head = self._parser.parse(raw, self._server.limits.max_head_fields)
                    self._serve(head)
                elif state == BODY:
                    if not self._read_body():
                        return
                elif state == ANSWER:
                    self._pause_reading_if_flooded()
                    return
                else:
                    break
            self._data = b""
            self._pos = 0
        except BadRequest as refusal:
            self._refuse(refusal.status, refusal.reason)
        except MalformedChunk:
            self._refuse(400, "bad_request")
        finally:
            self._is_advancing = False
            if self._is_reading_paused and self._state != ANSWER:
                self._is_reading_paused = False
                self.transport.resume_reading()

    def _advance_soon(self) -> None:
        if self._resume_handle is None:
            self._resume_handle = self.loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._resume_handle = None
        self._advance()

    def _pause_reading_if_flooded(self) -> None:
        if len(self._data) - self._pos > self._server.limits.pipelined_bytes and not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()

    def _take_head(self) -> bytes | None:
        """Take one head from the input; None if it is not all here, b"" if an empty line was taken."""
        data, pos = self._data, self._pos
        limits = self._server.limits
        end = data.find(b"\r\n\r\n", pos + self._scanned)
        if end < 0:
            size = len(data) - pos
            if size > limits.max_head_bytes:
                raise self._head_too_large(data, pos)
            unseen = pos + self._scanned
            if data.find(b"\n\n", unseen) >= 0 or data.find(b"\n\r\n", unseen) >= 0:
                raise BadRequest(400)  # ends in bare LFs, so nothing more may come
            self._scanned = max(size - 3, 0)
            if self._is_fresh:
                self._is_fresh = False
                self._limit.set(limits.head_timeout_s)
            return None
        self._scanned = 0
        end += 4
        if end - pos > limits.max_head_bytes:
            raise self._head_too_large(data, pos)
        if data[pos] == 13 and data[pos + 1] == 10:
            # An empty line before the request line is to be forgiven (RFC 9112 §2.2).
            self._pos += 2
            return b""
        self._pos = end
        self._is_fresh = True
        return bytes(data[pos:end])

    def _head_too_large(self, data: bytes | bytearray, pos: int) -> BadRequest:
        line_is_whole = data.find(b"\r\n", pos, pos + self._server.limits.max_head_bytes) >= 0
        return BadRequest(431 if line_is_whole else 414, "head_too_large")

    def _serve(self, head: Head) -> None:
        """Take the body if it is here, and call the handler."""
        server = self._server
        body: bytes | None = b""
        receive_body = None
        data, pos, length = self._data, self._pos, head.content_length
        if length and length <= server.limits.max_body_bytes and len(data) - pos >= length:
            self._pos = end = pos + length
            body = bytes(data[pos:end])
            if self._parser.takes_body:
                self._parser.skip(body)
        elif length or head.is_chunked:
            body = None
            self.body = IncomingBody(
                None if head.is_chunked else length,
                server.limits.max_body_bytes,
                self._ask_for_body if head.expects_continue else None,
            )
            receive_body = self.body.receive
            self._parser.skip_unseen()
        request = Request(
            head.method,
            head.path,
            head.query,
            head.headers,
            self.client,
            server.scheme,
            "",
            body,
            receive_body,
        )
        keep_alive = head.keep_alive and not server.is_draining
        self._responder = responder = H1Responder(self, request, head.is_http10, keep_alive)
        server.requests += 1
        if server.access_log is not None:
            responder.started_at = perf_counter()
        if body is not None:
            self._state = ANSWER
        else:
            self._state = BODY
            if head.expects_continue:
                self._limit.clear()  # a client that waits for 100 Continue is not late before it was asked
            else:
                self._expect_body()
        if head.path == "*":
            responder.respond(204)  # asks for the server as such, not for what a handler serves
            return
        try:
            awaitable = server.handler(request, responder)
        except Exception as error:
            self._handler_failed(responder, error)
            return
        if awaitable is not None:
            self._start_task(responder, awaitable)

    # The body, when it did not come with the head

    def _expect_body(self) -> None:
        self._body_mark = self.bytes_in
        self._limit.set(self._server.limits.body_timeout_s)

    def _ask_for_body(self) -> None:
        """The handler wants a body whose client waits to be asked."""
        if self._responder is not None:
            if not self._responder.is_started and self.body is not None and not self.body.received:
                self.send(_CONTINUE)
            self._expect_body()

    def _read_body(self) -> bool:
        """Give the body its share of the input; False if that is used up or another turn is due."""
        body = self.body
        assert body is not None
        before = self._pos
        self._pos = body.feed(self._data, before)
        if not body.is_complete:
            if before < self._pos < len(self._data):
                self._advance_soon()
            return self._pos == len(self._data)
        self.body = None
        if self._responder is not None:
            self._state = ANSWER
        elif self._server.is_draining:
            self._close("shutdown")
        else:
            self._state = HEAD
            self._limit.set(self._server.limits.idle_timeout_s)
        return True

    # The handler and its answer

    def _start_task(self, responder: H1Responder, awaitable: Awaitable[None]) -> None:
        task = start_task(awaitable, self.loop)
        if task.done():
            self._task_done(responder, task)
            return
        if self._responder is responder:
            self._task = task
        self._server.tasks.add(task)
        task.add_done_callback(partial(self._task_done, responder))

    def _task_done(self, responder: H1Responder, task: asyncio.Future[None]) -> None:
        self._server.tasks.discard(task)
        self._server.check_gone()
        if self._task is task:
            self._task = None
        if task.cancelled():
            # By the client's leaving, or by the handler's own doing: then nobody will answer any more.
            responder.abort("handler_cancelled")
        else:
            error = task.exception()
            if error is not None:
                self._handler_failed(responder, error)

    def _handler_failed(self, responder: H1Responder, error: BaseException) -> None:
        answer_failure(responder.request, responder, error, self._server.count_refused)

    def can_stay(self) -> bool:
        """The connection can serve another request after the answer that begins now."""
        body = self.body
        if body is None:
            return True
        # What comes of the body is read and dropped, if that is bound to be little.
        missing = body.missing
        return missing is not None and missing <= _DISCARD_BYTES and not body.must_be_asked_for

    def answered(self, responder: H1Responder) -> None:
        """The answer to the request being served is complete."""
        self._responder = None
        self._task = None
        server = self._server
        if server.access_log is not None:
            server.log_access(responder)
        if not responder.keep_alive:
            if self.body is not None or self._pos < len(self._data):
                self._linger("done")
            else:
                self._close("done")
        elif self.body is None:
            self._state = HEAD
            self._limit.set(server.limits.idle_timeout_s)
            if not self._is_advancing and self._pos < len(self._data):
                self._advance_soon()

    # Output

    @property
    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def send(self, data: bytes) -> None:
        self.bytes_out += len(data)
        self.last_message_bytes = len(data)
        self.transport.write(data)

    def send_all(self, head: bytes, body: bytes) -> None:
        """Send both in one call, without copying a large body behind its head where the loop can do so."""
        size = len(head) + len(body)
        self.bytes_out += size
        self.last_message_bytes = size
        self.transport.writelines((head, body))
        # asyncio's writelines (3.12, 3.13) does not look whether the buffer is over its limit; this does.
        self._limit_buffer()

    def _limit_buffer(self) -> None:
        limit = self._server.limits.max_unsent_bytes
        self.transport.set_write_buffer_limits(high=limit, low=limit // 2)

    async def drain(self) -> None:
        """Wait until the reader is not over the limit, or has left."""
        while self._backlog is not None:
            await self._backlog.wait()

    def _end_backlog(self) -> None:
        if self._backlog is not None:
            self._backlog.close()
            self._backlog = None

    # The end

    def _refuse(self, status: int, reason: str) -> None:
        """Answer for the handler, and close: where this request ends, if it does, is not known."""
        self._server.count_refused(reason)
        is_started = self._responder is not None and self._responder.is_started
        self._disconnect()
        if is_started:
            self.abort(reason)
            return
        line = status_line(status)
        text = line[13:-2]
        self.send(
            b"%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
            b"date: %b\r\nconnection: close\r\n\r\n%b" % (line, len(text), date_now(), text)
        )
        self._linger(reason)

    def abort(self, reason: str) -> None:
        """Drop the connection; what is unsent is lost."""
        self._close_reason = self._close_reason or reason
        self._state = CLOSING
        self._disconnect()
        self.transport.abort()

    def begin_drain(self) -> None:
        """The server stops: close if nothing is going on; else the answer being made is the last."""
        if self._responder is not None:
            self._responder.keep_alive = False
        elif self._state == HEAD and self._pos == len(self._data):
            self._close("shutdown")

    def _close(self, reason: str) -> None:
        """Close once what was written is sent."""
        self._start_closing(reason, self._server.limits.slow_reader_timeout_s)
        self.transport.close()

    def _linger(self, reason: str) -> None:
        """Close our side, and the rest once the client has closed its own."""
        if self.transport.can_write_eof():
            self._start_closing(reason, _LINGER_S)
            self.transport.write_eof()
        else:
            self._close(reason)

    def _start_closing(self, reason: str, seconds: float) -> None:
        self._close_reason = self._close_reason or reason
        self._state = CLOSING
        self._taken_mark = self.bytes_out - self.unsent_bytes
        self._limit.set(seconds)

    def _disconnect(self) -> None:
        """Tell the handler that its client has left, if there is one at work."""
        responder, self._responder = self._responder, None
        body, self.body = self.body, None
        task, self._task = self._task, None
        if body is not None:
            body.lose()
        if responder is not None:
            responder.disconnect()
        self._end_backlog()
        if task is not None and task is not _current_task(self.loop):
            task.cancel()

    # Time limits on input, and on closing

    def _limit_passed(self) -> None:
        # While a handler works there is no limit on input; the one before may pass unnoticed.
        limits = self._server.limits
        if self._state == HEAD:
            if self._pos < len(self._data):
                self._refuse(408, "head_timeout")
            else:
                self._close("idle")
        elif self._state == BODY:
            if self.bytes_in - self._body_mark >= MIN_BODY_BYTES_PER_S * limits.body_timeout_s:
                self._expect_body()
            else:
                self._refuse(408, "body_timeout")
        elif self._state == CLOSING:
            taken = self.bytes_out - self.unsent_bytes
            if self.unsent_bytes and taken > self._taken_mark:
                self._taken_mark = taken
                self._limit.set(limits.slow_reader_timeout_s)
            else:
                self.transport.abort()


def _current_task(loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any] | None:
    # Callbacks of the loop run without a task, and possibly after it stopped.
    try:
        return asyncio.current_task(loop)
    except RuntimeError:
        return None
