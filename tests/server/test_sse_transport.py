"""SSEServerTransport: one session without the handler (A7, A10, A11, A12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import pytest

from mcpfast.errors import ProtocolError, TransportClosed
from mcpfast.http.interface import Headers, Request, Responder
from mcpfast.jsonrpc import Notification, Response
from mcpfast.jsonrpc import Request as RPCRequest
from mcpfast.protocol import Connection
from mcpfast.server import SSEServerTransport
from tests.server.sse_peer import SSEPeer
from tests.support.memory import Exchange, MemoryShell

pytestmark = pytest.mark.anyio


class Own:
    """A caller's own routing: GET opens the one transport, POST goes to it."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.transport: SSEServerTransport

    def __call__(self, request: Request, responder: Responder) -> Awaitable[None] | None:
        if request.method == "GET":
            self.transport = SSEServerTransport("/mine?session=1", responder, **self.options)
            return self._connect()
        return self.transport.handle_post(request, responder)

    async def _connect(self) -> None:
        assert await self.transport.connect() is self.transport


async def opened(**options: Any) -> tuple[SSEPeer, SSEServerTransport]:
    own = Own(**options)
    peer = await SSEPeer(own).open()
    return peer, own.transport


async def test_connect_sends_the_endpoint_that_was_given() -> None:
    """A11."""
    peer, transport = await opened()
    assert peer.endpoint == "/mine?session=1"
    assert isinstance(transport, Connection)


async def test_messages_go_both_ways() -> None:
    """A11, A12."""
    peer, transport = await opened()
    assert await peer.post({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"a": 1}}) == 202
    assert await transport.recv() == RPCRequest(1, "m", {"a": 1})
    await transport.send(Response(1, {"b": 2}))
    assert await peer.next_message() == {"jsonrpc": "2.0", "id": 1, "result": {"b": 2}}
    with pytest.raises(ProtocolError):
        await transport.send(Notification("n", {"x": object()}))
    waiting = asyncio.ensure_future(transport.recv())
    await asyncio.sleep(0)
    await peer.notify("later")
    assert await waiting == Notification("later")


async def test_a_post_waits_while_the_queue_is_full_and_in_order() -> None:
    """A7."""
    peer, transport = await opened(max_queued_messages=2)
    for i in range(2):
        await peer.notify(f"n{i}")
    waiting = [peer.send({"jsonrpc": "2.0", "method": f"n{i}"}) for i in range(2, 4)]
    await asyncio.sleep(0)
    assert [exchange.status for exchange in waiting] == [None, None]
    assert (await transport.recv()).method == "n0"  # type: ignore[union-attr]
    await waiting[0].until_ended()
    late = peer.send({"jsonrpc": "2.0", "method": "n4"})
    assert [waiting[0].status, waiting[1].status, late.status] == [202, None, None]
    assert [(await transport.recv()).method for _ in range(4)] == ["n1", "n2", "n3", "n4"]  # type: ignore[union-attr]
    await late.until_ended()
    assert late.status == 202


async def test_a_post_that_found_no_room_in_time_gets_503() -> None:
    """A7."""
    peer, transport = await opened(max_queued_messages=1, queue_timeout_s=0.05)
    await peer.notify("first")
    exchange = peer.send({"jsonrpc": "2.0", "id": 1, "method": "m"})
    await exchange.until_ended()
    assert exchange.status == 503
    assert json.loads(exchange.body)["error"]["code"] == -32603
    assert (await transport.recv()).method == "first"  # type: ignore[union-attr]
    assert await peer.post({"jsonrpc": "2.0", "id": 1, "method": "m"}) == 202


async def test_posts_that_wait_are_bounded_too() -> None:
    peer, _ = await opened(max_queued_messages=2)
    waiting = [peer.send({"jsonrpc": "2.0", "method": "n"}) for _ in range(4)]
    assert await peer.post({"jsonrpc": "2.0", "method": "n"}) == 503
    assert [exchange.status for exchange in waiting] == [202, 202, None, None]


async def test_answers_cancels_and_pings_pass_a_full_queue() -> None:
    peer, transport = await opened(max_queued_messages=3)
    for _ in range(3):
        await peer.notify("n")
    peer.send({"jsonrpc": "2.0", "method": "waits"})
    for message in ({"id": 1, "result": {}}, {"id": 2, "method": "ping"}, {"method": "notifications/cancelled"}):
        assert await peer.post({"jsonrpc": "2.0", **message}) == 202
    assert await peer.post({"jsonrpc": "2.0", "id": 3, "method": "ping"}) == 503
    for _ in range(3):
        await transport.recv()
    assert await transport.recv() == Response(1, {})


