"""Client on Streamable HTTP of 2026-07-28, against servers that are told what to answer."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from mcpfast import Server, connect, serve
from mcpfast.client import StreamableHTTPClientTransport
from mcpfast.errors import AuthorizationRequired, ProtocolError, RequestTimeout, RPCError, TransportClosed
from mcpfast.jsonrpc import Notification, Request, Response
from mcpfast.server import Context
from tests.server.streamable_peer import modern_meta
from tests.support.scripted_server import Peer, ScriptedServer
from tests.support.scripted_streamable import StreamableScript, body_of, error_of, event, note, result_event
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

WAIT_S = 5.0


async def test_what_every_post_carries(anyio_backend: Any) -> None:
    """M26-C-01, M26-C-02, M26-C-03, M26-C-04, M26-C-08, M26-C-12, M26-C-13, M26-C-16; B1

    No session, although the server offers one on each answer, and neither GET nor DELETE.
    """
    script = StreamableScript(modern=True)

    def call(peer: Peer, message: Any) -> None:
        peer.respond(200, body_of(message, {"ok": True}), "mcp-session-id: never")

    script.on("tools/call", call)
    options: Any = {"client_info": {"name": "me", "version": "2"}, "capabilities": {"roots": {}}}
    async with (
        ScriptedServer(script) as server,
        connect(script.url(server), headers={"x-key": "k"}, **options) as client,
    ):
        assert client.protocol_version == "2026-07-28"
        assert client.session_id is None
        for name in ("plain", "日本", "plain"):
            assert await client.request("tools/call", {"name": name}) == {"ok": True}
        await client.request("tools/list", headers={"X-Once": "1"})
        await client.notify("notifications/x", {"a": 1})
    ids = []
    for message, received in script.posts:
        assert received.header("accept") == "application/json, text/event-stream"
        assert received.header("content-type") == "application/json"
        assert received.header("mcp-protocol-version") == "2026-07-28"
        assert received.header("mcp-method") == message["method"]
        assert received.header("x-key") == "k"
        assert received.header("mcp-session-id") is None
        if "id" in message:
            ids.append(message["id"])
            assert message["params"]["_meta"] == {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "me", "version": "2"},
                "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
            }
    assert len(set(ids)) == len(ids)
    assert all(type(id) is int for id in ids)
    names = [received.header("mcp-name") for _, received in script.posts]
    assert names == [None, "plain", "=?base64?5pel5pys?=", "plain", None, None]
    assert [received.header("x-once") for _, received in script.posts] == [None, None, None, None, "1", None]
    assert not script.gets
    assert not script.deletes


async def test_a_stream_with_comments_and_notifications_before_the_answer(anyio_backend: Any) -> None:
    """M26-C-06, M26-C-07; B7, C028: an event without data is none."""
    script = StreamableScript(modern=True)

    def call(peer: Peer, message: Any) -> None:
        peer.start_stream()
        progress = {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1, "message": "half"}
        peer.chunk(b": hello\n\nid: x\ndata: \n\n: ping\nevent: other\ndata: not json\n\n")
        peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}))
        peer.chunk(event(note(1)) + b"data: {not json}\n\n" + result_event(message, {"ok": 1}))
        peer.end_stream()

    script.on("tools/call", call)
    seen: list[Any] = []
    progress: list[Any] = []
    async with ScriptedServer(script) as server, connect(script.url(server), on_notification=seen.append) as client:
        answer = await client.request("tools/call", {"name": "a"}, on_progress=lambda *p: progress.append(p))
        assert answer == {"ok": 1}
        assert progress == [(1, None, "half")]
        assert seen == [Notification("notifications/n", {"number": 1})]


async def test_the_connection_of_a_stream_that_ended_is_used_again(anyio_backend: Any) -> None:
    script = StreamableScript(modern=True)

    def call(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(result_event(message, {}))
        peer.end_stream()

    script.on("tools/call", call)
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        for _ in range(3):
            await client.request("tools/call", {"name": "a"})
            await asyncio.sleep(0.01)
        assert len(server.peers) == 1


@pytest.mark.parametrize("how", ["cancelled", "timed out", "closed"])
@pytest.mark.parametrize("has_head", [False, True])
async def test_leaving_the_stream_is_the_cancellation(anyio_backend: Any, how: str, has_head: bool) -> None:
    """M26-C-09, M26-C-10, M26-C-11; B11: no notification is posted, the connection ends."""
    script = StreamableScript(modern=True)
    left = asyncio.Event()

    async def call(peer: Peer, message: Any) -> None:
        if has_head:
            peer.start_stream()
            peer.chunk(event(note(1)))
        await peer.until_left()
        left.set()

    script.on("tools/call", call)
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        timeout = 0.2 if how == "timed out" else None
        task = asyncio.ensure_future(client.request("tools/call", {"name": "a"}, timeout=timeout))
        await server.until(lambda: "tools/call" in script.methods())
        await asyncio.sleep(0)
        if how == "cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif how == "timed out":
            with pytest.raises(RequestTimeout, match="'tools/call' was not answered within"):
                await task
        else:
            await client.close()
            with pytest.raises(TransportClosed):
                await task
        await asyncio.wait_for(left.wait(), WAIT_S)
        if how != "closed":
            assert (await client.request("x"))["method"] == "x"
    assert "notifications/cancelled" not in script.methods()


async def test_progress_does_not_move_the_time_limit(anyio_backend: Any) -> None:
    """M26-C-10"""
    script = StreamableScript(modern=True)

    async def call(peer: Peer, message: Any) -> None:
        peer.start_stream()
        progress = {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1}
        for _ in range(1000):
            peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}))
            await asyncio.sleep(0.01)

    script.on("tools/call", call)
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        with pytest.raises(RequestTimeout):
            await client.request("tools/call", {"name": "a"}, timeout=0.3, on_progress=lambda *p: None)


async def test_a_request_of_the_server_is_not_answered(anyio_backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    """M26-C-05: a POST never holds a response."""
    script = StreamableScript(modern=True)

    def call(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(event({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + result_event(message, {}))
        peer.end_stream()

    script.on("tools/call", call)
    async with ScriptedServer(script) as server, connect(script.url(server), on_request=lambda r: {}) as client:
        await client.request("tools/call", {"name": "a"})
        await client.request("x")
    assert script.methods() == ["server/discover", "tools/call", "x"]
    assert "which its revision has not" in caplog.text


async def test_a_result_of_an_unknown_type_is_invalid(anyio_backend: Any) -> None:
    """M26-C-20: an absent type reads as complete."""
    script = StreamableScript(modern=True)
    results: list[Any] = [{}, {"resultType": "complete"}, {"resultType": "input_required"}, {"resultType": "new"}]
    script.on("x", *[lambda peer, message, r=r: peer.respond(200, body_of(message, r)) for r in results])
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        for result in results[:3]:
            assert await client.request("x") == result
        with pytest.raises(ProtocolError, match="unknown type"):
            await client.request("x")


TOOLS = [
    {"name": "t", "inputSchema": {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}},
    {"name": "bad", "inputSchema": {"properties": {"p": {"type": "number", "x-mcp-header": "P"}}}},
]
CALL = {"name": "t", "arguments": {"region": "eu"}}


async def test_marked_arguments_are_mirrored_once_the_tools_are_known(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """M26-C-17, M26-C-18"""
    script = StreamableScript(modern=True)
    script.on("tools/list", lambda peer, message: peer.respond(200, body_of(message, {"tools": TOOLS})))
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        assert [tool["name"] for tool in (await client.request("tools/list"))["tools"]] == ["t"]
        assert "tool 'bad' is left out" in caplog.text
        await client.request("tools/call", CALL)
        assert script.last("tools/call")[1].header("mcp-param-region") == "eu"
        await client.request("tools/call", {**CALL, "arguments": {"region": None}}, headers={"x-a": "b"})
        assert script.last("tools/call")[1].header("mcp-param-region") is None
        assert script.last("tools/call")[1].header("x-a") == "b"


async def test_after_a_header_mismatch_the_tools_are_listed_and_the_call_is_made_again_once(anyio_backend: Any) -> None:
    """M26-C-19: all pages are read."""
    script = StreamableScript(modern=True)

    def listing(peer: Peer, message: Any) -> None:
        is_first = "cursor" not in message["params"]
        page = {"tools": [], "nextCursor": "2"} if is_first else {"tools": TOOLS}
        peer.respond(200, body_of(message, page))

    def refuse(peer: Peer, message: Any) -> None:
        peer.respond(400, error_of(message, -32020, "Mcp-Param-Region is missing"))

    script.on("tools/list", listing)
    script.on("tools/call", refuse, lambda peer, message: peer.respond(200, body_of(message, {"ok": 1})))
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        assert await client.request("tools/call", CALL) == {"ok": 1}
        assert script.last("tools/call")[1].header("mcp-param-region") == "eu"
        assert script.methods()[1:] == ["tools/call", "tools/list", "tools/list", "tools/call"]
        script.on("tools/call", refuse)
        with pytest.raises(RPCError) as caught:
            await client.request("tools/call", CALL)
        assert caught.value.code == -32020
        assert script.methods().count("tools/call") == 4


async def test_errors_with_a_status_are_the_servers_error(anyio_backend: Any) -> None:
    """B6: also with id null or none, which 2026-07-28 allows."""
    script = StreamableScript(modern=True)
    bodies = [
        lambda m: error_of(m, -32602, "wrong", {"why": 1}),
        lambda m: b'{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"wrong","data":{"why":1}}}',
        lambda m: b'{"jsonrpc":"2.0","error":{"code":-32602,"message":"wrong","data":{"why":1}}}',
    ]
    script.on("x", *[lambda p, m, b=b, s=s: p.respond(s, b(m)) for b in bodies for s in (400, 404, 200)])
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        for _ in range(9):
            with pytest.raises(RPCError) as caught:
                await client.request("x")
            assert (caught.value.code, caught.value.message, caught.value.data) == (-32602, "wrong", {"why": 1})


async def test_by_hand_without_asking_the_server(anyio_backend: Any) -> None:
    script = StreamableScript(modern=True)
    async with ScriptedServer(script) as server:
        async with connect(script.url(server), "http", handshake=False) as client:
            assert not script.posts
            client.speak(client_info={"name": "a", "version": "1"})
            await client.request("x")
        async with connect(script.url(server), "streamable-http", handshake=False) as client:
            await client.discover()
            assert client.protocol_version == "2026-07-28"
        async with connect(script.url(server), "http", handshake=False) as client:
            await client.initialize()
            assert client.protocol_version == "2025-11-25"
            with pytest.raises(ProtocolError, match="not part of revision 2025-11-25"):
                client.listen()


# Raw messages


async def test_raw_requests_that_fail_are_told_by_their_id(anyio_backend: Any) -> None:
    """A refusal is raised by send; what fails later comes out of recv, and the connection goes on."""
    script = StreamableScript(modern=True)

    def cut(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(event(note(1)))
        peer.end_stream()

    script.on("cut", cut)
    script.on("refuse", lambda peer, message: peer.respond(401, b"", "www-authenticate: Bearer"))
    async with ScriptedServer(script) as server, StreamableHTTPClientTransport(script.url(server)) as connection:
        meta = {"_meta": modern_meta()}
        await connection.send(Request("cut", "cut", meta))
        assert await connection.recv() == Notification("notifications/n", {"number": 1})
        with pytest.raises(ProtocolError, match="'cut' will have no answer: stream ended without the answer") as caught:
            await connection.recv()
        assert caught.value.id == "cut"
        with pytest.raises(AuthorizationRequired):
            await connection.send(Request(2, "refuse", meta))
        await connection.send(Request(2, "x", meta))
        answer = await connection.recv()
        assert isinstance(answer, Response)
        assert answer.result["params"] == meta, "messages are sent as they are"


async def test_two_requests_in_flight_may_not_share_an_id(anyio_backend: Any) -> None:
    """M26-C-12; 1 and "1" are two ids (C054)."""
    script = StreamableScript(modern=True)
    gate = asyncio.Event()

    async def wait(peer: Peer, message: Any) -> None:
        peer.start_stream()
        await gate.wait()
        peer.chunk(result_event(message, {"id": message["id"]}))
        peer.end_stream()

    script.on("wait", wait)
    async with ScriptedServer(script) as server, StreamableHTTPClientTransport(script.url(server)) as connection:
        await connection.send(Request(1, "wait", {"_meta": modern_meta()}))
        await connection.send(Request("1", "wait", {"_meta": modern_meta()}))
        with pytest.raises(ProtocolError, match="request with id 1 is in flight"):
            await connection.send(Request(1, "wait", {"_meta": modern_meta()}))
        gate.set()
        answers = [await connection.recv(), await connection.recv()]
        assert {(type(a.id), a.result["id"]) for a in answers if isinstance(a, Response)} == {(int, 1), (str, "1")}
        await connection.send(Request(1, "x", {"_meta": modern_meta()}))
        assert isinstance(await connection.recv(), Response)


# Subscriptions


def make_server() -> Server:
    server = Server("listened", "1", capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}})

    @server.method("tools/call")
    async def call(ctx: Context, params: Any) -> Any:
        return {}

    return server


async def test_listening_to_our_own_server(anyio_backend: Any) -> None:
    """Several at once; each gets what it asked for (B9's place in 2026-07-28)."""
    server = make_server()
    async with serve(server) as listener, connect(listener.url) as client:
        async with (
            client.listen({"toolsListChanged": True}) as tools,
            client.listen({"resourceSubscriptions": ["file:///a"]}) as resources,
        ):
            await until(lambda: tools.granted and resources.granted)
            server.publish("notifications/resources/updated", {"uri": "file:///a"})
            server.publish("notifications/tools/list_changed", {})
            assert (await asyncio.wait_for(tools.__anext__(), WAIT_S)).method == "notifications/tools/list_changed"
            updated = await asyncio.wait_for(resources.__anext__(), WAIT_S)
            assert isinstance(updated.params, dict)
            assert updated.params["uri"] == "file:///a"
        with pytest.raises(StopAsyncIteration):
            await tools.__anext__()
        await until(lambda: listener.stats()["streams"] == 0)


async def test_a_subscription_ends_when_the_server_ends_it(anyio_backend: Any) -> None:
    server = make_server()
    async with serve(server) as listener, connect(listener.url) as client:
        listening = client.listen()
        task = asyncio.ensure_future(listening.__anext__())
        await until(lambda: listening.granted is not None)
        await listener.close()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(task, WAIT_S)


def acknowledge(peer: Peer, message: Any, granted: Any = None) -> None:
    peer.start_stream()
    meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
    asked = message["params"]["notifications"] if granted is None else granted
    params = {"_meta": meta, "notifications": asked}
    peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}))


