"""The official Python SDK's client, in each of its modes, against our server over Streamable HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from mcpfast import Context, Server, serve
from mcpfast.server import MemoryEventStore

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

WAIT_S = 30.0
MODES = ["legacy", "auto", "2026-07-28"]


@pytest.fixture(autouse=True)
def sdk() -> None:
    """Skip without the SDK, unless it was said to be there."""
    missing = [name for name in ("mcp", "mcp_types", "httpx2") if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"{', '.join(missing)} not installed (the SDK needs Python 3.11)"
        if os.environ.get("MCPFAST_REQUIRE_INTEROP") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


class World:
    """A server whose tools exercise the transport, and what happened to it."""

    def __init__(self) -> None:
        self.server = Server("interop", "1", instructions="be kind")
        self.cancelled = asyncio.Event()
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()
        tools: dict[str, Callable[[Context, dict[str, Any]], Any]] = {
            "echo": self.echo,
            "big": self.big,
            "fail": self.fail,
            "progress": self.progress,
            "log": self.log,
            "ask": self.ask,
            "hang": self.hang,
            "poll": self.poll,
        }

        @self.server.method("tools/list")
        async def list_tools(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}

        @self.server.method("tools/call")
        async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
            result: dict[str, Any] = await tools[params["name"]](ctx, params.get("arguments") or {})
            return result

        self.server.method("logging/setLevel")(lambda ctx, params: {})

    async def echo(self, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        return text(arguments["text"])

    async def big(self, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        return text("x" * arguments["size"])

    async def fail(self, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        return {**text("went wrong"), "isError": True}

    async def progress(self, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        for number in range(1, 6):
            await ctx.progress(number, 5, f"step {number}")
        return text("done")

    async def log(self, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        for number in range(3):
            await ctx.notify("notifications/message", {"level": "info", "data": number})
        return text("logged")

    async def ask(self, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = await ctx.request("roots/list", timeout=WAIT_S)
        return text(answer["roots"][0]["uri"])

    async def hang(self, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        self.entered.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return text("went on")

    async def poll(self, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        await ctx.progress(1, 3)
        ctx.close_stream(retry_ms=10)
        await ctx.progress(2, 3)
        await asyncio.sleep(0.05)  # the client is away meanwhile
        await ctx.progress(3, 3)
        return text("polled")


@asynccontextmanager
async def connected(
    mode: str, options: dict[str, Any] | None = None, **client: Any
) -> AsyncIterator[tuple[World, Any]]:
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    world = World()
    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(serve(world.server, **(options or {})))
        size = client.pop("max_sse_event_size", None)
        transport: Any = listener.url
        if size is not None:
            transport = streamable_http_client(listener.url, max_sse_event_size=size)
        yield world, await stack.enter_async_context(Client(transport, mode=mode, **client))


def said(result: Any) -> str:
    value: str = result.content[0].text
    return value


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("responses", ["auto", "json", "sse"])
async def test_calls_and_errors(mode: str, responses: str) -> None:
    """L25-S-05, M26-S-11, M26-S-63."""
    from mcp import MCPError

    async with connected(mode, {"responses": responses}) as (_, client):
        assert [tool.name for tool in (await client.list_tools()).tools][:2] == ["echo", "big"]
        assert said(await client.call_tool("echo", {"text": "\u65e5\u672c\u2028"})) == "\u65e5\u672c\u2028"
        assert (await client.call_tool("fail", {})).is_error
        with pytest.raises(MCPError):
            await client.list_prompts()
        answers = await asyncio.gather(*[client.call_tool("echo", {"text": str(n)}) for n in range(200)])
        assert [said(answer) for answer in answers] == [str(n) for n in range(200)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "options", [{}, {"event_store": True}, {"stateless": True}], ids=["plain", "stored", "stateless"]
)
async def test_progress_and_logging_come_before_the_answer(mode: str, options: dict[str, Any]) -> None:
    """L25-S-10, M26-S-13, M26-S-19."""
    options = {**options, "event_store": MemoryEventStore()} if "event_store" in options else options
    logged: list[Any] = []

    async def logging(params: Any) -> None:
        logged.append(params.data)

    async with connected(mode, options, logging_callback=logging) as (_, client):
        seen: list[tuple[float, Any, Any]] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            seen.append((done, total, message))

        assert said(await client.call_tool("progress", {}, progress_callback=progress)) == "done"
        assert seen == [(n, 5, f"step {n}") for n in range(1, 6)]
        assert said(await client.call_tool("log", {})) == "logged"
        assert logged == [0, 1, 2]


@pytest.mark.parametrize("mode", MODES)
async def test_a_large_result(mode: str) -> None:
    """As JSON, and as an event where the client's limit for those is raised."""
    for responses in ("json", "sse"):
        options = {"responses": responses}
        async with connected(mode, options, max_sse_event_size=16 << 20) as (_, client):
            assert said(await client.call_tool("big", {"size": 5 << 20})) == "x" * (5 << 20)


async def test_a_request_to_the_client() -> None:
    """L25-S-10."""
    import mcp_types as types

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///here")])

    async with connected("legacy", list_roots_callback=roots) as (_, client):
        assert said(await client.call_tool("ask", {})) == "file:///here"


@pytest.mark.parametrize("mode", MODES)
async def test_a_cancelled_call_is_cancelled_on_the_server(mode: str) -> None:
    """L25-S-24, M26-S-22, M26-S-23."""
    async with connected(mode) as (world, client):
        call = asyncio.ensure_future(client.call_tool("hang", {}))
        await asyncio.wait_for(world.entered.wait(), WAIT_S)
        call.cancel()
        await asyncio.wait_for(world.cancelled.wait(), WAIT_S)
        assert said(await client.call_tool("echo", {"text": "on"})) == "on"


async def test_a_stream_that_the_server_closes_is_taken_up_again_with_nothing_lost() -> None:
    """L25-S-06, L25-S-07, L25-S-08, L25-S-17."""
    async with connected("legacy", {"event_store": MemoryEventStore()}) as (_, client):
        seen: list[float] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            seen.append(done)

        assert said(await client.call_tool("poll", {}, progress_callback=progress)) == "polled"
        assert seen == [1, 2, 3]


async def test_what_is_published_reaches_a_listening_client() -> None:
    """M26-S-54, M26-S-56, M26-S-58."""
    async with connected("2026-07-28") as (world, client), client.listen(tools_list_changed=True) as subscription:
        world.server.publish("notifications/prompts/list_changed")
        world.server.publish("notifications/tools/list_changed")
        event = await asyncio.wait_for(anext(aiter(subscription)), WAIT_S)
        assert type(event).__name__ == "ToolsListChanged"


async def test_what_is_published_reaches_a_session() -> None:
    """L25-S-13, L25-S-14."""
    heard = asyncio.Event()

    async def hear(message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            heard.set()

    async with connected("legacy", message_handler=hear) as (world, client):
        await client.call_tool("echo", {"text": "x"})
        world.server.publish("notifications/tools/list_changed")
        await asyncio.wait_for(heard.wait(), WAIT_S)


async def test_a_client_that_is_connected_does_not_keep_the_server_from_stopping() -> None:
    """C074."""
    world = World()
    from mcp import Client

    async with serve(world.server, shutdown_grace_s=20) as listener:
        client = await Client(listener.url, mode="legacy").__aenter__()
        await client.call_tool("echo", {"text": "x"})
        await asyncio.wait_for(listener.close(), 10)
        assert listener.stats()["connections"] == 0
        try:
            await client.__aexit__(None, None, None)
        except Exception:
            pass  # it may say that its server is gone, in whatever way it likes
