"""One client connection: HTTP/1.1 answers out of bytes, one request at a time.

The parser is httptools; what it lets through or leaves out is dealt with here: interim answers (1xx),
bodies that end with the connection, bytes nobody asked for, heads and chunk extensions without end,
trailers, white space after values, transfer codings we do not know.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

import httptools

from ..errors import ProtocolError
from .client_interface import ClientResponse
from .interface import Headers

if TYPE_CHECKING:
    from .native_client import NativeExchange

__all__ = ["ClientConnection", "KnownHead"]

MAX_HEAD_BYTES = 64 * 1024
MAX_HEAD_FIELDS = 100
MAX_INTERIM_RESPONSES = 16
# Raw bytes without one byte of body: chunk extensions and trailers. A server's chunk head is some
# ten bytes, so this only stops those who mean harm.
MAX_FRAMING_BYTES = 64 * 1024

# Heads that are known again. They differ by content-length and, once a second, by date.
MAX_KEPT_HEADS = 64
MAX_KEPT_HEAD_BYTES = 1024

_KEEP_ALIVE_TIMEOUT_MAX_S = 600.0


class KnownHead(NamedTuple):
    """The head of a complete answer with status 200 that came in one piece and left its connection open."""

    headers: Headers
    length: int
    has_hint: bool  # says how long the connection is kept


class ClientConnection(asyncio.Protocol):
    """A connection of the native client's pool.

    Args:
        origin: for messages.
        on_free: called with this connection when its answer is complete and it can carry another.
        on_lost: called once when it is gone, for whatever reason.
        heads: those parsed by connections to this origin; shared by them, and kept small here.
    """

    __slots__ = (
        "_exchange",
        "_fields",
        "_framing_bytes",
        "_head_bytes",
        "_heads",
        "_interim",
        "_is_done",
        "_is_lost",
        "_is_paused",
        "_must_close",
        "_on_free",
        "_on_lost",
        "_parser",
        "_response",
        "_reused",
        "_until_eof",
        "idle_s",
        "idle_since",
        "origin",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(
        self,
        origin: str,
        on_free: Callable[[ClientConnection], None],
        on_lost: Callable[[ClientConnection], None],
        heads: dict[bytes, KnownHead],
    ) -> None:
        self.origin = origin
        self._heads = heads
        self._on_free = on_free
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: NativeExchange | None = None
        self._response: ClientResponse | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0  # raw bytes of the head so far
        self._framing_bytes = 0  # raw bytes since the last piece of body
        self._interim = 0
        self._is_done = False  # the answer is complete, the rest of the chunk not yet looked at
        self._must_close = False  # the connection must not carry another request after this answer
        self._until_eof = False
        self._is_lost = False
        self._is_paused = False
        self._reused = False
        self.idle_since = 0.0
        """Loop time since which it waits for a request."""
        self.idle_s: float | None = None
        """How long the server says it keeps a quiet connection, less a second; None if it does not say."""

    # For the pool

    @property
    def is_usable(self) -> bool:
        """Nothing is known to stand against another request."""
        return not self._is_lost and not self.transport.is_closing()

    @property
    def is_stale(self) -> bool:
        """The server has closed it, or sent something unasked, which the loop has not told us yet."""
        sock = self.transport.get_extra_info("socket")
        if sock is None:
            return False
        try:
            return _is_readable(sock.fileno())
        except (OSError, ValueError):
            return True

    def send(self, exchange: NativeExchange, data: bytes) -> None:
        """Write a request in one piece; its answer goes to ``exchange``."""
        self._exchange = exchange
        self._head_bytes = 0
        self._interim = 0
        self.transport.write(data)

    def abort(self) -> None:
        """Drop the connection at once."""
        self._exchange = None
        self._response = None
        if not self._is_lost:
            self.transport.abort()

    def give_up(self, error: Exception) -> None:
        """Drop the connection, and tell whoever waits for an answer why."""
        exchange, response = self._exchange, self._response
        self.abort()
        if response is not None:
            response.finish(error)
        elif exchange is not None:
            exchange.fail(error)

    @property
    def is_untouched(self) -> bool:
        """It was kept from an earlier request, and nothing of the current answer has arrived."""
        return self._reused and self._head_bytes == 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclasses of asyncio.Transport, so there is nothing to assert.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            # A server that speaks unasked: whatever it is, it is no answer to our next request.
            self.abort()
            return
        if self._response is None and self._head_bytes == 0:
            end = data.find(b"\r\n\r\n") + 4
            known = self._heads.get(data[:end])
            if known is not None and len(data) - end == known.length and exchange.method != "HEAD":
                self._answer_as_known(exchange, known, data[end:])
                return
        try:
            if self._response is None:
                self._feed_head(data)
            else:
                self._feed_body(data)
        except httptools.HttpParserUpgrade:
            self.give_up(ProtocolError(f"{self.origin} switched protocols, which was not asked for"))
            return
        except httptools.HttpParserError as error:
            if self._is_done:
                self._must_close = True  # what cannot be parsed came after the answer, which stands
            elif isinstance(error, httptools.HttpParserCallbackError) and error.__context__ is not None:
                cause = error.__context__
                self.give_up(cause if isinstance(cause, Exception) else ConnectionError(repr(cause)))
                return
            else:
                fault = ProtocolError(f"answer of {self.origin} is no valid HTTP: {str(error).lower()}")
                fault.__cause__ = error
                self.give_up(fault)
                return
        except ProtocolError as error:
            self.give_up(error)
            return
        if self._is_done:
            self._complete()

    def _feed_head(self, data: bytes) -> None:
        room = MAX_HEAD_BYTES - self._head_bytes
        self._head_bytes += len(data)
        self._framing_bytes = 0
        if len(data) <= room:
            self._parser.feed_data(data)
            if self._is_done and self._head_bytes == len(data):
                self._keep_head(data)
            return
        self._parser.feed_data(data[:room])
        if self._response is None and not self._is_done:
            raise ProtocolError(f"head of an answer of {self.origin} is over the limit of {MAX_HEAD_BYTES} bytes")
        self._parser.feed_data(data[room:])

    def _feed_body(self, data: bytes) -> None:
        self._framing_bytes += len(data)
        self._parser.feed_data(data)
        if self._framing_bytes > MAX_FRAMING_BYTES and not self._is_done:
            raise ProtocolError(f"answer of {self.origin} holds {self._framing_bytes} bytes of framing without content")

    def _keep_head(self, data: bytes) -> None:
        """An answer came in one piece: do not parse its head again when it comes once more."""
        response, end = self._response, data.find(b"\r\n\r\n") + 4
        if response is None or self._must_close or self._interim or not 4 < end <= MAX_KEPT_HEAD_BYTES:
            return
        length = response.headers.find(b"content-length")
        if length is None or not length.isdigit() or int(length) != len(data) - end or response.status != 200:
            return
        if len(self._heads) >= MAX_KEPT_HEADS:
            self._heads.clear()
        self._heads[data[:end]] = KnownHead(response.headers, len(data) - end, "keep-alive" in response.headers)

    def _answer_as_known(self, exchange: NativeExchange, known: KnownHead, body: bytes) -> None:
        """Do what parsing would have done; the parser has not seen this answer, and waits for the next."""
        self._exchange = None
        self._reused = True
        transport = self.transport
        if transport.get_write_buffer_size() or transport.is_closing():
            transport.close()
        else:
            if known.has_hint:
                self._note_keep_alive(known.headers)
            self._on_free(self)
        exchange.respond(ClientResponse.whole(200, known.headers, self, body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        exchange, self._exchange = self._exchange, None
        response, self._response = self._response, None
        self._on_lost(self)
        if response is not None:
            if self._until_eof and exc is None:
                response.finish()
            else:
                response.finish(_lost(f"connection to {self.origin} was lost in mid-answer", exc))
        elif exchange is not None:
            exchange.connection_lost(self, _lost(f"connection to {self.origin} was lost before its answer", exc))

    # The parser's callbacks

    def on_message_begin(self) -> None:
        if self._is_done:
            self._must_close = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._response is None:  # later ones are trailers: dropped
            self._fields.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        exchange = self._exchange
        if self._is_done or exchange is None:
            return
        parser = self._parser
        status = parser.get_status_code()
        fields, self._fields = self._fields, []
        if len(fields) > MAX_HEAD_FIELDS:
            raise ProtocolError(f"answer of {self.origin} has {len(fields)} header fields, limit is {MAX_HEAD_FIELDS}")
        if not 200 <= status <= 599:
            self._interim += 1
            if not 100 <= status < 200:
                raise ProtocolError(f"answer of {self.origin} has status {status}")
            if self._interim > MAX_INTERIM_RESPONSES:
                raise ProtocolError(f"{self.origin} sent more than {MAX_INTERIM_RESPONSES} interim answers")
            return
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise ProtocolError(f"answer of {self.origin} is of HTTP/{version}, expected 1.1")
        headers = Headers(fields)
        self._until_eof = self._ends_with_connection(headers, status)
        response = self._response = ClientResponse(status, headers, self)
        exchange.respond(response)
        if exchange.method == "HEAD":
            # No body follows whatever the fields say, but the parser waits for one.
            self._is_done = self._must_close = True

    def on_body(self, data: bytes) -> None:
        self._framing_bytes = 0
        if self._response is not None and not self._is_done:
            self._response.feed(data)

    def on_message_complete(self) -> None:
        if self._response is not None and not self._is_done:
            self._is_done = True
            # Asked here, as the parser forgets it with the message.
            self._must_close = not self._parser.should_keep_alive()

    def _ends_with_connection(self, headers: Headers, status: int) -> bool:
        coding = headers.find(b"transfer-encoding")
        if coding is not None:
            if coding.lower() != b"chunked":
                shown = coding[:40].decode("latin-1")
                raise ProtocolError(f"answer of {self.origin} has transfer-encoding {shown!r}, only chunked is known")
            if self._parser.get_http_version() == "1.0":
                raise ProtocolError(f"answer of {self.origin} has transfer-encoding on HTTP/1.0")
            return False
        return headers.find(b"content-length") is None and status not in (204, 304)

    # The end of an answer

    def _complete(self) -> None:
        """All of an answer is here: free the connection, then tell the reader, who may want it again."""
        response = self._response
        transport = self.transport
        can_stay = (
            not self._must_close
            # An answer that came before the request was out (a 413): the rest may still be on its way.
            and not transport.get_write_buffer_size()
            and not transport.is_closing()
        )
        self._exchange = None
        self._response = None
        self._is_done = False
        self._reused = True
        if can_stay:
            if response is not None:
                self._note_keep_alive(response.headers)
            if self._is_paused:
                self.resume_reading()
            self._on_free(self)
        else:
            transport.close()
        if response is not None:
            response.finish()

    def _note_keep_alive(self, headers: Headers) -> None:
        hint = headers.find(b"keep-alive")
        if hint is None:
            return
        for part in hint.lower().split(b","):
            name, _, value = part.strip().partition(b"=")
            if name == b"timeout" and value.isdigit() and len(value) < 10:
                self.idle_s = min(float(value), _KEEP_ALIVE_TIMEOUT_MAX_S) - 1.0

    # BodySource

    def pause_reading(self) -> None:
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused and not self.transport.is_closing():
            self._is_paused = False
            self.transport.resume_reading()

    def close_body(self) -> None:
        if not self._is_done:  # else it is complete, and data_received goes on to free the connection
            self.abort()


def _lost(text: str, cause: Exception | None) -> ConnectionError:
    error = ConnectionError(f"{text}: {cause}" if cause is not None else text)
    error.__cause__ = cause
    return error


def _is_readable(fd: int) -> bool:
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        return bool(poller.poll(0))
    return bool(select.select([fd], [], [], 0)[0])  # Windows
