"""One way to be a client of every shell, so that one suite of tests can hold them all to the contract.

Each shell opens an :class:`Exchange`: a request that was made, its body that may still be sent, and an
answer that is read as a client would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from mcpfast.http.asgi import ASGIApp
from mcpfast.http.interface import Handler
from mcpfast.http.limits import HTTPLimits
from mcpfast.http.native_server import NativeServer

from .memory import Exchange as MemoryExchange
from .memory import MemoryShell
from .raw_http import RawClient, RawResponse, Truncated

__all__ = ["SHELLS", "Exchange", "Shell", "open_shell"]

WAIT_S = 10.0
Fields = list[tuple[str, str]]


class Exchange(Protocol):
    async def head(self) -> tuple[int, dict[str, str]]:
        """The answer's status and fields, names in lower case."""

    async def read_until(self, end: bytes) -> bytes:
        """What came of the body, from its start, once it ends so."""

    async def rest(self) -> bytes:
        """The whole body, once it is complete. Raises Truncated if it never will be."""

    def send(self, data: bytes, *, is_last: bool = False) -> None:
        """Send a piece of the request's body."""

    async def leave(self) -> None:
        """Go away, whatever the state."""


class Shell(Protocol):
    name: str

    async def open(self, method: str, target: str, fields: Fields | None = None, body: bytes | None = b"") -> Exchange:
        """Make a request. ``body`` None: it comes later, by ``send``."""

    def stats(self) -> dict[str, Any] | None:
        """The shell's own counts, or None if it keeps none."""


class _MemoryShell:
    name = "memory"

    def __init__(self, handler: Handler, limits: HTTPLimits) -> None:
        self._shell = MemoryShell(
            handler, max_body_bytes=limits.max_body_bytes, max_unsent_bytes=limits.max_unsent_bytes
        )

    async def open(self, method: str, target: str, fields: Fields | None = None, body: bytes | None = b"") -> Exchange:
        return _MemoryClient(self._shell.request(method, target, dict(fields or []), body))

    def stats(self) -> None:
        return None


class _MemoryClient:
    def __init__(self, exchange: MemoryExchange) -> None:
        self.exchange = exchange

    async def head(self) -> tuple[int, dict[str, str]]:
        await self.exchange.until_started()
        if self.exchange.status is None:
            raise Truncated(b"")
        fields = dict(self.exchange.headers)
        if self.exchange.is_ended and self.exchange.status not in (204, 304) and self.exchange.method != "HEAD":
            fields["content-length"] = str(len(self.exchange.body))
        return self.exchange.status, fields

    async def read_until(self, end: bytes) -> bytes:
        await self.exchange.until(lambda: self.exchange.body.endswith(end))
        return self.exchange.body

    async def rest(self) -> bytes:
        await self.exchange.until(lambda: self.exchange.is_ended or self.exchange.is_disconnected)
        if not self.exchange.is_ended:
            raise Truncated(self.exchange.body)
        return self.exchange.body

    def send(self, data: bytes, *, is_last: bool = False) -> None:
        self.exchange.feed(data)
        if is_last:
            self.exchange.finish_body()

    async def leave(self) -> None:
        self.exchange.disconnect()


