"""Sessions of Streamable HTTP (2025-03-26 to 2025-11-25): ids, versions, new sessions, batches, the end."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from mcpfast import connect
from mcpfast.client import Client, StreamableHTTPClientTransport
from mcpfast.client import streamable_channel as channel_module
from mcpfast.errors import HTTPStatusError, ProtocolError, RequestTimeout, RPCError, SessionTerminated, TransportClosed
from mcpfast.jsonrpc import Notification, Request, Response
from tests.support.scripted_server import Peer, ScriptedServer
from tests.support.scripted_streamable import StreamableScript, body_of, event, note, result_event
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

WAIT_S = 5.0
LEGACY = "2025-11-25"


def hello(version: str = LEGACY) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


# Headers


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_session_id_and_version_are_on_everything_after_initialize(anyio_backend: Any, version: str) -> None:
    """L25-C-01, L25-C-02, L25-C-09, L25-C-11, L25-C-12, L06-C-01, L03-C-04, C057; B1, B3, B5, B8

    2025-03-26 knows no version header.
    """
    script = StreamableScript(version=version)
    async with ScriptedServer(script) as server, connect(script.url(server), "http", version) as client:
        assert client.session_id == "session-1"
        assert client.protocol_version == version
        await client.request("x")
        await client.notify("notifications/y")
        await server.until(lambda: script.gets)
    first, *others = script.posts
    assert first[0]["params"]["protocolVersion"] == version
    assert first[1].header("mcp-session-id") is None
    assert first[1].header("mcp-protocol-version") is None
    assert [message["method"] for message, _ in others] == ["notifications/initialized", "x", "notifications/y"]
    expected = None if version == "2025-03-26" else version
    for received in [*[received for _, received in others], *script.gets, *script.deletes]:
        assert received.header("mcp-session-id") == "session-1"
        assert received.header("mcp-protocol-version") == expected
        assert received.header("mcp-method") is None
    for _, received in script.posts:
        assert received.header("accept") == "application/json, text/event-stream"
    assert script.gets[0].header("accept") == "text/event-stream"
    assert len(script.deletes) == 1


async def test_a_session_id_counts_on_the_answer_to_initialize_only(anyio_backend: Any) -> None:
    script = StreamableScript(session_id=None)
    script.on("x", lambda peer, message: peer.respond(200, body_of(message, {}), "mcp-session-id: late"))
    async with ScriptedServer(script) as server, connect(script.url(server), "http", LEGACY) as client:
        await client.request("x")
        await client.request("x")
        assert client.session_id is None
        assert script.last("x")[1].header("mcp-session-id") is None
    assert not script.gets
    assert not script.deletes


async def test_initialize_may_be_answered_by_a_stream(anyio_backend: Any) -> None:
    """L25-C-03: with a priming event before (C028)."""
    script = StreamableScript()

    def initialize(peer: Peer, message: Any) -> None:
        peer.start_stream("Mcp-Session-Id: streamed")
        peer.chunk(b"id: s1_0\ndata: \n\n" + result_event(message, hello(), "s1_1"))
        peer.end_stream()

    script.on("initialize", initialize)
    async with ScriptedServer(script) as server, connect(script.url(server), "http", LEGACY) as client:
        assert client.session_id == "streamed"


@pytest.mark.parametrize("value", ["a b", "é", "x" * 5000, "a\x01b", "", "one\r\nmcp-session-id: two"])
async def test_a_malformed_session_id_is_an_error_of_initialize(anyio_backend: Any, value: str) -> None:
    script = StreamableScript()

    def initialize(peer: Peer, message: Any) -> None:
        peer.respond(200, body_of(message, hello()), f"mcp-session-id: {value}")

    script.on("initialize", initialize)
    async with ScriptedServer(script) as server:
        with pytest.raises(ProtocolError, match=r"session id|no valid HTTP"):
            await connect(script.url(server), "http", LEGACY).__aenter__()
        assert not script.deletes


async def test_a_ready_session_is_listened_to_at_once_and_not_deleted(anyio_backend: Any) -> None:
    """B3: without detection and initialize."""
    script = StreamableScript()
    options: Any = {"session_id": "ready", "protocol_version": LEGACY}
    async with ScriptedServer(script) as server:
        async with connect(script.url(server), **options) as client:
            await server.until(lambda: script.gets)
            assert await client.request("x") == {"method": "x", "params": None}
            assert client.session_id == "ready"
            assert client.protocol_version == LEGACY
        assert script.methods() == ["x"]
        assert script.gets[0].header("mcp-session-id") == "ready"
        assert script.last("x")[1].header("mcp-protocol-version") == LEGACY
        assert not script.deletes
        async with StreamableHTTPClientTransport(script.url(server), terminate_on_close=True, **options):
            pass
        assert len(script.deletes) == 1


def test_options_that_do_not_fit_are_refused_at_once() -> None:
    """B2"""
    wrong: list[dict[str, Any]] = [
        {"session_id": "a"},
        {"session_id": "a", "protocol_version": "2026-07-28"},
        {"session_id": "a\r\nb", "protocol_version": LEGACY},
        {"protocol_version": "1999-01-01"},
        {"timeout": 0},
        {"idle_timeout": -1},
        {"max_response_bytes": 0},
        {"max_event_bytes": 0},
        {"headers": {"a\n": "b"}},
    ]
    for options in wrong:
        with pytest.raises(ValueError, match=r"."):
            StreamableHTTPClientTransport("http://a.test/mcp", **options)
    with pytest.raises(TypeError):
        StreamableHTTPClientTransport("http://a.test/mcp", auth="token")
    with pytest.raises(TypeError):
        StreamableHTTPClientTransport("http://a.test/mcp", http_client=1)


async def test_headers_of_each_kind_reach_each_request(anyio_backend: Any) -> None:
    """B2: a function runs in the context of the call; it may be async; the call's own win."""
    import contextvars

    user = contextvars.ContextVar("user", default="nobody")

    async def later() -> dict[str, str]:
        await asyncio.sleep(0)
        return {"x-user": user.get()}

    for header_func in (lambda: {"x-user": user.get()}, later):
        script = StreamableScript()
        options: Any = {"headers": {"x-fixed": "1", "x-user": "fixed"}, "header_func": header_func}
        async with ScriptedServer(script) as server, connect(script.url(server), "http", LEGACY, **options) as client:
            user.set("ann")
            await client.request("x")
            assert script.last("x")[1].header("x-user") == "ann"
            await client.request("x", headers={"x-user": "own"})
            assert script.last("x")[1].header("x-user") == "own"
            user.set("nobody")
            await server.until(lambda script=script: script.gets)
        for received in [*[r for _, r in script.posts], *script.gets, *script.deletes]:
            assert received.header("x-fixed") == "1"


