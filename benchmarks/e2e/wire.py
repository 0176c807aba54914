"""The load generator's side of HTTP: two asyncio protocols, as lean as a checked answer allows.

`Exchanges` is one keep-alive connection that carries requests one after the other, `Events` is one
connection that carries the event stream of a GET. Answers reach a callback: no task and no future per
call, so that the generator costs less than the servers it loads.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Callable
from typing import Any

import httptools

from mcpfast.codec import SSEDecoder

__all__ = ["Answer", "Events", "Exchanges", "LoadError", "Target", "connect", "failing"]

Answer = Callable[[int, bytes], None]
"""Takes the status and the body of an answer."""

_IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h; the socket module does not name it before 3.12

_TIMEOUT_S = 60
_STREAMS_PER_SOURCE = 4000
_SOURCES = 200
_sources = itertools.count()


class LoadError(Exception):
    """A server gave a wrong answer, or left: the figures of this run would be worth nothing."""


class Target:
    """The server under load.

    Attributes:
        port: where it listens on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._host = b"127.0.0.1:%d" % port

    def get(self, path: str) -> bytes:
        """Return the bytes of a GET for an event stream."""
        return (b"GET %b HTTP/1.1\r\nhost: %b\r\naccept: text/event-stream\r\ncache-control: no-store\r\n\r\n") % (
            path.encode(),
            self._host,
        )

    def post_head(self, path: str) -> bytes:
        """Return the head of a JSON POST up to the value of content-length, which comes last."""
        return (
            b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n"
            b"accept: application/json, text/event-stream\r\ncontent-length: "
        ) % (path.encode(), self._host)


def failing(future: asyncio.Future[Any]) -> Callable[[LoadError], None]:
    """Return a callback for ``on_lost`` that ends the wait for ``future``."""

    def fail(error: LoadError) -> None:
        if not future.done():
            future.set_exception(error)

    return fail


def _raise(error: LoadError) -> None:
    raise error


class _Connection(asyncio.Protocol):
    """What both kinds share: the parser, and the end of the connection as an error."""

    def __init__(self) -> None:
        self.transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self._is_closing = False
        self.on_lost: Callable[[LoadError], None] = _raise
        """Told when the server misbehaves or leaves."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            # What a callback raised arrives as the context of the parser's own error.
            cause = error.__context__
            self._fail(cause if isinstance(cause, LoadError) else LoadError(f"not HTTP: {error!r}, {cause!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(LoadError(f"the server closed a connection ({exc})"))

    def close(self) -> None:
        """Leave, if ever connected. A connection closed by us is no error."""
        self._is_closing = True
        if self.transport is not None:
            self.transport.abort()

    def _fail(self, error: LoadError) -> None:
        if not self._is_closing:
            self.close()
            self.on_lost(error)


class Exchanges(_Connection):
    """One keep-alive connection; the next request may go out when the answer to the last has come."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: Answer | None = None
        self._pieces: list[bytes] = []
        self._is_lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        # A server may close a connection that nobody uses; whoever waits for an answer has lost it.
        self._is_lost = True
        if self._answer is not None:
            super().connection_lost(exc)

    def send(self, request: bytes, answer: Answer) -> None:
        """Send a whole request, in one write, and call ``answer`` when its answer is whole."""
        assert self._answer is None, "the last request is not answered yet"
        if self._is_lost:
            raise LoadError("the server has closed the connection that the next call needs")
        self._answer = answer
        self.transport.write(request)

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Send a request and wait for status and body: for what is not timed."""
        done: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        on_lost, self.on_lost = self.on_lost, failing(done)
        try:
            self.send(request, lambda status, body: done.set_result((status, body)))
            return await asyncio.wait_for(done, _TIMEOUT_S)
        finally:
            self.on_lost = on_lost

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            raise LoadError("an answer to no request")
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        answer(self._parser.get_status_code(), body)


class Events(_Connection):
    """The event stream of one GET. Each event goes to ``on_event`` as name and payload."""

    def __init__(self, on_event: Callable[[str, bytes], None], *, max_event_bytes: int = 16 << 20) -> None:
        super().__init__()
        self.on_event = on_event
        self.first_byte_at: float | None = None
        """When the first byte of the answer came (`time.perf_counter`)."""
        self.comments = 0
        """Pieces of body that completed no event: keep-alive comments, on a stream without other traffic."""
        self._decoder = SSEDecoder(max_event_bytes=max_event_bytes)
        self._content_type = b""

    def open(self, request: bytes) -> None:
        """Send the GET."""
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self.first_byte_at is None:
            self.first_byte_at = time.perf_counter()
        super().data_received(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type":
            self._content_type = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 200 or not self._content_type.startswith(b"text/event-stream"):
            raise LoadError(f"no event stream, but status {status} and {self._content_type!r}")

    def on_body(self, piece: bytes) -> None:
        events = self._decoder.feed(piece)
        if not events:
            self.comments += 1
        for event in events:
            self.on_event(event.event, event.data_bytes)

    def on_message_complete(self) -> None:
        raise LoadError("the server ended an event stream")


async def connect(target: Target, connection: _Connection) -> None:
    """Connect over loopback, from a source address that changes every few thousand connections.

    One pair of addresses has some 28,000 ports; those of connections closed in the last minute are among
    them. 127.0.0.0/8 has addresses enough.
    """
    loop = asyncio.get_running_loop()
    source = 2 + next(_sources) // _STREAMS_PER_SOURCE % _SOURCES
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The port is picked at connect, when the destination is known: else each one is taken for all of them.
        sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        sock.bind((f"127.0.0.{source}", 0))
        await loop.sock_connect(sock, ("127.0.0.1", target.port))
    except BaseException:
        sock.close()
        raise
    await loop.create_connection(lambda: connection, sock=sock)