class _ASGIShell:
    """The ASGI application called by hand, without a server."""

    name = "asgi"

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.clients: list[_ASGIClient] = []

    async def open(self, method: str, target: str, fields: Fields | None = None, body: bytes | None = b"") -> Exchange:
        path, _, query = target.partition("?")
        raw = [(b"host", b"localhost")] + [(n.lower().encode(), v.encode("latin-1")) for n, v in fields or []]
        if body is None:
            raw.append((b"transfer-encoding", b"chunked"))
        elif body:
            raw.append((b"content-length", str(len(body)).encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": raw,
            "client": ("127.0.0.1", 50000),
            "server": ("localhost", 80),
        }
        client = _ASGIClient(method)
        if body is not None:
            client.send(body, is_last=True)
        client.task = asyncio.ensure_future(self.app(scope, client.receive, client.take))
        client.task.add_done_callback(lambda _: client.changed.set())
        self.clients.append(client)
        return client

    def stats(self) -> dict[str, Any]:
        return self.app.stats()


class _ASGIClient:
    """Server and client in one: holds an application to the ASGI specification."""

    task: asyncio.Future[None]

    def __init__(self, method: str) -> None:
        self.method = method
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.has_left = asyncio.Event()
        self.start: dict[str, Any] | None = None
        self.body = b""
        self.is_complete = False
        self.changed = asyncio.Event()
        self.is_reading = asyncio.Event()
        self.is_reading.set()

    async def receive(self) -> dict[str, Any]:
        if self.has_left.is_set() and self.messages.empty():
            return {"type": "http.disconnect"}
        return await self.messages.get()

    async def take(self, message: MutableMapping[str, Any]) -> None:
        await asyncio.wait_for(self.is_reading.wait(), WAIT_S)
        if self.has_left.is_set():
            raise OSError("the client has left")
        if message["type"] == "http.response.start":
            assert self.start is None, "a second http.response.start"
            self.start = dict(message)
        else:
            assert message["type"] == "http.response.body"
            assert self.start is not None, "a body before http.response.start"
            assert not self.is_complete, "a body after the last"
            assert self.method != "HEAD" or not message["body"]
            self.body += message["body"]
            self.is_complete = not message.get("more_body", False)
        self.changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async def wait() -> None:
            while not condition() and not self.task.done():
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(wait(), WAIT_S)

    async def head(self) -> tuple[int, dict[str, str]]:
        await self.until(lambda: self.start is not None)
        if self.start is None:
            raise Truncated(b"")
        return self.start["status"], {n.decode(): v.decode("latin-1") for n, v in self.start["headers"]}

    async def read_until(self, end: bytes) -> bytes:
        await self.until(lambda: self.body.endswith(end))
        assert self.body.endswith(end)
        return self.body

    async def rest(self) -> bytes:
        await self.until(lambda: self.is_complete)
        if not self.is_complete:
            raise Truncated(self.body)
        return self.body

    def send(self, data: bytes, *, is_last: bool = False) -> None:
        self.messages.put_nowait({"type": "http.request", "body": data, "more_body": not is_last})

    async def leave(self) -> None:
        self.has_left.set()
        self.messages.put_nowait({"type": "http.disconnect"})


class _SocketShell:
    """A server behind a port."""

    def __init__(self, name: str, port: int, stats: Callable[[], dict[str, Any]]) -> None:
        self.name = name
        self.port = port
        self.stats = stats
        self.clients: list[_SocketClient] = []

    async def open(self, method: str, target: str, fields: Fields | None = None, body: bytes | None = b"") -> Exchange:
        raw = await RawClient.connect(self.port, receive_buffer=16 << 10)
        if body is None:
            raw.request(method, target, [*(fields or []), ("Transfer-Encoding", "chunked")])
        else:
            raw.request(method, target, fields, body or None)
        client = _SocketClient(raw, method)
        self.clients.append(client)
        return client


class _SocketClient:
    def __init__(self, raw: RawClient, method: str) -> None:
        self.raw = raw
        self.method = method
        self.response: RawResponse | None = None
        self.body = b""

    async def head(self) -> tuple[int, dict[str, str]]:
        self.response = await self.raw.head()
        return self.response.status, {n.decode().lower(): v.decode("latin-1") for n, v in self.response.fields}

    async def read_until(self, end: bytes) -> bytes:
        if self.response is None:
            await self.head()
        while not self.body.endswith(end):
            chunk = await self.raw.chunk()
            assert chunk, "the body ended"
            self.body += chunk
        return self.body

    async def rest(self) -> bytes:
        if self.response is None:
            await self.head()
        response = self.response
        assert response is not None
        if self.method == "HEAD" or response.status in (204, 304):
            return b""
        length = response.get(b"content-length")
        if length is not None:
            try:
                return await asyncio.wait_for(self.raw.reader.readexactly(int(length)), WAIT_S)
            except asyncio.IncompleteReadError as error:
                raise Truncated(error.partial) from None
        try:
            while chunk := await self.raw.chunk():
                self.body += chunk
        except (Truncated, ConnectionError):
            raise Truncated(self.body) from None
        return self.body

    def send(self, data: bytes, *, is_last: bool = False) -> None:
        if data:
            self.raw.send(b"%x\r\n%b\r\n" % (len(data), data))
        if is_last:
            self.raw.send(b"0\r\n\r\n")

    async def leave(self) -> None:
        await self.raw.close()


@asynccontextmanager
async def open_shell(name: str, handler: Handler, limits: HTTPLimits | None = None) -> AsyncIterator[Shell]:
    """Serve ``handler`` on the shell called ``name``, one of SHELLS."""
    limits = limits or HTTPLimits()
    if name == "memory":
        memory = _MemoryShell(handler, limits)
        yield memory
        await memory._shell.aclose()
    elif name == "asgi":
        asgi = _ASGIShell(ASGIApp(handler, limits=limits))
        yield asgi
        for asgi_client in asgi.clients:
            await asgi_client.leave()
            await asyncio.wait_for(asgi_client.task, WAIT_S)
    elif name == "native":
        server = NativeServer(handler, limits=limits)
        await server.start()
        native = _SocketShell(name, server.sockets[0].getsockname()[1], server.stats)
        yield native
        for client in native.clients:
            await client.leave()
        await server.drain(1.0)
    else:
        app = ASGIApp(handler, limits=limits)
        async with _uvicorn(app) as port:
            behind = _SocketShell(name, port, app.stats)
            yield behind
            for client in behind.clients:
                await client.leave()


@asynccontextmanager
async def _uvicorn(app: Any) -> AsyncIterator[int]:
    import uvicorn

    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="on", timeout_graceful_shutdown=2, ws="none")
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        await server.shutdown()


SHELLS = ["memory", "native", "asgi", "uvicorn"]
