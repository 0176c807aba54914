"""The in-memory shell: runs a handler without a socket, and holds it to the Responder's contract.

::

    shell = MemoryShell(handler)
    exchange = shell.request("POST", "/mcp", [(b"content-type", b"application/json")], b"{}")
    await exchange.until_ended()
    assert (exchange.status, exchange.body) == (200, b"...")

A stream is read piece by piece with ``await exchange.next_piece()``. The client's bad days:
``disconnect()``, ``stall()`` and ``resume()`` (a reader that stops), and ``request(..., body=None)``
with ``exchange.feed(...)`` and ``exchange.finish_body()`` (a body that arrives in pieces).

It is stricter than a real shell must be: every misuse of the Responder raises AssertionError, and is
kept in ``exchange.misuse`` too, in case the handler swallows it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn

from mcpfast.errors import TransportClosed
from mcpfast.http.interface import BodyTooLarge, ClientDisconnected, Handler, HeaderList, Headers, Request

__all__ = ["Exchange", "MemoryShell"]

WAIT_S = 5.0  # every wait of a test ends: a hang is a failure

# The shell's own fields, which handlers must not give.
FRAMING = {b"content-length", b"transfer-encoding", b"connection", b"date", b"keep-alive", b"trailer", b"upgrade"}
TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")


class MemoryShell:
    """Runs ``handler`` for requests given as values."""

    def __init__(
        self,
        handler: Handler,
        *,
        max_body_bytes: int = 4 << 20,
        max_unsent_bytes: int = 1 << 20,
        root_path: str = "",
        scheme: str = "http",
        client: tuple[str, int] | None = ("127.0.0.1", 50000),
        state: Any = None,
    ) -> None:
        self.handler = handler
        self.max_body_bytes = max_body_bytes
        self.max_unsent_bytes = max_unsent_bytes
        self.root_path = root_path
        self.scheme = scheme
        self.client = client
        self.state = state
        self.exchanges: list[Exchange] = []

    def request(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[bytes, bytes]] | dict[str, str] = (),
        body: bytes | None = b"",
    ) -> Exchange:
        """Begin a request and call the handler, as a shell does once the head is there.

        Args:
            target: path, percent-decoded, and the query after ``?`` if any.
            headers: pairs as bytes, or a dict of text. ``host: localhost`` is added if no host is given.
            body: all of it; None: it comes later, by :meth:`Exchange.feed`.
        """
        if isinstance(headers, dict):
            headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        raw = [(name.lower(), value.strip(b" \t")) for name, value in headers]
        if all(name != b"host" for name, _ in raw):
            raw.insert(0, (b"host", b"localhost"))
        if body and all(name != b"content-length" for name, _ in raw):
            raw.append((b"content-length", str(len(body)).encode()))
        path, _, query = target.partition("?")
        exchange = Exchange(self, method)
        if body is not None and len(body) > self.max_body_bytes:
            exchange._body_error = BodyTooLarge(self.max_body_bytes)
            body = None
        request = Request(
            method,
            path,
            query,
            Headers(raw),
            client=self.client,
            scheme=self.scheme,
            root_path=self.root_path,
            body=body,
            receive_body=exchange._receive_body,
        )
        request.state = self.state
        self.exchanges.append(exchange)
        exchange._run(request)
        return exchange

    async def fetch(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[bytes, bytes]] | dict[str, str] = (),
        body: bytes | None = b"",
    ) -> Exchange:
        """Make a request and wait until its answer is complete."""
        exchange = self.request(method, target, headers, body)
        await exchange.until_ended()
        return exchange

    async def aclose(self) -> None:
        """Disconnect whatever is still open, and cancel and wait for the handlers' tasks."""
        for exchange in self.exchanges:
            exchange.disconnect()
        tasks = [exchange.task for exchange in self.exchanges if exchange.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=WAIT_S)
            assert all(task.done() for task in tasks), "a handler did not end after its client left"