# 404


async def test_a_session_that_is_gone_is_begun_anew_and_the_call_made_again(anyio_backend: Any) -> None:
    """C037, L25-C-10; B4"""
    script = StreamableScript()
    script.on(
        "initialize",
        lambda p, m: p.respond(200, body_of(m, hello()), "mcp-session-id: S1"),
        lambda p, m: p.respond(200, body_of(m, hello()), "mcp-session-id: S2"),
    )
    script.on("x", lambda p, m: p.respond(404), lambda p, m: p.respond(200, body_of(m, {"ok": 1})))
    restarted: list[Client] = []
    async with ScriptedServer(script) as server:
        options: Any = {"on_session_restarted": restarted.append, "client_info": {"name": "me", "version": "1"}}
        async with connect(script.url(server), "http", LEGACY, **options) as client:
            assert await client.request("x") == {"ok": 1}
            assert client.session_id == "S2"
            assert restarted == [client]
    tail = [(m["method"], r.header("mcp-session-id")) for m, r in script.posts][2:]
    assert tail == [("x", "S1"), ("initialize", None), ("notifications/initialized", "S2"), ("x", "S2")]
    hellos = [message["params"] for message, _ in script.posts if message["method"] == "initialize"]
    assert hellos[0] == hellos[1]
    assert [received.header("mcp-session-id") for received in script.deletes] == ["S2"]


