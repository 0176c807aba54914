"""One stream: back-pressure, its limits with a slow reader, its place among the listeners."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcpfast.server import Context, Server, SSEHandler
from tests.server.sse_peer import SSEPeer
from tests.support.memory import MemoryShell

pytestmark = pytest.mark.anyio

LIMIT = 10_000


def make(**options: Any) -> tuple[Server, SSEHandler, MemoryShell]:
    server = Server("x", "1")

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        for i in range(params.get("notes", 0)):
            await ctx.notify("n", {"i": i, "pad": "x" * 1000})
        return {"pad": "x" * params.get("size", 0)}

    handler = SSEHandler(lambda request: server, max_unsent_bytes=LIMIT, **options)
    return server, handler, MemoryShell(handler, max_unsent_bytes=LIMIT)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_handler_that_says_much_waits_for_a_slow_reader() -> None:
    """What a reader that stopped costs is bounded, and it loses nothing when it goes on."""
    _, handler, shell = make()
    peer = await SSEPeer(shell).start()
    peer.get.stall()
    await peer.request("tools/call", {"notes": 100})
    await settle()
    held = peer.get.responder.unsent_bytes
    assert LIMIT < held < 2 * LIMIT + 2000  # one turn's burst is on top
    assert handler.shared.load.in_flight == 1
    seen = []
    while len(seen) < 100:
        peer.get.resume()
        await settle()
        peer.get.stall()
        while peer.events or peer.get._read < len(peer.get.pieces):
            message = await peer.next_message()
            if "method" in message:
                seen.append(message["params"]["i"])
    assert seen == list(range(100))


async def test_many_answers_that_wait_for_one_reader_do_not_go_out_all_at_once() -> None:
    """Beyond the limit and the message being written nothing is handed to the shell."""
    _, _, shell = make()
    peer = await SSEPeer(shell).start()
    peer.get.stall()
    for id in range(100, 150):
        await peer.request("tools/call", {"size": 3000}, id=id)
    await settle()
    most = peer.get.responder.unsent_bytes
    assert most < LIMIT + 4000
    ids = []
    for _ in range(100):
        peer.get.resume()
        peer.get.stall()
        await settle()
        most = max(most, peer.get.responder.unsent_bytes)
        while peer.events or peer.get._read < len(peer.get.pieces):
            ids.append((await peer.next_message())["id"])
        if len(ids) == 50:
            break
    assert sorted(ids) == list(range(100, 150))
    assert most < LIMIT + 4000


async def test_pings_of_a_client_that_does_not_read_are_bounded() -> None:
    _, handler, shell = make(max_in_flight=5)
    peer = await SSEPeer(shell).start()
    peer.get.stall()
    await peer.request("tools/call", {"size": LIMIT + 1})
    await settle()
    statuses = [await peer.post({"jsonrpc": "2.0", "id": f"p{i}", "method": "ping"}) for i in range(50)]
    assert statuses == [202] * 10 + [503] * 40
    assert handler.shared.load.in_flight == 10
    peer.get.resume()
    await peer.next_message()
    answered = [(await peer.next_message())["id"] for _ in range(10)]
    assert answered == [f"p{i}" for i in range(10)]


async def test_what_waits_for_a_reader_that_leaves_is_released() -> None:
    _, handler, shell = make()
    peer = await SSEPeer(shell).start()
    peer.get.stall()
    for id in range(100, 120):
        await peer.request("tools/call", {"size": 3000}, id=id)
    await settle()
    assert handler.shared.load.in_flight > 0
    peer.leave()
    await settle()
    assert handler.shared.load.in_flight == 0
    assert not handler._sessions


async def test_published_messages_and_answers_keep_their_order_on_each_stream() -> None:
    server, _, shell = make()
    peers = [await SSEPeer(shell).start() for _ in range(3)]

    @server.method("publish")
    async def publish(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        server.publish("before", {"from": ctx.request_id})
        return {}

    for peer in peers:
        await peer.request("publish", id=99)
        assert (await peer.next_message())["method"] == "before"
        assert (await peer.next_message())["id"] == 99
        for other in peers:
            if other is not peer:
                assert (await other.next_message())["method"] == "before"


async def test_a_published_burst_for_a_reader_that_stopped_is_held_once_then_dropped() -> None:
    """C070."""
    server, handler, shell = make(max_backlog_messages=5)
    good, slow = [await SSEPeer(shell).start() for _ in range(2)]
    slow.get.stall()
    for i in range(60):
        server.publish("n", {"i": i, "pad": "x" * 1000})
        assert (await good.next_message())["params"]["i"] == i
        assert slow.get.responder.unsent_bytes < LIMIT + 6000
    assert slow.get.aborted == "slow_reader"
    assert handler.shared.stats.ended == {"slow_reader": 1}
    assert await slow.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}) == 404
    assert (await good.call("ping"))["result"] == {}


async def test_keep_alive_comments_come_on_a_quiet_stream_and_not_on_one_that_is_behind() -> None:
    """C034."""
    _, _, shell = make(keepalive_s=0.05)
    quiet, behind = [await SSEPeer(shell).start() for _ in range(2)]
    behind.get.stall()
    await behind.request("tools/call", {"size": 10})
    await settle()
    pieces = len(behind.get.pieces)
    before = quiet.get.body
    await quiet.get.until(lambda: quiet.get.body.count(b": keep-alive\n") >= 3)
    assert len(behind.get.pieces) == pieces
    assert quiet.get.body.startswith(before)
    assert set(quiet.get.body[len(before) :].split(b"\n")) == {b": keep-alive", b""}
    assert (await quiet.call("ping"))["result"] == {}


async def test_a_large_result_arrives_whole() -> None:
    """8 MiB in one event."""
    _, _, shell = make()
    peer = await SSEPeer(shell).start()
    peer._decoder = type(peer._decoder)(max_event_bytes=16 << 20)
    answer = await peer.call("tools/call", {"size": 8 << 20})
    assert len(answer["result"]["pad"]) == 8 << 20
    assert json.loads(peer.get.pieces[-1].split(b"data: ")[1])["id"] == answer["id"]
