"""Context: what a handler knows, and how it talks to its client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcpfast.errors import ProtocolError, RequestTimeout, RPCError, TransportClosed
from mcpfast.http.interface import Request
from mcpfast.server import Context, Server, SSEHandler
from tests.server.sse_peer import SSEPeer

pytestmark = pytest.mark.anyio


async def serve(handler: Any, **options: Any) -> SSEPeer:
    """Serve ``handler`` as tools/call and return an initialized client."""
    server = Server("x", "1")
    server.method("tools/call")(handler)
    return await SSEPeer(SSEHandler(lambda request: server, **options), "/sse", x_mine="yes").start()


async def test_a_handler_knows_who_asks_and_from_where() -> None:
    seen: list[Context] = []

    async def call(ctx: Context, params: dict[str, Any]) -> None:
        seen.append(ctx)

    peer = await serve(call)
    await peer.call("tools/call", {"_meta": {"a": 1}}, id="i")
    (ctx,) = seen
    assert ctx.headers["x-mine"] == "yes"
    assert isinstance(ctx.request, Request)
    assert (ctx.request.method, ctx.request.path) == ("POST", "/sse")
    assert ctx.request.client == ("127.0.0.1", 50000)
    assert peer.endpoint.endswith(f"sessionid={ctx.session_id}")
    assert ctx.protocol_version == "2024-11-05"
    assert ctx.request_id == "i"
    assert ctx.meta == {"a": 1}
    assert ctx.principal is None
    assert ctx.state is None
    assert ctx.session_id not in repr(ctx.request)


async def test_progress_is_sent_only_to_who_asked_and_not_after_the_answer() -> None:
    """M26-S-21: names only tokens of live requests, and stops once the request is done."""
    kept: list[Context] = []

    async def call(ctx: Context, params: dict[str, Any]) -> None:
        kept.append(ctx)
        await ctx.progress(1)
        await ctx.progress(2, 10, "half way")

    peer = await serve(call)
    await peer.call("tools/call")
    for bad in (None, True, 1.0, ["x"]):
        await peer.call("tools/call", {"_meta": {"progressToken": bad}})
    await peer.request("tools/call", {"_meta": {"progressToken": "t"}})
    assert [(await peer.next_message())["params"] for _ in range(2)] == [
        {"progressToken": "t", "progress": 1},
        {"progressToken": "t", "progress": 2, "total": 10, "message": "half way"},
    ]
    assert "result" in await peer.next_message()
    await kept[-1].progress(3)
    await kept[-1].notify("later")
    assert (await peer.next_message()) == {"jsonrpc": "2.0", "method": "later"}


async def test_notify_that_cannot_be_json_raises_in_the_handler() -> None:
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        with pytest.raises(ProtocolError):
            await ctx.notify("n", {"x": object()})
        return {"ok": True}

    peer = await serve(call)
    assert (await peer.call("tools/call"))["result"] == {"ok": True}


async def test_close_stream_says_that_this_transport_cannot() -> None:
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        with pytest.raises(RuntimeError, match=r"HTTP\+SSE"):
            ctx.close_stream(retry_ms=100)
        return {"ok": True}

    peer = await serve(call)
    assert (await peer.call("tools/call"))["result"] == {"ok": True}


# Requests to the client


async def test_the_clients_error_is_raised_in_the_handler() -> None:
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        with pytest.raises(RPCError) as caught:
            await ctx.request("elicitation/create", {"a": 1})
        return {"code": caught.value.code, "data": caught.value.data}

    peer = await serve(call)
    await peer.request("tools/call")
    asked = await peer.next_message()
    await peer.post({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no", "data": [1]}})
    assert (await peer.next_message())["result"] == {"code": -1, "data": [1]}


async def test_only_an_answer_with_the_very_id_counts() -> None:
    """C054, client's answers: '1' is no answer to 1; strangers and repetitions are ignored."""
    both = asyncio.Event()

    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        first, second = await asyncio.gather(ctx.request("a"), ctx.request("b"))
        both.set()
        return {"answers": [first, second]}

    peer = await serve(call)
    await peer.request("tools/call")
    asked = {m["method"]: m["id"] for m in [await peer.next_message() for _ in range(2)]}
    for id in (str(asked["a"]), 999, "x"):
        assert await peer.post({"jsonrpc": "2.0", "id": id, "result": "wrong"}) == 202
    assert await peer.post({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "x"}}) == 202
    await peer.post({"jsonrpc": "2.0", "id": asked["b"], "result": "B"})
    await peer.post({"jsonrpc": "2.0", "id": asked["b"], "result": "again"})
    assert not both.is_set()
    await peer.post({"jsonrpc": "2.0", "id": asked["a"], "result": "A"})
    assert (await peer.next_message())["result"] == {"answers": ["A", "B"]}


async def test_a_client_that_does_not_answer_is_given_up_and_told() -> None:
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        with pytest.raises(RequestTimeout, match=r"sampling/createMessage within 0\.05 s"):
            await ctx.request("sampling/createMessage", timeout=0.05)
        return {"gave": "up"}

    peer = await serve(call)
    await peer.request("tools/call")
    asked = await peer.next_message()
    told = await peer.next_message()
    assert (told["method"], told["params"]) == ("notifications/cancelled", {"requestId": asked["id"]})
    assert (await peer.next_message())["result"] == {"gave": "up"}


async def test_a_handler_that_is_cancelled_takes_back_what_it_asked() -> None:
    async def call(ctx: Context, params: dict[str, Any]) -> None:
        await ctx.request("roots/list")

    peer = await serve(call)
    id = await peer.request("tools/call")
    asked = await peer.next_message()
    await peer.notify("notifications/cancelled", {"requestId": id})
    told = await peer.next_message()
    assert (told["method"], told["params"]) == ("notifications/cancelled", {"requestId": asked["id"]})
    assert (await peer.call("ping"))["result"] == {}


async def test_who_waits_for_a_client_that_leaves_is_told() -> None:
    """A10: everything waiting is released, also what is not cancelled."""
    outcomes: list[BaseException] = []
    done = asyncio.Event()

    async def ask(ctx: Context) -> None:
        for _ in range(2):
            try:
                await ctx.request("roots/list")
            except TransportClosed as error:
                outcomes.append(error)
        with pytest.raises(TransportClosed):
            await ctx.notify("n")
        done.set()

    tasks: list[asyncio.Task[None]] = []

    async def call(ctx: Context, params: dict[str, Any]) -> None:
        tasks.append(asyncio.ensure_future(ask(ctx)))

    peer = await serve(call)
    await peer.request("tools/call")
    await peer.next_message()
    peer.leave()
    await asyncio.wait_for(done.wait(), 5)
    assert len(outcomes) == 2
    await tasks[0]
