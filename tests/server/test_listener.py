"""serve(): real sockets, security by bind address, statistics, the end (C074)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpfast.codec import SSEDecoder
from mcpfast.server import Context, Server, serve

pytestmark = pytest.mark.anyio


class Wire:
    """One HTTP/1.1 connection, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = SSEDecoder()
        self._events: list[Any] = []

    @classmethod
    @asynccontextmanager
    async def to(cls, listener: Any) -> AsyncIterator[Wire]:
        wire = cls(*await asyncio.open_connection("127.0.0.1", listener.port))
        try:
            yield wire
        finally:
            wire.writer.close()
            try:
                await wire.writer.wait_closed()
            except ConnectionError:
                pass  # the server was quicker

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str]]:
        """Send a request and read the answer's head."""
        fields = {"host": "localhost", "content-type": "application/json", **headers}
        head = f"{method} {target} HTTP/1.1\r\ncontent-length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.writer.write(head.encode() + b"\r\n" + body)
        answer = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)).decode().split("\r\n")
        values = dict(line.split(": ", 1) for line in answer[1:-2])
        return int(answer[0].split()[1]), values

    async def post(self, target: str, message: dict[str, Any]) -> int:
        status, headers = await self.ask("POST", target, json.dumps({"jsonrpc": "2.0", **message}).encode())
        await self.reader.readexactly(int(headers["content-length"]))
        return status

    async def chunk(self) -> bytes:
        """Read one chunk of a stream; b"" at its proper end."""
        size = int(await asyncio.wait_for(self.reader.readuntil(b"\r\n"), 5), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def event(self) -> Any:
        while not self._events:
            piece = await self.chunk()
            assert piece, "the stream has ended"
            self._events += self._decoder.feed(piece)
        return self._events.pop(0)


def make_server(**options: Any) -> Server:
    server = Server("test", "1", **options)

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"state": ctx.state, "echo": params}

    return server


async def start(wire: Wire, posts: Wire) -> str:
    """Open and initialize a session; return its endpoint."""
    status, _ = await wire.ask("GET", "/sse")
    assert status == 200
    endpoint: str = (await wire.event()).data
    init = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2024-11-05"}}
    assert await posts.post(endpoint, init) == 202
    assert (await wire.event()).json()["id"] == 0
    return endpoint


async def test_a_session_over_real_sockets() -> None:
    async with serve(make_server()) as listener:
        assert listener.url == f"http://127.0.0.1:{listener.port}/mcp"
        assert listener.sse_url == f"http://127.0.0.1:{listener.port}/sse"
        async with Wire.to(listener) as stream, Wire.to(listener) as posts:
            endpoint = await start(stream, posts)
            assert await posts.post(endpoint, {"id": 1, "method": "tools/call", "params": {"a": "\u20ac"}}) == 202
            assert (await stream.event()).json()["result"]["echo"] == {"a": "\u20ac"}
            stats = listener.stats()
            assert (stats["sessions"], stats["streams"], stats["connections"], stats["requests"]) == (1, 1, 2, 3)
            assert (stats["messages_in"], stats["messages_out"]) == (2, 2)
        assert listener.stats()["bytes_out"] > 300


async def test_a_client_that_drops_its_connection_frees_everything() -> None:
    """C038 on sockets, a hundred times."""
    async with serve(make_server()) as listener:
        for _ in range(100):
            async with Wire.to(listener) as stream:
                await stream.ask("GET", "/sse")
        for _ in range(200):
            if not listener.stats()["connections"]:
                break
            await asyncio.sleep(0.01)
        stats = listener.stats()
        assert (stats["sessions"], stats["streams"], stats["connections"]) == (0, 0, 0)
        assert stats["ended"] == {"client_left": 100}


@pytest.mark.parametrize(("host", "status"), [("localhost:1", 200), ("[::1]", 200), ("rebound.evil", 421)])
async def test_on_loopback_only_names_of_this_machine_are_answered(host: str, status: int) -> None:
    """H24-S-01, H24-S-02: rebinding is refused by default."""
    async with serve(make_server()) as listener, Wire.to(listener) as wire:
        assert (await wire.ask("GET", "/sse", host=host))[0] == status


async def test_who_was_let_in_once_is_looked_at_again_when_its_head_differs() -> None:
    """H24-S-01: the verdict on a head is kept for requests with the very same one."""
    async with serve(make_server()) as listener, Wire.to(listener) as stream, Wire.to(listener) as posts:
        own = f"http://localhost:{listener.port}"
        endpoint = await start(stream, posts)
        ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
        for origin, status in (
            (own, 202),
            (own, 202),
            ("http://evil.test", 403),
            ("http://evil.test", 403),
            (own, 202),
        ):
            host = f"localhost:{listener.port}"
            got, headers = await posts.ask("POST", endpoint, ping, host=host, origin=origin)
            await posts.reader.readexactly(int(headers["content-length"]))
            assert got == status


