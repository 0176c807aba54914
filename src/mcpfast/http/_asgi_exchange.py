"""One request under an ASGI server.

Who runs what::

    the server's task    builds the request, runs the handler, sends what the responder queued
    the sender's task    only if there is something to send while the handler waits
    the watcher's task   only once the answer is a stream, or the handler takes its time (_asgi_input)

So an answer that is complete when its handler is done costs no task. A client that leaves while the
handler waits has it cancelled, by cancelling the server's task and catching that here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import TransportClosed
from ._asgi_input import ASGIInput
from ._backlog import Backlog
from ._h1_head import NO_BODY_STATUSES, encode_head
from ._running import answer_failure
from .interface import ClientDisconnected, Headers, Request

if TYPE_CHECKING:
    from .asgi import ASGIApp
    from .interface import HeaderList

__all__ = ["ASGIExchange", "Message", "Receive", "Scope", "Send"]

Scope: TypeAlias = "MutableMapping[str, Any]"
Message: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[Message]]"
Send: TypeAlias = "Callable[[Message], Awaitable[None]]"

# A body announced to be no larger is read before the handler is called, which can then answer at once.
_READ_AHEAD_BYTES = 64 << 10
_CANCEL_WAIT_S = 1.0
_RARELY_WITH_BODY = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class ASGIExchange:
    """Is the :class:`mcpfast.http.interface.Responder` of its request as well."""

    # Class attributes are defaults: most requests need but a few of these.
    _sender: asyncio.Task[None] | None = None
    _is_sender_due = False
    _is_handler_waiting = False  # the server's task is in the handler
    _is_interrupted = False  # the server's task was cancelled by ourselves
    _sending: asyncio.Task[Any] | None = None  # the task that is in send()
    _waiter: asyncio.Future[None] | None = None  # who sends waits here for output
    _head: list[tuple[bytes, bytes]] | None = None  # to be sent
    _has_no_body = False
    _queued_bytes = 0  # in _queue, or on the way in a send() that has not returned
    _is_ended = False
    _is_disconnected = False
    _callbacks: list[Callable[[], None]] | None = None
    _backlog: Backlog | None = None  # not None: more than the limit is unsent
    status = 0
    bytes_out = 0
    last_message_bytes = 0

    def __init__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        self._app = app
        self.limits = app.limits
        self._send = send
        self._queue: list[bytes] = []
        self._loop = loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(loop)
        if app.loop is not loop:
            app.use_loop(loop)
        self.deadlines = app.deadlines
        self.long_waits = app.long_waits
        # Servers lower names; uvicorn on httptools leaves white space after values.
        headers = Headers([(name, value.strip(b" \t")) for name, value in scope["headers"]])
        announced = headers.fields.get(b"content-length")
        if announced is not None:
            length = int(announced) if announced.isdigit() and len(announced) <= 18 else 0
            has_body = length > 0
        else:
            # What is there, ``receive`` tells: HTTP/2 and gateways announce nothing. Only where a body is the exception
            # is nobody made to wait for one.
            length = 0
            has_body = (
                scope["method"] not in _RARELY_WITH_BODY
                or b"transfer-encoding" in headers.fields
                or scope.get("http_version", "1.1")[0] != "1"
            )
        self._length = length
        self._input = ASGIInput(self, receive, length, has_body)
        path: str = scope["path"]
        root_path: str = scope.get("root_path", "")
        if root_path:
            root_path = root_path.rstrip("/")
            # ASGI has paths include the root path; servers and frameworks that leave it out still exist.
            if path.startswith(root_path) and path[len(root_path) : len(root_path) + 1] in ("", "/"):
                path = path[len(root_path) :] or "/"
        client = scope.get("client")
        self.request = request = Request(
            scope["method"],
            path,
            scope["query_string"].decode("latin-1") if scope.get("query_string") else "",
            headers,
            client=None if client is None else (client[0], client[1]),
            scheme=scope.get("scheme", "http"),
            root_path=root_path,
            body=None if has_body else b"",
            receive_body=self._input.read,
            extensions={"asgi": scope},
        )
        request.state = app.state

    async def run(self) -> None:
        """Serve the request, until its answer is sent or its client has left."""
        is_cancelled = False
        try:
            if 0 < self._length <= min(_READ_AHEAD_BYTES, self.limits.max_body_bytes):
                await self._read_ahead()
            if not self.is_ended:
                await self._run_handler()
            if self._sender is None:
                await self._send_queued()
            else:
                await asyncio.wait([self._sender])
        except asyncio.CancelledError:
            # By ourselves, or by a server that stops: then the handler is told, and the answer completed,
            # so that clients see a clean end and the server has nothing to complain of.
            if not self._is_interrupted:
                is_cancelled = True
                self._app.cut_off()
                await self._finish_early()
        except OSError:
            pass  # how ASGI's send() says that the client has left
        finally:
            self.disconnect("client")
            self._end_backlog()
            tasks = [task for task in (self._sender, self._input.stop()) if task is not None and not task.done()]
            if tasks:
                for task in tasks:
                    task.cancel()
                if not is_cancelled:  # a server that stops may cancel again whoever takes its time
                    await asyncio.wait(tasks, timeout=_CANCEL_WAIT_S)
            # They hold each other; left to the garbage collector, they would double what a request costs.
            del self.request, self._input

    async def _read_ahead(self) -> None:
        """Read a small body before the handler is called, which can then do without waiting."""
        if b"expect" in self.request.headers.fields:
            return  # the handler may refuse before the client is asked for the body
        try:
            self.request._body = await self._input.read(None, self._task)
        except ClientDisconnected:
            self.disconnect("client")

    async def _run_handler(self) -> None:
        watch: Callable[[], None] | None = None
        try:
            awaitable = self._app.handler(self.request, self)
            if awaitable is not None:
                self._is_handler_waiting = True
                if self.status:
                    self._wake()  # it began its answer, and works on
                else:
                    # If it takes its time, a task that sees its client leave is worth it.
                    watch = self._input.watch
                    waits = self.long_waits.begin(watch)
                await awaitable
        except asyncio.CancelledError:
            if not self._is_interrupted or self._task is None:
                raise
            if sys.version_info >= (3, 11):
                self._task.uncancel()
        except Exception as error:
            self._is_handler_waiting = False
            answer_failure(self.request, self, error, self._app.count_refused)
        finally:
            self._is_handler_waiting = False
            if watch is not None:
                waits.discard(watch)
        if not self.is_ended:
            self._input.watch()  # it keeps the answer open

    async def _send_queued(self) -> None:
        """Send what is queued, and wait for more, until the answer is complete or the client has left."""
        while not self._is_disconnected or self._is_ended:
            if self._head is not None:
                head, self._head = self._head, None
                await self._transmit({"type": "http.response.start", "status": self.status, "headers": head})
            elif self._queue:
                data = self._queue[0] if len(self._queue) == 1 else b"".join(self._queue)
                self._queue.clear()
                is_last = self._is_ended
                await self._transmit({"type": "http.response.body", "body": data, "more_body": not is_last})
                self._queued_bytes -= len(data)
                if self._queued_bytes <= self.limits.max_unsent_bytes:
                    self._end_backlog()
                if is_last:
                    return
            elif self._is_ended:
                await self._transmit({"type": "http.response.body", "body": b"", "more_body": False})
                return
            else:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None

    async def _transmit(self, message: Message) -> None:
        self._sending = self._sender or self._task
        try:
            await self._send(message)
        finally:
            self._sending = None

    def _start_sender(self) -> None:
        """The loop had a turn: if the handler still waits, its output needs a task to be sent."""
        self._is_sender_due = False
        if self._is_handler_waiting and self._sender is None:
            self._sender = self._loop.create_task(self._run_sender())
            if not self._is_ended:
                self._input.watch()  # an answer in pieces takes its time, as a rule

    async def _run_sender(self) -> None:
        try:
            await self._send_queued()
        except OSError:
            self.disconnect("client")

    async def _finish_early(self) -> None:
        is_head_sent = self.status != 0 and self._head is None
        self.disconnect("cancelled")
        if self._sending is not None:
            return  # the task that sends is in the middle of it
        try:
            if not is_head_sent:
                await self._send({"type": "http.response.start", "status": 503, "headers": []})
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            pass  # nobody is there to see it

    # The input calls these

    def count_received(self, size: int) -> None:
        self._app.bytes_in += size

    def refuse_late_body(self) -> None:
        """The body did not come in time. To the handler its client is gone; to the client there is an answer."""
        self._app.count_refused("body_timeout")
        if self.status:
            self.abort("body_timeout")
        else:
            self.respond(408)
            self._tell_disconnected()

    # The Responder

    @property
    def is_started(self) -> bool:
        return self.status != 0

    @property
    def is_ended(self) -> bool:
        return self._is_ended or self._is_disconnected

    @property
    def is_disconnected(self) -> bool:
        return self._is_disconnected

    @property
    def unsent_bytes(self) -> int:
        return self._queued_bytes

    def start(self, status: int, headers: HeaderList) -> None:
        if self._is_disconnected:
            return
        self._begin(status, headers)
        self._wake()

    def respond(self, status: int, headers: HeaderList = (), body: bytes = b"") -> None:
        if self._is_disconnected:
            return
        head = self._begin(status, headers)
        if status not in NO_BODY_STATUSES:
            head.append((b"content-length", b"%d" % len(body)))
        self.write(body)
        self.end()

    def write(self, data: bytes) -> None:
        if self._is_disconnected:
            return
        if not self.status or self._is_ended:
            raise RuntimeError("write after end" if self.status else "write before start")
        if not data or self._has_no_body:
            return
        size = len(data)
        self._app.bytes_out += size
        self._queue.append(data)
        self._queued_bytes += size
        self.bytes_out += size
        self.last_message_bytes = size
        if self._queued_bytes > self.limits.max_unsent_bytes and self._backlog is None:
            self._backlog = Backlog(self, self.limits, self.deadlines)
        self._wake()

    def end(self) -> None:
        if self._is_disconnected or self._is_ended:
            return
        if not self.status:
            raise RuntimeError("end before start")
        self._is_ended = True
        self._callbacks = None
        self._wake()

    async def drain(self) -> None:
        while self._backlog is not None:
            await self._backlog.wait()
        if self._is_disconnected:
            raise TransportClosed("the client has left")

    def abort(self, reason: str) -> None:
        """Return to the server without completing the answer: it closes the connection then."""
        if self.is_ended:
            return
        sending = self._sending
        self.disconnect(reason)
        if sending is not None and not self._is_interrupted:
            # Out of a send() that may never return.
            self._is_interrupted = sending is self._task
            sending.cancel()

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        if self._is_disconnected:
            callback()
        elif not self._is_ended:
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(callback)

    def _begin(self, status: int, headers: HeaderList) -> list[tuple[bytes, bytes]]:
        if self.status:
            raise RuntimeError("the answer was started before")
        encode_head(status, headers)  # not all servers refuse what would split the answer
        self.status = status
        self._has_no_body = self.request.method == "HEAD" or status in NO_BODY_STATUSES
        self._head = list(headers)
        return self._head

    def _wake(self) -> None:
        """There is news for who sends."""
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
        elif self._is_handler_waiting and self._sender is None and not self._is_sender_due:
            # Not at once: most handlers are done when they have answered.
            self._is_sender_due = True
            self._loop.call_soon(self._start_sender)

    # The client that leaves, and the one that reads slowly

    def disconnect(self, reason: str) -> None:
        """The client has left, or is dropped: tell the handler, unless the answer is complete."""
        if self.is_ended:
            return
        self._app.count_closed(reason)
        self._head = None
        self._queue.clear()
        self._tell_disconnected()
        self._wake()

    def _tell_disconnected(self) -> None:
        self._is_disconnected = True
        self._input.wake()
        self._end_backlog()
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception as error:
                self._loop.call_exception_handler({"message": "a disconnect callback failed", "exception": error})
        if self._is_handler_waiting and self._task is not None and self._task is not asyncio.current_task(self._loop):
            self._is_interrupted = True
            self._task.cancel()

    def _end_backlog(self) -> None:
        if self._backlog is not None:
            self._backlog.close()
            self._backlog = None