class Exchange:
    """One request and what came back. Also the handler's Responder: ``exchange.responder``."""

    def __init__(self, shell: MemoryShell, method: str) -> None:
        self.shell = shell
        self.method = method
        self.request: Request | None = None
        self.responder = _MemoryResponder(self)
        self.task: asyncio.Task[None] | None = None
        """The one task the handler got, or None if it needed none."""
        self.status: int | None = None
        self.header_list: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        """What was written, one item per write; empty for HEAD, as a client sees it."""
        self.is_ended = False
        """The answer is complete."""
        self.is_disconnected = False
        self.aborted: str | None = None
        """The reason given to ``abort``, or the shell's."""
        self.error: BaseException | None = None
        """What the handler raised."""
        self.misuse: list[str] = []
        self._read = 0  # pieces taken by next_piece
        self._unread = 0  # bytes written since stall()
        self._is_stalled = False
        self._changed = asyncio.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._body: list[bytes] = []
        self._body_size = 0
        self._body_done = False
        self._body_error: BodyTooLarge | None = None

    # What the client sees

    @property
    def headers(self) -> Headers:
        return Headers(self.header_list)

    @property
    def body(self) -> bytes:
        """All that was written so far."""
        return b"".join(self.pieces)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition()`` is true; it is tried whenever something happens to the exchange."""

        async def wait() -> None:
            while not condition():
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(wait(), WAIT_S)
        assert not self.misuse, self.misuse

    async def until_started(self) -> None:
        """Wait for the status."""
        await self.until(lambda: self.status is not None or self.is_disconnected)

    async def until_ended(self) -> None:
        """Wait until the answer is complete, or was aborted; then for the handler's task."""
        await self.until(lambda: self.is_ended or self.is_disconnected)
        if self.task is not None:
            await asyncio.wait([self.task], timeout=WAIT_S)
            assert self.task.done(), "the handler did not end"
        assert not self.misuse, self.misuse

    async def next_piece(self) -> bytes:
        """Return the next piece written; b"" once the answer has ended."""
        await self.until(lambda: self._read < len(self.pieces) or self.is_ended or self.is_disconnected)
        if self._read < len(self.pieces):
            self._read += 1
            return self.pieces[self._read - 1]
        return b""

    # What the client does

    def feed(self, data: bytes) -> None:
        """Send a piece of the body."""
        self._body.append(data)
        self._body_size += len(data)
        if self._body_size > self.shell.max_body_bytes:
            self._body_error = BodyTooLarge(self.shell.max_body_bytes)
        self._changed.set()

    def finish_body(self) -> None:
        """Send the end of the body."""
        self._body_done = True
        self._changed.set()

    def stall(self) -> None:
        """Stop reading: what is written from now on stays unsent."""
        self._is_stalled = True

    def resume(self) -> None:
        """Read again, all at once."""
        self._is_stalled = False
        self._unread = 0
        self._changed.set()

    def disconnect(self) -> None:
        """Leave. Nothing happens if the answer is complete or the client has left."""
        if self.is_ended or self.is_disconnected:
            return
        self.is_disconnected = True
        self._changed.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()

    # The shell's part

    def _run(self, request: Request) -> None:
        self.request = request
        try:
            awaitable = self.shell.handler(request, self.responder)
        except Exception as error:
            self._failed(error)
            return
        if awaitable is not None:
            assert inspect.isawaitable(awaitable), f"a handler returned {type(awaitable)}"
            self.task = asyncio.ensure_future(self._await(awaitable))
            if inspect.iscoroutine(awaitable):
                # A client may leave before the task's first step; real shells run the coroutine itself.
                self.task.add_done_callback(lambda _: awaitable.close())

    async def _await(self, awaitable: Awaitable[None]) -> None:
        try:
            await awaitable
        except asyncio.CancelledError:
            if not self.is_disconnected:
                raise
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.error = error
        if self.is_ended or self.is_disconnected:
            return
        if isinstance(error, BodyTooLarge) and not self.responder.is_started:
            self.responder.respond(413)
        elif self.responder.is_started:
            self.responder.abort("handler_error")
        else:
            self.responder.respond(500, [(b"content-type", b"text/plain; charset=utf-8")], b"Internal Server Error")

    async def _receive_body(self, limit: int | None) -> bytes:
        def is_decided() -> bool:
            over = limit is not None and self._body_size > limit
            return over or self._body_done or self._body_error is not None or self.is_disconnected

        while not is_decided():
            self._changed.clear()
            await self._changed.wait()
        if self._body_error is not None:
            raise self._body_error
        if limit is not None and self._body_size > limit:
            raise BodyTooLarge(limit)
        if not self._body_done:
            raise ClientDisconnected
        return b"".join(self._body)

    def _misused(self, text: str) -> NoReturn:
        self.misuse.append(text)
        self._changed.set()
        raise AssertionError(text)


