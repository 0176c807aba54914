"""Server.asgi(): lifespans, mounting, clients that leave (C074, C076, C079)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcpfast.server import Context, Server

pytestmark = pytest.mark.anyio


def make_server(**options: Any) -> Server:
    server = Server("asgi", "1", **options)

    @server.method("state")
    async def state(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"state": ctx.state}

    return server


class Call:
    """One HTTP request to an ASGI application, message by message."""

    def __init__(self, app: Any, method: str, path: str, body: bytes = b"", **scope: Any) -> None:
        path, _, query = path.partition("?")
        self.sent: list[dict[str, Any]] = []
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": body})
        self._changed = asyncio.Event()
        self.send_error: Exception | None = None
        headers = [(b"host", b"testserver"), (b"content-type", b"application/json")]
        if body:
            headers.append((b"content-length", b"%d" % len(body)))
        whole = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("testserver", 80),
            **scope,
        }
        self.task = asyncio.ensure_future(app(whole, self._incoming.get, self._send))

    async def _send(self, message: dict[str, Any]) -> None:
        if self.send_error is not None:
            raise self.send_error
        self.sent.append(message)
        self._changed.set()

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def event(self, number: int) -> str:
        """Return the data of the number-th event sent."""

        async def wait() -> list[str]:
            while True:
                body = b"".join(m["body"] for m in self.sent if m["type"] == "http.response.body").decode()
                found = [line[6:] for line in body.split("\n") if line.startswith("data: ")]
                if len(found) > number:
                    return found
                self._changed.clear()
                await self._changed.wait()

        return (await asyncio.wait_for(wait(), 5))[number]

    async def ended(self) -> int:
        await asyncio.wait_for(asyncio.shield(self.task), 5)
        status: int = self.sent[0]["status"]
        return status


async def converse(app: Any, root_path: str = "") -> tuple[Any, Call]:
    """Open a session, ask for the state; return it and the open stream."""
    stream = Call(app, "GET", root_path + "/sse", root_path=root_path)
    endpoint = await stream.event(0)
    assert endpoint.startswith(root_path + "/sse?sessionid=")

    async def post(id: int, method: str, params: Any) -> None:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        call = Call(app, "POST", endpoint, json.dumps(message).encode(), root_path=root_path)
        assert await call.ended() == 202

    await post(0, "initialize", {"protocolVersion": "2024-11-05"})
    await stream.event(1)
    await post(1, "state", {})
    return json.loads(await stream.event(2))["result"]["state"], stream


def counting() -> tuple[Any, list[str]]:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        log.append("enter")
        try:
            yield f"state {log.count('enter')}"
        finally:
            log.append("leave")

    return lifespan, log


async def run_lifespan(app: Any) -> tuple[asyncio.Queue[Any], asyncio.Queue[Any], asyncio.Task[None]]:
    incoming: asyncio.Queue[Any] = asyncio.Queue()
    outgoing: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.ensure_future(app({"type": "lifespan", "asgi": {"version": "3.0"}}, incoming.get, outgoing.put))
    incoming.put_nowait({"type": "lifespan.startup"})
    assert (await asyncio.wait_for(outgoing.get(), 5))["type"] == "lifespan.startup.complete"
    return incoming, outgoing, task


async def test_with_lifespan_events_the_lifespan_is_entered_at_startup_and_left_at_shutdown() -> None:
    lifespan, log = counting()
    app = make_server(lifespan=lifespan).asgi()
    for round_ in (1, 2):  # the application object may be started again
        incoming, outgoing, task = await run_lifespan(app)
        assert log.count("enter") == round_
        state, stream = await converse(app)
        assert state == f"state {round_}"
        incoming.put_nowait({"type": "lifespan.shutdown"})
        assert (await asyncio.wait_for(outgoing.get(), 5))["type"] == "lifespan.shutdown.complete"
        await task
        assert log.count("leave") == round_
        await stream.ended()
        assert stream.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_without_lifespan_events_the_first_request_enters_it_once() -> None:
    lifespan, log = counting()
    app = make_server(lifespan=lifespan).asgi()
    streams = []
    for _ in range(2):
        state, stream = await converse(app)
        assert state == "state 1"
        streams.append(stream)
    assert log == ["enter"]
    for stream in streams:
        stream.leave()
        await stream.ended()


def test_an_application_may_be_used_on_one_loop_after_another() -> None:
    lifespan, log = counting()
    app = make_server(lifespan=lifespan).asgi(keepalive_s=15)

    async def use() -> Any:
        state, stream = await converse(app)
        stream.leave()
        await stream.ended()
        return state

    assert [asyncio.run(use()) for _ in range(3)] == ["state 1", "state 2", "state 3"]
    assert log == ["enter", "leave"] * 3


async def test_under_a_prefix_the_endpoint_has_it() -> None:
    """A8: mounted by Starlette, path and root_path are these."""
    state, stream = await converse(make_server().asgi(), "/api/v1")
    assert state is None
    stream.leave()
    await stream.ended()


@pytest.mark.parametrize("when", ["before", "after", "send fails"])
async def test_a_client_that_leaves_never_brings_a_second_start(when: str) -> None:
    """C076."""
    app = make_server().asgi()
    stream = Call(app, "GET", "/sse")
    if when == "before":
        stream.leave()
    elif when == "after":
        await stream.event(0)
        stream.leave()
    else:
        stream.send_error = OSError("gone")
    await asyncio.wait_for(stream.task, 5)
    starts = [message for message in stream.sent if message["type"] == "http.response.start"]
    assert len(starts) <= 1
    if starts:
        assert stream.sent[0] is starts[0]


@pytest.mark.parametrize(("path", "status"), [("/mcp/x", 404), ("/nothing", 404), ("/sse/nothing", 404)])
async def test_other_paths_are_not_found(path: str, status: int) -> None:
    assert await Call(make_server().asgi(), "POST", path).ended() == status


async def test_options_of_connections_are_refused() -> None:
    with pytest.raises(TypeError, match=r"asgi\(\) has no option 'max_connections'"):
        make_server().asgi(max_connections=1)


@pytest.mark.parametrize("cut", ["before", "during"])
async def test_a_server_whose_grace_is_over_is_not_kept_for_another(cut: str) -> None:
    """C074: as uvicorn stops: it cancels what runs when its own grace is over, and leaves the lifespan just then."""
    server = make_server()
    began, cancelled = asyncio.Event(), asyncio.Event()

    @server.method("long")
    async def long(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        began.set()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return {}

    app = server.asgi(shutdown_grace_s=1000)
    incoming, outgoing, task = await run_lifespan(app)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    first = Call(app, "POST", "/mcp", json.dumps(request_of(1, "initialize", hello)).encode())
    await asyncio.wait_for(first.task, 5)
    session = dict(first.sent[0]["headers"])[b"mcp-session-id"]
    headers = [(b"host", b"testserver"), (b"content-type", b"application/json"), (b"mcp-session-id", session)]
    call = Call(app, "POST", "/mcp", json.dumps(request_of(2, "long", {})).encode(), headers=headers)
    await asyncio.wait_for(began.wait(), 5)

    if cut == "before":
        call.task.cancel()
    incoming.put_nowait({"type": "lifespan.shutdown"})
    if cut == "during":
        await asyncio.sleep(0)
        call.task.cancel()
    assert (await asyncio.wait_for(outgoing.get(), 5))["type"] == "lifespan.shutdown.complete"
    assert cancelled.is_set()
    await asyncio.wait_for(asyncio.gather(task, call.task, return_exceptions=True), 5)


def request_of(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