async def test_a_new_session_that_is_gone_too_is_an_error(anyio_backend: Any) -> None:
    """C037's variant: one try, no loop."""
    script = StreamableScript()
    script.on("x", lambda p, m: p.respond(404))
    async with ScriptedServer(script) as server, connect(script.url(server), "http", LEGACY) as client:
        with pytest.raises(SessionTerminated):
            await client.request("x")
        assert script.methods().count("initialize") == 2
        assert script.methods().count("x") == 2


async def test_many_calls_that_learn_of_it_at_once_share_one_new_session(anyio_backend: Any) -> None:
    script = StreamableScript()
    sessions = 0

    def initialize(peer: Peer, message: Any) -> None:
        nonlocal sessions
        sessions += 1
        peer.respond(200, body_of(message, hello()), f"mcp-session-id: S{sessions}")

    def answer(peer: Peer, message: Any) -> None:
        received = next(r for m, r in script.posts if m is message)
        if received.header("mcp-session-id") == "S1":
            peer.respond(404)
        else:
            peer.respond(200, body_of(message, {"n": message["params"]["n"]}))

    script.on("initialize", initialize)
    script.on("x", answer)
    script.on("notifications/z", lambda p, m: p.respond(202))
    async with ScriptedServer(script) as server, connect(script.url(server), "http", LEGACY) as client:
        calls = [client.request("x", {"n": n}) for n in range(20)]
        answers = await asyncio.gather(*calls, client.notify("notifications/z"))
        assert [answer["n"] for answer in answers[:20]] == list(range(20))
        assert sessions == 2


async def test_a_notification_is_sent_again_too(anyio_backend: Any) -> None:
    script = StreamableScript()
    script.on("notifications/z", lambda p, m: p.respond(404), lambda p, m: p.respond(202))
    async with ScriptedServer(script) as server, connect(script.url(server), "http", LEGACY) as client:
        await client.notify("notifications/z")
        assert script.methods().count("initialize") == 2
        assert script.methods().count("notifications/z") == 2


async def test_reinitialize_can_be_turned_off_and_the_transport_never_does_it(anyio_backend: Any) -> None:
    """B4"""
    script = StreamableScript()
    script.on("x", lambda p, m: p.respond(404))
    async with ScriptedServer(script) as server:
        async with connect(script.url(server), "http", LEGACY, reinitialize=False) as client:
            with pytest.raises(SessionTerminated):
                await client.request("x")
            assert client.session_id is None
        async with StreamableHTTPClientTransport(script.url(server)) as connection:
            await connection.send(Request(1, "initialize", hello()))
            assert isinstance(await connection.recv(), Response)
            with pytest.raises(SessionTerminated):
                await connection.send(Request(2, "x"))
            with pytest.raises(HTTPStatusError, match="404"):
                await connection.send(Request(3, "x"))
    assert script.methods().count("initialize") == 2


async def test_404_to_initialize_is_a_plain_status(anyio_backend: Any) -> None:
    """B4: and where there is no session it is one too."""
    script = StreamableScript(session_id=None)
    script.on("x", lambda p, m: p.respond(404, b"nothing here", content_type="text/plain"))
    async with ScriptedServer(script) as server:
        async with connect(script.url(server), "http", LEGACY) as client:
            with pytest.raises(HTTPStatusError, match="404: nothing here"):
                await client.request("x")
        script.on("initialize", lambda p, m: p.respond(404))
        with pytest.raises(HTTPStatusError, match="404"):
            await connect(script.url(server), "http", LEGACY).__aenter__()


async def test_a_new_session_that_cannot_be_begun_fails_the_call_and_the_next_tries_again(anyio_backend: Any) -> None:
    script = StreamableScript()
    script.on("x", lambda p, m: p.respond(404), lambda p, m: p.respond(200, body_of(m, {"ok": 1})))
    async with ScriptedServer(script) as server, connect(script.url(server), "http", LEGACY) as client:
        script.on("initialize", lambda p, m: p.respond(503), lambda p, m: script.answer(p, m, None))  # type: ignore[arg-type]
        with pytest.raises(HTTPStatusError, match="503"):
            await client.request("x")
        assert await client.request("x") == {"ok": 1}