class _MemoryResponder:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    @property
    def is_started(self) -> bool:
        return self._exchange.status is not None

    @property
    def is_ended(self) -> bool:
        return self._exchange.is_ended or self._exchange.is_disconnected

    @property
    def is_disconnected(self) -> bool:
        return self._exchange.is_disconnected

    @property
    def unsent_bytes(self) -> int:
        return self._exchange._unread

    def start(self, status: int, headers: HeaderList) -> None:
        exchange = self._exchange
        if exchange.is_disconnected:
            return
        if exchange.status is not None:
            exchange._misused("start after start")
        self._check_head(status, headers)
        exchange.status = status
        exchange.header_list = list(headers)
        exchange._changed.set()

    def write(self, data: Any) -> None:
        exchange = self._exchange
        if exchange.is_disconnected:
            return
        if not isinstance(data, bytes):
            exchange._misused(f"write of {type(data)}")
        if exchange.status is None:
            exchange._misused("write before start")
        if exchange.is_ended:
            exchange._misused("write after end")
        if exchange.status in (204, 205, 304) and data:
            exchange._misused(f"a body for status {exchange.status}")
        if data and exchange.method != "HEAD":
            exchange.pieces.append(data)
            if exchange._is_stalled:
                exchange._unread += len(data)
        exchange._changed.set()

    def end(self) -> None:
        exchange = self._exchange
        if exchange.is_disconnected or exchange.is_ended:
            return
        if exchange.status is None:
            exchange._misused("end before start")
        exchange.is_ended = True
        exchange._callbacks.clear()
        exchange._changed.set()

    def respond(self, status: int, headers: HeaderList = (), body: bytes = b"") -> None:
        self.start(status, headers)
        self.write(body)
        self.end()

    async def drain(self) -> None:
        exchange = self._exchange
        while True:
            if exchange.is_disconnected:
                raise TransportClosed("the client has left")
            if exchange._unread <= exchange.shell.max_unsent_bytes:
                return
            exchange._changed.clear()
            await exchange._changed.wait()

    def abort(self, reason: str) -> None:
        exchange = self._exchange
        if exchange.is_ended or exchange.is_disconnected:
            return
        exchange.aborted = reason
        exchange.disconnect()

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        exchange = self._exchange
        if exchange.is_disconnected:
            callback()
        elif not exchange.is_ended:
            exchange._callbacks.append(callback)

    def _check_head(self, status: int, headers: HeaderList) -> None:
        misused = self._exchange._misused
        if type(status) is not int or not 200 <= status <= 599:
            misused(f"status {status!r}")
        pair: Any
        for pair in headers:
            name, value = pair
            if not isinstance(name, bytes) or not isinstance(value, bytes):
                misused(f"header {name!r} is not bytes")
            if not name or not TOKEN.issuperset(name):
                misused(f"header name {name!r}")
            if name in FRAMING:
                misused(f"header {name!r} is the shell's")
            if any(c in value for c in b"\r\n\0"):
                misused(f"value of header {name!r} holds CR, LF or NUL")