def changed(message: Any, id: Any = None) -> bytes:
    meta = {"io.modelcontextprotocol/subscriptionId": message["id"] if id is None else id}
    return event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": meta}})


@pytest.mark.parametrize("how", ["ended", "lost"])
async def test_a_subscription_that_is_lost_is_asked_for_again(anyio_backend: Any, how: str) -> None:
    """M26-C-22: with a new id, without Last-Event-ID (M26-C-08)."""
    script = StreamableScript(modern=True)

    def first(peer: Peer, message: Any) -> None:
        acknowledge(peer, message)
        peer.chunk(b"id: 7\nretry: 1\n" + changed(message))
        if how == "ended":
            peer.end_stream()
        else:
            peer.abort()

    async def second(peer: Peer, message: Any) -> None:
        acknowledge(peer, message)
        peer.chunk(changed(message))
        await peer.until_left()

    script.on("subscriptions/listen", first, second)
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        listening = client.listen()
        for _ in range(2):
            assert (await asyncio.wait_for(listening.__anext__(), WAIT_S)).method == "notifications/tools/list_changed"
        await listening.aclose()
        asked = [post for post in script.posts if post[0]["method"] == "subscriptions/listen"]
        assert asked[0][0]["id"] != asked[1][0]["id"]
        assert asked[1][1].header("last-event-id") is None
        await server.until(lambda: server.open_connections <= 1)