async def test_elsewhere_any_host_is_answered_and_listed_hosts_replace_the_default() -> None:
    """C061."""
    async with serve(make_server(), "0.0.0.0") as listener, Wire.to(listener) as wire:
        assert listener.url.startswith("http://127.0.0.1:")
        assert (await wire.ask("GET", "/sse", host="any.test"))[0] == 200
    async with serve(make_server(), allowed_hosts=["api.test"]) as listener, Wire.to(listener) as wire:
        assert (await wire.ask("GET", "/sse", host="localhost"))[0] == 421
        await wire.reader.readuntil(b"}}")
        assert (await wire.ask("GET", "/sse", host="api.test"))[0] == 200


@pytest.mark.parametrize(
    ("target", "status"), [("/sse", 200), ("/sse/", 200), ("/mcp", 400), ("/mcp/", 400), ("/", 404), ("/sse/x", 404)]
)
async def test_paths_lead_somewhere_or_to_a_word_about_where(target: str, status: int) -> None:
    """C079: never a redirect."""
    async with serve(make_server()) as listener, Wire.to(listener) as wire:
        got, headers = await wire.ask("GET", target)
        assert got == status
        if status == 404:
            body = json.loads(await wire.reader.readexactly(int(headers["content-length"])))
            assert "Streamable HTTP is at /mcp, HTTP+SSE is at /sse" in body["error"]["message"]


async def test_paths_can_be_chosen() -> None:
    async with serve(make_server(), path=None, sse_path="/a/events") as listener, Wire.to(listener) as wire:
        assert listener.url == listener.sse_url
        assert listener.url.endswith("/a/events")
        await wire.ask("GET", "/a/events")
        assert (await wire.event()).data.startswith("/a/events?sessionid=")


async def test_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with serve(make_server(), unix_path=path) as listener:
        assert (listener.port, listener.url) == (0, "http://localhost/mcp")
        wire = Wire(*await asyncio.open_unix_connection(path))
        assert (await wire.ask("GET", "/sse", host="whatever"))[0] == 200
        wire.writer.close()


@pytest.mark.parametrize("takes_server", [True, False])
async def test_the_lifespan_is_entered_once_and_is_the_state(takes_server: bool) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def with_server(server: Server) -> AsyncIterator[str]:
        log.append(f"enter {server.name}")
        yield "state"
        log.append("leave")

    @asynccontextmanager
    async def without() -> AsyncIterator[str]:
        log.append("enter test")
        yield "state"
        log.append("leave")

    server = make_server(lifespan=with_server if takes_server else without)
    async with serve(server) as listener:
        assert log == ["enter test"]
        for _ in range(2):
            async with Wire.to(listener) as stream, Wire.to(listener) as posts:
                endpoint = await start(stream, posts)
                await posts.post(endpoint, {"id": 1, "method": "tools/call"})
                assert (await stream.event()).json()["result"]["state"] == "state"
        assert log == ["enter test"]
    assert log == ["enter test", "leave"]


async def test_a_lifespan_that_fails_is_raised_and_nothing_listens() -> None:
    @asynccontextmanager
    async def fails() -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="no database"):
        async with serve(make_server(lifespan=fails)):
            pass


async def test_a_lifespan_that_fails_at_the_end_is_raised_to_all_who_wait() -> None:
    @asynccontextmanager
    async def fails() -> AsyncIterator[None]:
        yield
        raise RuntimeError("cannot close")

    listener = serve(make_server(lifespan=fails))
    await listener.__aenter__()
    waiting = asyncio.ensure_future(listener.wait_closed())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="cannot close"):
        await listener.__aexit__(None, None, None)
    with pytest.raises(RuntimeError, match="cannot close"):
        await asyncio.wait_for(waiting, 5)


async def test_an_address_in_use_is_raised_and_the_lifespan_left() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        log.append("enter")
        yield
        log.append("leave")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match=r"[Aa]ddress"):
            async with serve(make_server(lifespan=lifespan), port=taken.getsockname()[1]):
                pass
    assert log == ["enter", "leave"]


# The end


async def test_idle_streams_end_properly_at_once() -> None:
    """C074: the client sees a clean close, well within the grace."""
    async with serve(make_server(), shutdown_grace_s=30) as listener:
        async with Wire.to(listener) as stream, Wire.to(listener) as posts:
            await start(stream, posts)
            listener.close()
            listener.close()
            assert await stream.chunk() == b""
            await asyncio.wait_for(listener.wait_closed(), 5)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", listener.port)
    assert listener.stats()["ended"] == {"shutdown": 1}


