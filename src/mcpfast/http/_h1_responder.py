"""The answer to one request on a native connection: framing in one buffer with what it frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import TransportClosed
from ._h1_head import NO_BODY_STATUSES, date_now, encode_head, encode_whole_head

if TYPE_CHECKING:
    from ._h1_connection import H1Connection
    from .interface import HeaderList, Request

__all__ = ["H1Responder"]

_NO_BODY, _UNTIL_CLOSE, _CHUNKED = range(3)

# Above this a body is handed to the loop beside its head instead of being copied behind it.
_COPY_BELOW = 64 << 10


class H1Responder:
    """See :class:`mcpfast.http.interface.Responder`. It lets go of its connection once it has ended."""

    # Class attributes are defaults: most answers need but a few of these.
    _callbacks: list[Callable[[], None]] | None = None
    _head = b""  # not sent yet: it goes out with the first piece
    _framing = _CHUNKED
    _is_disconnected = False
    status = 0
    bytes_sent = 0
    started_at = 0.0

    def __init__(self, connection: H1Connection, request: Request, is_http10: bool, keep_alive: bool) -> None:
        self._connection: H1Connection | None = connection
        self.request = request
        self.is_http10 = is_http10
        self.keep_alive = keep_alive
        """The connection may serve another request after this answer; decided at the latest by its head."""

    @property
    def is_started(self) -> bool:
        return self.status != 0

    @property
    def is_ended(self) -> bool:
        return self._connection is None

    @property
    def is_disconnected(self) -> bool:
        return self._is_disconnected

    @property
    def unsent_bytes(self) -> int:
        connection = self._connection
        return 0 if connection is None else connection.transport.get_write_buffer_size()

    def respond(self, status: int, headers: HeaderList = (), body: bytes = b"") -> None:
        connection = self._connection
        if connection is None or self.status:
            self._check_unstarted()
            return
        size = len(body)
        # The way of a small answer is written out here: each call less is 2 % of what a request costs.
        if (
            size < _COPY_BELOW
            and self.keep_alive
            and not self.is_http10
            and connection.body is None
            and self.request.method != "HEAD"
            and status not in NO_BODY_STATUSES
        ):
            data = encode_whole_head(status, headers, size) + body
            self.status = status
            self.bytes_sent = size
            connection.bytes_out += len(data)
            connection.last_message_bytes = len(data)
            connection.transport.write(data)
        else:
            self._respond(connection, status, headers, body)
        self._connection = None
        self._callbacks = None
        connection.answered(self)

    def _respond(self, connection: H1Connection, status: int, headers: HeaderList, body: bytes) -> None:
        head = encode_head(status, headers)
        self.status = status
        tail = self._connection_field(connection)
        size = len(body)
        if status in NO_BODY_STATUSES:
            connection.send(b"%bdate: %b\r\n%b\r\n" % (head, date_now(), tail))
            return
        head = b"%bcontent-length: %d\r\ndate: %b\r\n%b\r\n" % (head, size, date_now(), tail)
        if self.request.method == "HEAD" or not size:
            connection.send(head)
            return
        self.bytes_sent = size
        if size < _COPY_BELOW:
            connection.send(head + body)
        else:
            connection.send_all(head, body)

    def start(self, status: int, headers: HeaderList) -> None:
        connection = self._connection
        if connection is None or self.status:
            self._check_unstarted()
            return
        head = encode_head(status, headers)
        self.status = status
        if self.request.method == "HEAD" or status in NO_BODY_STATUSES:
            self._framing = _NO_BODY
            coding = b""
        elif self.is_http10:
            # No chunks for such a client: the body ends with the connection (RFC 9112 §6.3).
            self._framing = _UNTIL_CLOSE
            self.keep_alive = False
            coding = b""
        else:
            coding = b"transfer-encoding: chunked\r\n"
        self._head = b"%b%bdate: %b\r\n%b\r\n" % (head, coding, date_now(), self._connection_field(connection))
        connection.loop.call_soon(self._send_head)

    def write(self, data: bytes) -> None:
        connection = self._connection
        if connection is None or not self.status:
            if self._is_disconnected:
                return
            raise RuntimeError("write after end" if self.status else "write before start")
        framing = self._framing
        if not data or framing is _NO_BODY:
            return
        size = len(data)
        self.bytes_sent += size
        if framing is _CHUNKED:
            data = b"%x\r\n%b\r\n" % (size, data)
        if self._head:
            data = self._head + data
            self._head = b""
        size = len(data)
        connection.bytes_out += size
        connection.last_message_bytes = size
        connection.transport.write(data)

    def end(self) -> None:
        connection = self._connection
        if connection is None:
            return
        if not self.status:
            raise RuntimeError("end before start")
        last = self._head
        self._head = b""
        if self._framing is _CHUNKED:
            last += b"0\r\n\r\n"
        if last:
            connection.send(last)
        self._finish(connection)

    async def drain(self) -> None:
        if self._connection is not None:
            await self._connection.drain()
        if self._is_disconnected:
            raise TransportClosed("the client has left")

    def abort(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.abort(reason)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        if self._is_disconnected:
            callback()
        elif self._connection is not None:
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(callback)

    def disconnect(self) -> None:
        """The connection's word that the client has left (or is dropped) before the answer was complete."""
        connection = self._connection
        if connection is None:
            return
        self._connection = None
        self._is_disconnected = True
        self._head = b""
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception as error:
                connection.loop.call_exception_handler({"message": "a disconnect callback failed", "exception": error})

    def _check_unstarted(self) -> None:
        """Nothing is to be done for a client that left; anything else is the handler's fault."""
        if not self._is_disconnected:
            raise RuntimeError("the answer was started before")

    def _connection_field(self, connection: H1Connection) -> bytes:
        """Decide whether the connection stays, at the last moment, and say so if it is not understood."""
        if self.keep_alive and (connection.body is None or connection.can_stay()):
            return b"connection: keep-alive\r\n" if self.is_http10 else b""
        self.keep_alive = False
        return b"connection: close\r\n"

    def _send_head(self) -> None:
        """Send the head by itself: no piece came within the loop's turn."""
        if self._head and self._connection is not None:
            head, self._head = self._head, b""
            self._connection.send(head)

    def _finish(self, connection: H1Connection) -> None:
        self._connection = None
        self._callbacks = None
        connection.answered(self)