async def test_without_reconnect_a_lost_subscription_is_an_error(anyio_backend: Any) -> None:
    script = StreamableScript(modern=True)

    def cut(peer: Peer, message: Any) -> None:
        acknowledge(peer, message)
        peer.end_stream()

    script.on("subscriptions/listen", cut)
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        with pytest.raises(ProtocolError, match="stream ended"):
            await client.listen(reconnect=False).__anext__()


async def test_a_refused_subscription_is_an_error_at_once(anyio_backend: Any) -> None:
    script = StreamableScript(modern=True)
    script.on("subscriptions/listen", lambda peer, message: peer.respond(404, error_of(message, -32601, "no")))
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        with pytest.raises(RPCError, match="no"):
            await client.listen().__anext__()


async def test_less_granted_than_asked_and_foreign_notifications(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """M26-C-21; the id of a subscription counts with its type."""
    script = StreamableScript(modern=True)

    async def answer(peer: Peer, message: Any) -> None:
        acknowledge(peer, message, {"toolsListChanged": True})
        peer.chunk(changed(message, str(message["id"])) + changed(message, 999))
        peer.chunk(event(note(1)))
        await peer.until_left()

    script.on("subscriptions/listen", answer)
    async with ScriptedServer(script) as server, connect(script.url(server)) as client, client.listen() as listening:
        assert (await asyncio.wait_for(listening.__anext__(), WAIT_S)).method == "notifications/n"
        assert listening.granted == {"toolsListChanged": True}
    assert "server does not send promptsListChanged, resourcesListChanged" in caplog.text
    assert caplog.text.count("another subscription") == 2


async def test_a_subscription_nobody_reads_is_not_read_from_the_wire(anyio_backend: Any) -> None:
    script = StreamableScript(modern=True)
    sent = 0

    async def flood(peer: Peer, message: Any) -> None:
        nonlocal sent
        acknowledge(peer, message)
        one = changed(message).replace(b"}}}", b'},"pad":"' + b"x" * 20_000 + b'"}}')
        for _ in range(10_000):
            peer.chunk(one)
            await peer.drain()
            sent += 1

    script.on("subscriptions/listen", flood)
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        listening = client.listen()
        await listening.__anext__()
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 2000
        for _ in range(300):
            await asyncio.wait_for(listening.__anext__(), WAIT_S)
        await listening.aclose()


async def test_closing_the_client_ends_its_subscriptions(anyio_backend: Any) -> None:
    script = StreamableScript(modern=True)

    async def answer(peer: Peer, message: Any) -> None:
        acknowledge(peer, message)
        await peer.until_left()

    script.on("subscriptions/listen", answer)
    tasks = asyncio.all_tasks()
    async with ScriptedServer(script) as server:
        async with connect(script.url(server)) as client:
            task = asyncio.ensure_future(client.listen().__anext__())
            await server.until(lambda: "subscriptions/listen" in script.methods())
        with pytest.raises(TransportClosed):
            await asyncio.wait_for(task, WAIT_S)
        await server.until(lambda: server.open_connections == 0)
    assert asyncio.all_tasks() == tasks


async def test_dropping_a_subscription_ends_it(anyio_backend: Any) -> None:
    script = StreamableScript(modern=True)
    left = asyncio.Event()

    async def answer(peer: Peer, message: Any) -> None:
        acknowledge(peer, message)
        peer.chunk(changed(message))
        await peer.until_left()
        left.set()

    script.on("subscriptions/listen", answer)
    async with ScriptedServer(script) as server, connect(script.url(server)) as client:
        async for _ in client.listen():
            break
        await asyncio.wait_for(left.wait(), WAIT_S)


async def test_nothing_secret_is_logged(anyio_backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    """B16: where to log can be chosen."""
    caplog.set_level(logging.DEBUG)
    script = StreamableScript(modern=True)
    script.on("x", lambda peer, message: peer.respond(500, b"no"))
    own = logging.getLogger("own")
    headers = {"authorization": "Bearer secret-token"}
    async with ScriptedServer(script) as server:
        url = script.url(server) + "?key=secret-key"
        async with connect(url, headers=headers, logger=own) as client:
            with pytest.raises(Exception, match="500") as caught:
                await client.request("x", {"a": "secret-payload"})
    for text in (caplog.text, repr(caught.value), json.dumps(str(client))):
        assert "secret" not in text
