"""Cancellation: by the client's word, by its leaving at any moment, by nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from mcpfast.errors import TransportClosed
from mcpfast.http.interface import Request
from mcpfast.server import Context, Principal, Server, SSEHandler
from tests.server.sse_peer import JSON, SSEPeer
from tests.support.memory import Exchange, MemoryShell

pytestmark = pytest.mark.anyio


async def test_a_cancelled_request_gets_no_answer_and_nothing_more() -> None:
    """L25-S-24, also for a handler that will not stop."""
    server = Server("x", "1")
    ended = asyncio.Event()

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ctx.progress(1)
            with pytest.raises(TransportClosed):
                await ctx.notify("n")
        ended.set()
        return {"too": "late"}

    peer = await SSEPeer(SSEHandler(lambda request: server)).start()
    await peer.request("tools/call", {"_meta": {"progressToken": 1}}, id=7)
    await peer.notify("notifications/cancelled", {"requestId": 7, "reason": "x"})
    await asyncio.wait_for(ended.wait(), 5)
    assert (await peer.call("ping"))["result"] == {}


@pytest.mark.parametrize(
    "params",
    [None, {}, {"requestId": "1"}, {"requestId": 1.0}, {"requestId": True}, {"requestId": [1]}, {"requestId": 2}, []],
)
async def test_a_cancel_of_something_else_stops_nothing(params: Any) -> None:
    server = Server("x", "1")
    release = asyncio.Event()

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> None:
        await release.wait()

    peer = await SSEPeer(SSEHandler(lambda request: server)).start()
    await peer.request("tools/call", id=1)
    await peer.notify("notifications/cancelled", params)
    await asyncio.sleep(0)
    release.set()
    assert await peer.next_message() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    await peer.notify("notifications/cancelled", {"requestId": 1})


async def test_an_id_is_free_at_once_after_a_cancel() -> None:
    server = Server("x", "1")
    stopping = asyncio.Event()

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        if params.get("quick"):
            return {"quick": True}
        try:
            await asyncio.Event().wait()
        finally:
            await stopping.wait()
        return {}

    handler = SSEHandler(lambda request: server)
    peer = await SSEPeer(handler).start()
    await peer.request("tools/call", id=1)
    await asyncio.sleep(0)
    await peer.notify("notifications/cancelled", {"requestId": 1})
    await peer.request("tools/call", {"quick": True}, id=1)
    assert (await peer.next_message())["result"] == {"quick": True}
    stopping.set()
    await asyncio.sleep(0.01)
    assert handler.shared.load.in_flight == 0


async def test_a_handler_that_cancels_itself_still_answers() -> None:
    """The client did not cancel, so it is owed an answer."""
    server = Server("x", "1")

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    handler = SSEHandler(lambda request: server)
    peer = await SSEPeer(handler).start()
    assert (await peer.call("tools/call"))["error"] == {"code": -32603, "message": "internal error"}
    assert handler.shared.load.in_flight == 0


async def test_a_handler_that_cancels_its_own_request_leaves_nothing() -> None:
    server = Server("x", "1")

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> None:
        leave()
        await asyncio.Event().wait()

    handler = SSEHandler(lambda request: server)
    peer = await SSEPeer(handler).start()
    leave: Callable[[], None] = peer.leave
    await peer.request("tools/call")
    await asyncio.sleep(0.01)
    assert handler.shared.load.in_flight == 0
    assert not handler._sessions


async def test_notifications_are_handled_and_cancelled_with_their_session() -> None:
    server = Server("x", "1")
    seen, ended = asyncio.Event(), asyncio.Event()

    @server.notification("notifications/roots/list_changed")
    async def changed(ctx: Context, params: dict[str, Any]) -> None:
        assert params == {"a": 1}
        seen.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    handler = SSEHandler(lambda request: server)
    peer = await SSEPeer(handler).start()
    await peer.notify("notifications/roots/list_changed", {"a": 1})
    await asyncio.wait_for(seen.wait(), 5)
    peer.leave()
    await asyncio.wait_for(ended.wait(), 5)
    await asyncio.sleep(0)
    assert handler.shared.load.in_flight == 0


class Steps:
    """Lets the party go at the n-th point of a conversation, and counts the points."""

    def __init__(self, stop_at: int) -> None:
        self.stop_at = stop_at
        self.count = 0
        self.act: Callable[[], None] = lambda: None

    async def point(self) -> None:
        self.count += 1
        if self.count == self.stop_at:
            self.act()
        await asyncio.sleep(0)


STEPS = 16


@pytest.mark.parametrize("how", ["leave", "drop_post"])
@pytest.mark.parametrize("stop_at", range(1, STEPS + 1))
async def test_a_client_that_goes_at_any_moment_leaves_nothing_behind(stop_at: int, how: str) -> None:
    """A10, C038: no session, no task, no count, whatever was being awaited."""
    steps = Steps(stop_at)
    server = Server("x", "1")

    async def authenticate(request: Request) -> Principal | None:
        await steps.point()
        return Principal("alice")

    async def get_server(request: Request) -> Server:
        await steps.point()
        return server

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        await steps.point()
        await ctx.progress(1)
        await steps.point()
        await ctx.request("roots/list")
        await steps.point()
        return {}

    handler = SSEHandler(get_server, authenticate=authenticate)
    shell = MemoryShell(handler)
    before = asyncio.all_tasks()
    posts: list[Exchange] = []

    def go() -> None:
        for exchange in posts if how == "drop_post" else [get]:
            exchange.disconnect()

    steps.act = go
    get = shell.request("GET", "/sse")
    posts.append(get)
    await steps.point()
    peer = SSEPeer(shell)
    peer.get = get

    def post(message: dict[str, Any], body: bytes | None = b"") -> Exchange:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        exchange = shell.request("POST", peer.endpoint, JSON, None if body is None else data)
        posts[1:] = [exchange]
        if body is None:
            exchange.feed(data)
        return exchange

    async def converse() -> None:
        peer.endpoint = (await peer.next_event()).data
        await steps.point()
        await post({"id": 0, "method": "initialize", "params": {"protocolVersion": "2024-11-05"}}).until_ended()
        await peer.next_message()
        await steps.point()
        slow = post({"id": 1, "method": "tools/call", "params": {"_meta": {"progressToken": 1}}}, None)
        await steps.point()
        slow.finish_body()
        await slow.until_ended()
        await peer.next_message()
        asked = await peer.next_message()
        await steps.point()
        await post({"id": asked["id"], "result": {}}).until_ended()
        await peer.next_message()

    conversation = asyncio.ensure_future(converse())
    while not conversation.done() and not any(exchange.is_disconnected for exchange in posts):  # noqa: ASYNC110 -- by turns
        await asyncio.sleep(0)
    conversation.cancel()
    await asyncio.wait([conversation])
    if not conversation.cancelled():
        conversation.exception()
    await shell.aclose()
    for _ in range(10):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == set()
    assert not handler._sessions
    assert handler.shared.stats.sessions == handler.shared.stats.streams == 0
    assert handler.shared.load.in_flight == 0
    assert steps.count >= min(stop_at, 12), "the conversation ended early"