async def test_a_post_whose_client_left_while_it_waited_takes_no_room() -> None:
    peer, transport = await opened(max_queued_messages=2)
    await peer.notify("first")
    await peer.notify("second")
    gone = peer.send({"jsonrpc": "2.0", "method": "gone"})
    stays = peer.send({"jsonrpc": "2.0", "method": "stays"})
    await asyncio.sleep(0)
    gone.disconnect()
    await asyncio.sleep(0)
    names = [(await transport.recv()).method for _ in range(3)]  # type: ignore[union-attr]
    assert names == ["first", "second", "stays"]
    await stays.until_ended()


async def test_a_reader_that_is_cancelled_loses_no_message() -> None:
    _, transport = await opened()
    readers = [asyncio.ensure_future(transport.recv()) for _ in range(2)]
    await asyncio.sleep(0)
    message = Notification("n")
    assert transport.admit(message) is None
    transport.run(message, Request("POST", "/", "", Headers([])))
    readers[0].cancel()  # it was woken and has not run yet
    assert await asyncio.wait_for(readers[1], 5) == Notification("n")
    await asyncio.wait(readers)
    assert readers[0].cancelled()


async def test_an_id_is_in_flight_until_it_is_answered_or_cancelled() -> None:
    """C052."""
    peer, transport = await opened()
    request = {"jsonrpc": "2.0", "id": 1, "method": "m"}
    assert await peer.post(request) == 202
    assert await peer.post(request) == 400
    await transport.send(Response(1, {}))
    assert await peer.post(request) == 202
    await peer.notify("notifications/cancelled", {"requestId": 1})
    assert await peer.post(request) == 202


@pytest.mark.parametrize("by", ["close", "client", "drop"])
async def test_the_end_releases_everything_that_waits(by: str) -> None:
    """A10."""
    peer, transport = await opened(max_queued_messages=1, max_unsent_bytes=10)
    shell_limit = peer.shell.max_unsent_bytes
    peer.shell.max_unsent_bytes = 10
    peer.get.stall()
    await transport.send(Notification("fills the buffer"))
    await asyncio.sleep(0)
    sender = asyncio.ensure_future(transport.send(Notification("waits")))
    await peer.notify("queued")
    post = peer.send({"jsonrpc": "2.0", "method": "waits"})
    await asyncio.sleep(0)
    assert not sender.done()
    assert shell_limit > 10
    if by == "close":
        await asyncio.gather(transport.close(), transport.close())
    elif by == "client":
        peer.leave()
    else:
        peer.get.responder.abort("test")
    if by == "close":
        peer.get.resume()
    with pytest.raises(TransportClosed):
        await asyncio.wait_for(sender, 5)
    await post.until_ended()
    assert post.status == 404
    if by != "close":
        assert await transport.recv() == Notification("queued")
    for _ in range(2):
        with pytest.raises(TransportClosed):
            await transport.recv()
        with pytest.raises(TransportClosed):
            await transport.send(Notification("n"))
    assert [message async for message in transport] == []
    await transport.close()
    assert transport.is_closed


async def test_a_reader_that_waits_is_woken_by_the_end() -> None:
    """A10, A17's twin."""
    _, transport = await opened()
    reader = asyncio.ensure_future(transport.recv())
    await asyncio.sleep(0)
    await transport.close()
    with pytest.raises(TransportClosed):
        await asyncio.wait_for(reader, 5)


async def test_close_before_connect_opens_nothing() -> None:
    exchange = Exchange(MemoryShell(lambda request, responder: None), "GET")
    transport = SSEServerTransport("/x", exchange.responder)
    await transport.close()
    with pytest.raises(TransportClosed):
        await transport.connect()
    assert exchange.status is None


async def test_async_with_connects_and_closes() -> None:
    exchange = Exchange(MemoryShell(lambda request, responder: None), "GET")
    async with SSEServerTransport("/x", exchange.responder) as connection:
        assert exchange.status == 200
        await connection.send(Notification("n"))
    assert exchange.is_ended
    assert exchange.body.endswith(b'event: message\ndata: {"jsonrpc":"2.0","method":"n"}\n\n')