async def test_a_running_request_may_end_within_the_grace() -> None:
    server = Server("x", "1")
    running, release = asyncio.Event(), asyncio.Event()

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        running.set()
        await release.wait()
        return {"done": True}

    listener = serve(server, shutdown_grace_s=30)
    async with listener, Wire.to(listener) as stream, Wire.to(listener) as posts:
        endpoint = await start(stream, posts)
        await posts.post(endpoint, {"id": 1, "method": "tools/call"})
        await asyncio.wait_for(running.wait(), 5)
        closed = asyncio.ensure_future(listener.close())
        await asyncio.sleep(0.01)
        assert not closed.done()
        release.set()
        assert (await stream.event()).json()["result"] == {"done": True}
        assert await stream.chunk() == b""
        await asyncio.wait_for(closed, 5)


@pytest.mark.parametrize("how", ["grace", "hurry"])
async def test_what_runs_longer_is_cancelled(how: str) -> None:
    """C074: in-flight calls are cancelled after the grace, or when told to hurry."""
    server = Server("x", "1")
    running, cancelled = asyncio.Event(), asyncio.Event()

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    listener = serve(server, shutdown_grace_s=0.1 if how == "grace" else 60)
    async with listener, Wire.to(listener) as stream, Wire.to(listener) as posts:
        endpoint = await start(stream, posts)
        await posts.post(endpoint, {"id": 1, "method": "tools/call"})
        await asyncio.wait_for(running.wait(), 5)
        listener.close()
        await asyncio.sleep(0)
        if how == "hurry":
            listener.hurry()
        await asyncio.wait_for(listener.wait_closed(), 5)
        assert cancelled.is_set()
        assert await stream.chunk() == b""


async def test_many_open_streams_end_within_the_grace() -> None:
    """Issue 3, bad days: stopped with streams open (the full thousand runs in the benchmarks)."""
    async with serve(make_server()) as listener:
        wires = []
        for _ in range(200):
            wire = Wire(*await asyncio.open_connection("127.0.0.1", listener.port))
            await wire.ask("GET", "/sse")
            await wire.event()
            wires.append(wire)
        assert listener.stats()["streams"] == 200
        await asyncio.wait_for(listener.close(), 10)
        for wire in wires:
            assert await wire.chunk() == b""
            wire.writer.close()
    assert listener.stats()["ended"] == {"shutdown": 200}


async def test_a_slow_reader_is_dropped_and_the_others_hear_everything() -> None:
    """C070 on sockets: what is held for one that stops reading is bounded, and it is counted."""
    server = make_server()
    listener = serve(server, max_unsent_bytes=1 << 16, max_backlog_messages=20)
    async with listener, Wire.to(listener) as good, Wire.to(listener) as stalled:
        for wire in (good, stalled):
            await wire.ask("GET", "/sse")
            await wire.event()
        stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for i in range(3000):
            server.publish("n", {"i": i, "pad": "x" * 8192})
            assert (await good.event()).json()["params"]["i"] == i
            if listener.stats()["streams"] == 1:
                break
        stats = listener.stats()
        assert stats["ended"] == {"slow_reader": 1}
        assert stats["closed"]["slow_reader"] == 1
        server.publish("n", {"i": -1})
        assert (await good.event()).json()["params"]["i"] == -1


# Options


async def test_options_are_checked_before_anything_listens() -> None:
    with pytest.raises(TypeError, match=r"serve\(\) has no option 'prt'.*keepalive_s"):
        serve(make_server(), prt=1)
    for bad in (
        {"max_sessions": 0},
        {"max_sessions": True},
        {"keepalive_s": -1},
        {"keepalive_s": float("nan")},
        {"queue_timeout_s": "1"},
        {"head_timeout_s": 0},
        {"sse_path": "sse"},
        {"sse_path": "/mcp"},
        {"root_path": "api"},
        {"path": None, "sse_path": None},
        {"responses": "xml"},
        {"retry_ms": 5},
        {"allowed_hosts": "localhost"},
        {"allowed_origins": ["localhost"]},
    ):
        with pytest.raises(ValueError, match=next(iter(bad)).split("_")[0]):
            serve(make_server(), **bad)


async def test_limits_of_connections_reach_the_shell() -> None:
    async with serve(make_server(), max_connections=1, max_body_bytes=64) as listener:
        async with Wire.to(listener) as wire:
            status, _ = await wire.ask("GET", "/sse")
            assert status == 200
            async with Wire.to(listener) as other:
                other.writer.write(b"GET /sse HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert await asyncio.wait_for(other.reader.read(), 5) == b""
        assert listener.stats()["refused"] == {"connections": 1}
