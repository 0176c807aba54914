"""Our client with the TypeScript SDK's server over Streamable HTTP: sessions and resumability, as a real process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mcpfast import RPCError, connect
from mcpfast.client import detection
from mcpfast.jsonrpc import Notification, Request
from tests.interop.node import NodePeer
from tests.support.cutting_proxy import CuttingProxy
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]  # the first test may install the SDK


@pytest.fixture
async def server(peers: Callable[[str], Path], anyio_backend: Any) -> AsyncIterator[tuple[NodePeer, int]]:
    detection.forget_all()
    async with NodePeer.running(peers("server.mjs")) as peer:
        yield peer, (await peer.read())["port"]


async def call(client: Any, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
    result = await client.request("tools/call", {"name": name, "arguments": arguments or {}}, **options)
    text: str = result["content"][0]["text"]
    return text


async def test_detect_call_ask_listen_and_close(server: tuple[NodePeer, int]) -> None:
    """B1, B3, B5 to B10, B14; L25-C-03, L25-C-11"""
    peer, port = server
    seen: list[Notification] = []

    def on_request(request: Request) -> Any:
        return {"roots": [{"uri": "file:///a"}]}

    options: Any = {"on_notification": seen.append, "on_request": on_request, "capabilities": {"roots": {}}}
    async with connect(f"http://127.0.0.1:{port}/mcp", **options) as client:
        assert client.protocol_version == "2025-11-25"
        assert client.server_info["name"] == "typescript-server"
        assert client.session_id
        assert "echo" in {tool["name"] for tool in (await client.request("tools/list"))["tools"]}
        assert await call(client, "echo", {"text": "é\u2028\U0001f600"}) == "é\u2028\U0001f600"
        assert len(await call(client, "big", {"characters": 1_000_000})) == 1_000_000
        answers = await asyncio.gather(*[call(client, "echo", {"text": str(number)}) for number in range(50)])
        assert answers == [str(number) for number in range(50)]
        with pytest.raises(RPCError, match="no such luck") as caught:
            await call(client, "fail")
        assert caught.value.data == {"why": "asked for"}
        progress: list[Any] = []
        assert await call(client, "progress", {"steps": 3}, on_progress=lambda *p: progress.append(p)) == "done"
        assert progress == [(step, 3, None) for step in (1, 2, 3)]
        assert json.loads(await call(client, "roots")) == [{"uri": "file:///a"}]

        task = asyncio.ensure_future(client.request("tools/call", {"name": "wait", "arguments": {}}))
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.wait({task})
        while not (await peer.do("state"))["cancelled"]:  # noqa: ASYNC110 -- in another process
            await asyncio.sleep(0.01)

        await peer.do("notify", method="notifications/message", params={"level": "info", "data": "hello"})
        await until(lambda: seen)
        assert seen[0].params == {"level": "info", "data": "hello"}
    assert (await peer.do("state"))["sessions"] == 0, "ended by DELETE"


async def test_an_answer_is_resumed_after_its_connection_was_cut(server: tuple[NodePeer, int]) -> None:
    """B13, L25-C-08: twice within one answer; nothing is lost, nothing comes twice."""
    peer, port = server
    async with CuttingProxy(port) as proxy, connect(f"http://127.0.0.1:{proxy.port}/mcp") as client:
        progress: list[Any] = []
        proxy.cut_after = [b"step-2.", b"step-7."]
        task = asyncio.ensure_future(call(client, "gated", {"steps": 5}, on_progress=lambda *p: progress.append(p[0])))
        for steps in (5, 10):
            await until(lambda steps=steps: len(progress) == steps)
            await peer.do("open_gate")
        assert await task == "done"
        assert proxy.cuts == 2
        assert progress == list(range(15))


async def test_a_session_the_server_has_forgotten_is_begun_anew(server: tuple[NodePeer, int]) -> None:
    """C037, L25-C-10"""
    peer, port = server
    async with connect(f"http://127.0.0.1:{port}/mcp") as client:
        old = client.session_id
        await peer.do("forget_sessions")
        assert await call(client, "echo", {"text": "again"}) == "again"
        assert client.session_id not in (None, old)
