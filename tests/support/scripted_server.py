"""A server that plays a script over real sockets: the exact bytes, cuts and pauses a test wants.

::

    async def script(peer: Peer) -> None:
        request = await peer.request()
        peer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nhi")

    async with ScriptedServer(script) as server:
        ... server.url ...

The script runs once per connection and the connection is closed when it returns. What it raises fails
the test, except that a client which leaves ends it in silence. Every wait is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType

WAIT_S = 5.0


@dataclass
class Received:
    """One request as it came over the wire."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    raw_head: bytes

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name]
        assert len(values) <= 1, f"{name} was sent {len(values)} times"
        return values[0] if values else None


class ClientLeft(Exception):
    """The client closed the connection where a request was awaited."""


class Peer:
    """The server's end of one connection."""

    def __init__(self, server: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.number = len(server.peers)
        """0 for the first connection to this server, 1 for the next."""

    async def request(self) -> Received:
        """Wait for the next request, body included."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ClientLeft from None
        first, *lines = head[:-4].decode("utf-8").split("\r\n")
        method, target, version = first.split(" ")
        assert version == "HTTP/1.1"
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        received = Received(method, target, headers, b"", head)
        length = received.header("content-length")
        if length is not None:
            received.body = await self.reader.readexactly(int(length))
        self.server._took(received)
        return received

    def write(self, data: bytes) -> None:
        if self.writer.transport.is_closing():
            raise ClientLeft
        self.writer.write(data)

    async def drain(self) -> None:
        """Wait until the client has taken what was written."""
        await self.writer.drain()

    def respond(self, status: int, body: bytes = b"", *headers: str, content_type: str = "application/json") -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *headers]
        if body:
            lines.append(f"content-type: {content_type}")
        self.write("\r\n".join([*lines, "", ""]).encode() + body)

    def start_stream(self, *headers: str) -> None:
        """Begin an event stream; send it with :meth:`chunk`."""
        lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream", "transfer-encoding: chunked", *headers]
        self.write("\r\n".join([*lines, "", ""]).encode())

    def chunk(self, data: bytes) -> None:
        self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self.write(b"0\r\n\r\n")

    async def until_left(self) -> None:
        """Wait until the client has closed the connection; what it still sends is dropped."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    def abort(self) -> None:
        """Vanish: reset the connection."""
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class ScriptedServer:
    """Listens on a free port of the loopback address while entered."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.peers: list[Peer] = []
        self.requests: list[Received] = []
        self.errors: list[BaseException] = []
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/sse"

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition()`` is true; it is tried whenever a request came or a connection ended."""

        async def wait() -> None:
            while not condition():
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(wait(), WAIT_S)

    @property
    def open_connections(self) -> int:
        return len(self._tasks)

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for _ in range(5):  # a connection may just be on its way in
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=WAIT_S)
            await asyncio.sleep(0)
        if error is None and self.errors:
            raise self.errors[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(self, reader, writer)
        self.peers.append(peer)
        try:
            await self.script(peer)
        except (ClientLeft, ConnectionError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        except BaseException as error:
            self.errors.append(error)
        finally:
            self._tasks.discard(task)
            self._changed.set()
            writer.close()

    def _took(self, received: Received) -> None:
        self.requests.append(received)
        self._changed.set()
