"""HTTP+SSE with the official Python SDK: our client to its server, its client to ours, as real processes."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpfast import Context, Server, connect, serve
from mcpfast.errors import HTTPStatusError, RPCError, TransportClosed
from mcpfast.jsonrpc import Notification

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

WAIT_S = 30.0
PROGRAM = Path(__file__).with_name("python_sdk_server.py")


def needs(*modules: str) -> None:
    """Skip without the peers, unless they were said to be there."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"{', '.join(missing)} not installed (the SDK needs Python 3.11)"
        if os.environ.get("MCPFAST_REQUIRE_INTEROP") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="module")
def sdk_url() -> Iterator[str]:
    """The SSE address of a server of the SDK in a process of its own: one for all tests, as it is slow to load."""
    needs("mcp", "uvicorn")
    with subprocess.Popen([sys.executable, str(PROGRAM)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/sse"
        finally:
            process.terminate()
            process.wait(WAIT_S)


async def call(client: Any, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
    return await client.request("tools/call", {"name": name, "arguments": arguments or {}}, **options)


async def test_our_client_with_the_sdks_server(anyio_backend: Any, sdk_url: str) -> None:
    """A13 to A17, H24-C-01 to -03"""
    seen: list[Notification] = []
    async with connect(sdk_url, "sse", on_notification=seen.append) as client:
        assert client.server_info["name"] == "python-sdk"
        assert client.instructions == "be kind"
        assert client.protocol_version == "2025-11-25"
        tools = await client.request("tools/list")
        assert {tool["name"] for tool in tools["tools"]} == {"echo", "big", "slow", "progress", "fail"}

        result = await call(client, "echo", {"text": "é\u2028\U0001f600"})
        assert result["content"][0]["text"] == "é\u2028\U0001f600"
        assert (await call(client, "fail"))["isError"] is True
        with pytest.raises(RPCError) as caught:
            await client.request("no/such")
        assert caught.value.code in (-32601, -32602)

        result = await call(client, "big", {"characters": 1_000_000})
        assert result["content"][0]["text"] == "x" * 1_000_000

        answers = await asyncio.gather(*[call(client, "echo", {"text": str(n)}) for n in range(100)])
        assert [answer["content"][0]["text"] for answer in answers] == [str(n) for n in range(100)]

        progress: list[Any] = []
        await call(client, "progress", on_progress=lambda *p: progress.append(p))
        assert progress == [(n, 3, f"step {n}") for n in range(3)]
        assert [n.method for n in seen] == ["notifications/resources/list_changed"]

        slow = asyncio.ensure_future(call(client, "slow", {"seconds": 30}))
        assert (await call(client, "echo", {"text": "meanwhile"}))["content"][0]["text"] == "meanwhile"
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert await client.request("ping") == {}
        waiting = asyncio.ensure_future(call(client, "slow", {"seconds": 30}))
        await asyncio.sleep(0)
    with pytest.raises(TransportClosed):
        await waiting


async def test_our_client_over_httpx_clients_with_the_sdks_server(anyio_backend: Any, sdk_url: str) -> None:
    for name in ("httpx", "httpx2"):
        library = importlib.import_module(name)
        http_client = library.AsyncClient(trust_env=False)
        async with http_client, connect(sdk_url, "sse", http_client=http_client) as client:
            result = await call(client, "big", {"characters": 1_000_000})
            assert len(result["content"][0]["text"]) == 1_000_000


async def test_the_sdks_server_refuses_a_strange_host_and_we_say_so(anyio_backend: Any, sdk_url: str) -> None:
    with pytest.raises(HTTPStatusError, match="421"):
        await connect(sdk_url, "sse", headers={"Host": "evil.test"}).__aenter__()


def make_server() -> Server:
    server = Server("ours", "1", instructions="none")

    @server.method("tools/list")
    async def list_tools(ctx: Context, params: Any) -> Any:
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "notify", "ask")]}

    @server.method("tools/call")
    async def call_tool(ctx: Context, params: Any) -> Any:
        arguments = params.get("arguments") or {}
        text = arguments.get("text", "")
        if params["name"] == "big":
            text = "x" * arguments["characters"]
        elif params["name"] == "notify":
            await ctx.progress(1, 2, "half")
            await ctx.notify("notifications/tools/list_changed")
        elif params["name"] == "ask":
            answer = await ctx.request("roots/list", {})
            text = answer["roots"][0]["uri"]
        return {"content": [{"type": "text", "text": text}]}

    return server


async def test_the_sdks_client_with_our_server(anyio_backend: Any) -> None:
    """A6 to A12, H24-S-03 to -06"""
    needs("mcp")
    import mcp_types as types
    from mcp import ClientSession
    from mcp.client.sse import sse_client

    got: list[Any] = []

    async def on_message(message: Any) -> None:
        got.append(message)

    async def list_roots(context: Any) -> Any:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home")])

    async with (
        serve(make_server()) as listener,
        sse_client(listener.sse_url) as (read, write),
        ClientSession(read, write, message_handler=on_message, list_roots_callback=list_roots) as session,
    ):
        answer = await session.initialize()
        assert answer.server_info.name == "ours"
        assert [tool.name for tool in (await session.list_tools()).tools] == ["echo", "notify", "ask"]
        result = await session.call_tool("echo", {"text": "é\u2028"})
        assert result.content[0].text == "é\u2028"
        # Its decoder stops at 1 MiB per event.
        assert len((await session.call_tool("big", {"characters": 1_000_000})).content[0].text) == 1_000_000
        answers = await asyncio.gather(*[session.call_tool("echo", {"text": str(n)}) for n in range(100)])
        assert [answer.content[0].text for answer in answers] == [str(n) for n in range(100)]

        progress: list[Any] = []

        async def on_progress(*args: Any) -> None:
            progress.append(args)

        await session.call_tool("notify", {}, progress_callback=on_progress)
        assert progress == [(1, 2, "half")]
        assert any(isinstance(message, types.ToolListChangedNotification) for message in got)
        assert (await session.call_tool("ask", {})).content[0].text == "file:///home"
        assert listener.stats()["sessions"] == 1