async def test_closing_while_a_new_session_begins_leaves_nothing(anyio_backend: Any) -> None:
    script = StreamableScript()
    script.on("x", lambda p, m: p.respond(404))
    tasks = asyncio.all_tasks()
    async with ScriptedServer(script) as server:
        async with connect(script.url(server), "http", LEGACY) as client:
            script.on("initialize", lambda p, m: p.until_left())
            call = asyncio.ensure_future(client.request("x"))
            await server.until(lambda: script.methods().count("initialize") == 2)
        with pytest.raises(TransportClosed):
            await call
        await server.until(lambda: server.open_connections == 0)
    assert asyncio.all_tasks() == tasks


# Statuses


async def test_any_success_without_content_accepts_what_is_owed_no_answer(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """C047; B6"""
    script = StreamableScript()
    script.on("notifications/initialized", lambda p, m: p.respond(204))
    script.on("response", lambda p, m: p.respond(200))

    def ask(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}))

    asked = asyncio.Event()

    def on_request(request: Request) -> Any:
        asked.set()
        return {"roots": []}

    script.on("ask", ask)
    async with (
        ScriptedServer(script) as server,
        connect(script.url(server), "http", LEGACY, on_request=on_request) as client,
    ):
        call = asyncio.ensure_future(client.request("ask"))
        await asyncio.wait_for(asked.wait(), WAIT_S)
        await until(lambda: any("result" in message for message, _ in script.posts))
        call.cancel()
        assert (await client.request("x"))["method"] == "x"
    answer = next(message for message, _ in script.posts if "result" in message)
    assert answer == {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_failures_reach_their_caller_and_the_session_goes_on(anyio_backend: Any) -> None:
    """C031; B6"""
    script = StreamableScript()
    async with ScriptedServer(script) as server, connect(script.url(server), "http", LEGACY) as client:
        script.on("x", lambda p, m: p.respond(500, b"boom", content_type="text/plain"))
        with pytest.raises(HTTPStatusError, match="500: boom"):
            await client.request("x")
        script.on("x", lambda p, m: p.respond(403))
        with pytest.raises(HTTPStatusError, match="403"):
            await client.request("x")
        script.on("x", lambda p, m: p.respond(200, b"<html>", content_type="text/html; charset=utf-8"))
        with pytest.raises(Exception, match="content type 'text/html; charset=utf-8', expected application/json"):
            await client.request("x")
        script.on("x", lambda p, m: p.abort())
        with pytest.raises(ConnectionError):
            await client.request("x")
        script.on("notifications/z", lambda p, m: p.respond(500))
        with pytest.raises(HTTPStatusError, match="500"):
            await client.notify("notifications/z")
        script.on("x", lambda p, m: p.respond(200, body_of(m, {}), content_type="Application/JSON; charset=UTF-8"))
        assert await client.request("x") == {}
        assert (await client.request("ping"))["method"] == "ping"


async def test_integers_of_any_size_arrive_exactly(anyio_backend: Any) -> None:
    """C055"""
    result = {"id": 9007199254740993, "u": 18446744073709551615, "big": 123456789012345678901234567890, "f": 1.1}
    script = StreamableScript()
    script.on("x", lambda p, m: p.respond(200, body_of(m, result)))
    async with ScriptedServer(script) as server, connect(script.url(server), "http", LEGACY) as client:
        assert await client.request("x") == result


# Cancelling


@pytest.mark.parametrize("has_head", [False, True])
async def test_a_cancelled_call_is_told_by_a_notification_and_its_stream_is_left_open(
    anyio_backend: Any, has_head: bool
) -> None:
    """L25-C-06; B11: what comes late is dropped."""
    script = StreamableScript()
    gate = asyncio.Event()

    async def slow(peer: Peer, message: Any) -> None:
        if has_head:
            peer.start_stream()
            peer.chunk(event(note(1)))
        await gate.wait()
        if has_head:
            peer.chunk(result_event(message, {}))
            peer.end_stream()
        else:
            peer.respond(200, body_of(message, {}))

    script.on("slow", slow)
    async with ScriptedServer(script) as server, connect(script.url(server), "http", LEGACY) as client:
        call = asyncio.ensure_future(client.request("slow"))
        await server.until(lambda: "slow" in script.methods())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.until(lambda: "notifications/cancelled" in script.methods())
        slow_id = script.last("slow")[0]["id"]
        assert script.last("notifications/cancelled")[0]["params"] == {"requestId": slow_id, "reason": "cancelled"}
        gate.set()
        assert (await client.request("x"))["method"] == "x"


async def test_initialize_is_never_cancelled_by_a_notification(anyio_backend: Any) -> None:
    """L25-C-06"""
    script = StreamableScript()
    script.on("initialize", lambda p, m: p.until_left())
    async with ScriptedServer(script) as server:
        async with connect(script.url(server), "http", handshake=False) as client:
            with pytest.raises(RequestTimeout):
                await client.initialize(timeout=0.1)
        await server.until(lambda: server.open_connections == 0)
    assert script.methods() == ["initialize"]


# Requests of the server, and answers that come another way


async def test_an_answer_may_come_on_any_stream_and_only_once(anyio_backend: Any) -> None:
    """B9, B14: on the GET stream too; its own stream's end is then no fault."""
    script = StreamableScript()
    gate = asyncio.Event()

    async def listen(peer: Peer, message: Any) -> None:
        peer.start_stream()
        await gate.wait()
        owed = script.last("x")[0]
        peer.chunk(result_event(owed, {"by": "get"}) + result_event(owed, {"by": "get, again"}))
        await peer.until_left()

    async def answer(peer: Peer, message: Any) -> None:
        peer.start_stream()
        gate.set()
        await asyncio.sleep(0.05)
        peer.chunk(result_event(message, {"by": "post"}))
        peer.end_stream()

    script.on("GET", listen)
    script.on("x", answer)
    async with ScriptedServer(script) as server:
        async with connect(script.url(server), "http", LEGACY) as client:
            assert await client.request("x") == {"by": "get"}
        gate.clear()
        async with StreamableHTTPClientTransport(script.url(server)) as connection:
            await connection.send(Request(1, "initialize", hello()))
            await connection.recv()
            await connection.send(Notification("notifications/initialized"))
            await connection.send(Request(2, "x"))
            assert await connection.recv() == Response(2, {"by": "get"})
            await connection.send(Request(3, "y"))
            answer_y = await connection.recv()
            assert isinstance(answer_y, Response)
            assert answer_y.id == 3, "the other answers to 2 were dropped"


# Batches


async def test_batches_are_read_in_bodies_and_in_events(anyio_backend: Any) -> None:
    """L03-B-01; B15"""
    script = StreamableScript(version="2025-03-26")

    def by_body(peer: Peer, message: Any) -> None:
        peer.respond(200, json.dumps([note(1), json.loads(body_of(message, {"by": "body"})), 5]).encode())

    def by_event(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(event([note(2), json.loads(body_of(message, {"by": "event"}))]))
        peer.end_stream()

    script.on("body", by_body)
    script.on("event", by_event)
    seen: list[Any] = []
    url_of = script.url
    async with (
        ScriptedServer(script) as server,
        connect(url_of(server), "http", "2025-03-26", on_notification=seen.append) as client,
    ):
        assert await client.request("body") == {"by": "body"}
        assert await client.request("event") == {"by": "event"}
        assert [message.params["number"] for message in seen] == [1, 2]


async def test_batches_are_sent_on_2025_03_26_only(anyio_backend: Any) -> None:
    """L03-B-01, L03-C-03; B15"""
    script = StreamableScript(version="2025-03-26")

    def answers(peer: Peer, message: Any) -> None:
        results = [{"jsonrpc": "2.0", "id": m["id"], "result": {"m": m["method"]}} for m in message if "id" in m]
        if message[0]["method"] == "a":
            peer.respond(200, json.dumps(results).encode())
        else:
            peer.start_stream()
            for result in results[:-1]:
                peer.chunk(event(result))
            peer.end_stream()

    script.on("a", answers)
    script.on("b", answers)
    async with ScriptedServer(script) as server:
        async with StreamableHTTPClientTransport(script.url(server)) as connection:
            with pytest.raises(ProtocolError, match="not part of revision unknown"):
                await connection.send([Request(1, "a")])
            await connection.send(Request(0, "initialize", hello("2025-03-26")))
            await connection.recv()
            await connection.send([Request(1, "a"), Notification("n"), Request("1", "c")])
            answers_a = [await connection.recv(), await connection.recv()]
            assert answers_a == [Response(1, {"m": "a"}), Response("1", {"m": "c"})]
            await connection.send([Request(2, "b"), Request(3, "c")])
            assert await connection.recv() == Response(2, {"m": "b"})
            with pytest.raises(ProtocolError, match="request 3 will have no answer"):
                await connection.recv()
            await connection.send([Response("q", {}), Response("r", {})])
            assert isinstance(script.posts[-1][0], list)
            for wrong in (
                [Request(5, "initialize", {})],
                [Request(5, "a"), Response("q", {})],
                [Request(5, "a"), Request(5, "a")],
                [],
            ):
                with pytest.raises(ProtocolError):
                    await connection.send(wrong)
        script.version = LEGACY
        async with StreamableHTTPClientTransport(script.url(server)) as connection:
            await connection.send(Request(0, "initialize", hello()))
            await connection.recv()
            with pytest.raises(ProtocolError, match="not part of revision 2025-11-25"):
                await connection.send([Request(1, "a")])


# The end


@pytest.mark.parametrize("status", [200, 202, 204, 404, 405, 500])
async def test_however_delete_is_answered_closing_is_fine(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """L25-C-11; B10"""
    script = StreamableScript()
    script.on("DELETE", lambda p, m: p.respond(status))
    tasks = asyncio.all_tasks()
    async with ScriptedServer(script) as server:
        async with connect(script.url(server), "http", LEGACY) as client:
            pass
        await client.close()
        assert len(script.deletes) == 1
        with pytest.raises(TransportClosed):
            await client.request("x")
        await server.until(lambda: server.open_connections == 0)
    assert ("could not be deleted" in caplog.text) == (status == 500)
    assert "session-1" not in caplog.text
    assert asyncio.all_tasks() == tasks


async def test_a_delete_that_is_not_answered_is_given_up(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """B10: bounded, to 5 s"""
    assert channel_module.DELETE_TIMEOUT_S == 5.0
    monkeypatch.setattr(channel_module, "DELETE_TIMEOUT_S", 0.1)
    script = StreamableScript()
    script.on("DELETE", lambda p, m: p.until_left())
    async with ScriptedServer(script) as server:
        async with connect(script.url(server), "http", LEGACY):
            pass
        await server.until(lambda: server.open_connections == 0)


async def test_close_ends_all_that_is_under_way(anyio_backend: Any) -> None:
    """B10, B11, C075: from any task, while a stream waits to be resumed, again and again."""
    script = StreamableScript()

    def cut(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(b"id: 1\nretry: 30000\ndata: \n\n")
        peer.end_stream()

    async def never(peer: Peer, message: Any) -> None:
        await peer.until_left()

    script.on("cut", cut)
    script.on("never", never)
    script.on("GET", never)
    tasks = asyncio.all_tasks()
    async with ScriptedServer(script) as server:
        client = await connect(script.url(server), "http", LEGACY).__aenter__()
        calls = [asyncio.ensure_future(client.request(method)) for method in ("cut", "never", "never")]
        await server.until(lambda: script.methods().count("never") == 2)
        await asyncio.gather(*[asyncio.create_task(client.close()) for _ in range(3)])
        for call in calls:
            with pytest.raises(TransportClosed):
                await call
        await server.until(lambda: server.open_connections == 0)
    assert asyncio.all_tasks() == tasks


async def test_a_call_that_was_answered_with_an_error_code(anyio_backend: Any) -> None:
    script = StreamableScript()
    body = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32001,"message":"own"}}'
    script.on("x", lambda p, m: p.respond(200, body % m["id"]), lambda p, m: p.respond(400, body % m["id"]))
    async with ScriptedServer(script) as server, connect(script.url(server), "http", LEGACY) as client:
        for _ in range(2):
            with pytest.raises(RPCError, match="own"):
                await client.request("x")
