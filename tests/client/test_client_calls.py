"""Client: calls, notifications, the server's requests, and what happens when things go wrong."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from mcpfast import connect
from mcpfast.client import Client
from mcpfast.client import handlers as handlers_module
from mcpfast.client import session as session_module
from mcpfast.errors import (
    AuthorizationRequired,
    EventTooLarge,
    HTTPStatusError,
    ProtocolError,
    RequestTimeout,
    RPCError,
    TransportClosed,
)
from mcpfast.jsonrpc import Notification, Request
from tests.support.scripted_server import Peer, Received, ScriptedServer
from tests.support.scripted_sse import INITIALIZED, SSEScript

pytestmark = pytest.mark.anyio

WAIT_S = 5.0


async def until(condition: Callable[[], object]) -> None:
    """Wait until ``condition()`` is true; it is tried again and again, for a bounded time."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise TimeoutError


def silent_to(*methods: str) -> Any:
    """An on_post that takes these methods and answers nothing."""

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if message.get("method") in methods:
            peer.respond(202)
            return True
        return False

    return on_post


# The handshake


async def test_connect_initializes_and_tells_what_the_server_said(anyio_backend: Any) -> None:
    script = SSEScript()
    async with ScriptedServer(script) as server:
        options: Any = {"client_info": {"name": "test", "version": "1"}, "capabilities": {"sampling": {}}}
        async with connect(server.url, "sse", "2025-06-18", **options) as client:
            assert isinstance(client, Client)
            assert client.protocol_version == "2025-11-25"
            assert client.server_info == {"name": "scripted", "version": "1"}
            assert client.server_capabilities == {"tools": {}}
            assert client.instructions == "be kind"
            assert client.session_id is None
        first, second = script.posts
        assert first["method"] == "initialize"
        assert first["params"] == {
            "protocolVersion": "2025-06-18",
            "capabilities": {"sampling": {}},
            "clientInfo": {"name": "test", "version": "1"},
        }
        assert second == {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await server.until(lambda: server.open_connections == 0)


async def test_without_a_transport_named_an_sse_server_is_reached(anyio_backend: Any) -> None:
    script = SSEScript()
    async with ScriptedServer(script) as server, connect(server.url) as client:
        assert script.posts[0]["params"]["protocolVersion"] == "2025-11-25"
        assert script.posts[0]["params"]["clientInfo"]["name"] == "mcpfast"
        assert await client.request("x") == {"method": "x", "params": None}


def test_arguments_that_are_wrong_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="'carrier-pigeon'"):
        connect("http://a.test/", "carrier-pigeon")
    with pytest.raises(ValueError, match="url"):
        connect("a.test")
    with pytest.raises(ValueError, match="'2020-01-01' is not known"):
        connect("http://a.test/", protocol_version="2020-01-01")
    with pytest.raises(ValueError, match="needs transport"):
        connect("http://a.test/", handshake=False)


async def test_a_revision_without_handshake_is_refused(anyio_backend: Any) -> None:
    async with ScriptedServer(SSEScript()) as server:
        with pytest.raises(ValueError, match="no initialize"):
            await connect(server.url, "sse", protocol_version="2026-07-28").__aenter__()
        await server.until(lambda: server.open_connections == 0)


@pytest.mark.parametrize(
    "result",
    [None, [], "x", {}, {"protocolVersion": 1}, {"protocolVersion": "1999-01-01"}, {"protocolVersion": "2026-07-28"}],
)
async def test_a_server_that_answers_initialize_with_nonsense_is_refused(anyio_backend: Any, result: Any) -> None:
    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        peer.respond(202)
        script.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return True

    script = SSEScript(on_post=on_post)
    tasks = asyncio.all_tasks()
    async with ScriptedServer(script) as server:
        with pytest.raises(ProtocolError, match=r"protocolVersion|protocol version"):
            await connect(server.url, "sse").__aenter__()
        await server.until(lambda: server.open_connections == 0)
    assert asyncio.all_tasks() == tasks


async def test_what_the_server_says_of_itself_may_be_missing_or_odd(anyio_backend: Any) -> None:
    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        peer.respond(202)
        if message["method"] == "initialize":
            result = {"protocolVersion": "2024-11-05", "serverInfo": 7, "instructions": []}
            script.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return True

    script = SSEScript(on_post=on_post)
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        assert client.protocol_version == "2024-11-05"
        assert (client.server_info, client.server_capabilities, client.instructions) == ({}, {}, None)


async def test_an_error_to_initialize_is_raised_and_leaves_nothing(anyio_backend: Any) -> None:
    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        peer.respond(202)
        script.send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "no"}})
        return True

    script = SSEScript(on_post=on_post)
    async with ScriptedServer(script) as server:
        with pytest.raises(RPCError, match="no"):
            await connect(server.url, "sse").__aenter__()
        await server.until(lambda: server.open_connections == 0)


async def test_initialize_is_never_cancelled(anyio_backend: Any) -> None:
    """L25-C-06, and the same holds for 2024-11-05."""
    script = SSEScript(on_post=silent_to("initialize"))
    async with ScriptedServer(script) as server:
        task = asyncio.ensure_future(connect(server.url, "sse").__aenter__())
        await script.until(lambda: script.posts)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.open_connections == 0)
        assert script.methods() == ["initialize"]


# Calls


async def test_many_calls_at_once_get_each_their_own_answer(anyio_backend: Any) -> None:
    script = SSEScript()
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        answers = await asyncio.gather(*[client.request("x", {"n": n}) for n in range(200)])
        assert [answer["params"]["n"] for answer in answers] == list(range(200))
        ids = [post["id"] for post in script.posts if "id" in post]
        assert len(set(ids)) == len(ids)


async def test_an_error_answer_is_raised_with_code_message_and_data(anyio_backend: Any) -> None:
    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if message.get("method") != "bad":
            return False
        peer.respond(202)
        error = {"code": -32001, "message": "not today", "data": {"why": 1}}
        script.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return True

    script = SSEScript(on_post=on_post)
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        with pytest.raises(RPCError) as caught:
            await client.request("bad")
        assert (caught.value.code, caught.value.message, caught.value.data) == (-32001, "not today", {"why": 1})
        assert await client.request("good") is not None


async def test_http_refusals_reach_their_call_at_once_and_the_session_goes_on(anyio_backend: Any) -> None:
    """C031"""

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        answers = {
            "500": lambda: peer.respond(500, b"boom", content_type="text/plain"),
            "403": lambda: peer.respond(403),
            "400": lambda: peer.respond(
                400,
                json.dumps(
                    {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32600, "message": "m"}}
                ).encode(),
            ),
            "404 null": lambda: peer.respond(
                404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"gone"}}'
            ),
            "400 other": lambda: peer.respond(
                400, b'{"jsonrpc":"2.0","id":"other","error":{"code":-32001,"message":"x"}}'
            ),
            "reset": peer.abort,
            "notifications/bad": lambda: peer.respond(500),
        }
        answer = answers.get(message.get("method"))
        if answer is not None:
            answer()
        return answer is not None

    async with ScriptedServer(SSEScript(on_post=on_post)) as server, connect(server.url, "sse") as client:
        expected: list[tuple[str, type[Exception], str]] = [
            ("500", HTTPStatusError, "status 500: boom"),
            ("403", AuthorizationRequired, "status 403"),
            ("400", RPCError, "m"),
            ("404 null", RPCError, "gone"),
            ("400 other", HTTPStatusError, "status 400"),
            ("reset", ConnectionError, "lost"),
        ]
        for method, kind, text in expected:
            with pytest.raises(kind, match=text) as caught:
                await client.request(method, timeout=WAIT_S)
            assert type(caught.value) is kind
        with pytest.raises(HTTPStatusError):
            await client.notify("notifications/bad")
        assert await client.request("ping") is not None


async def test_a_call_has_a_time_limit_which_is_named_and_the_server_is_told(anyio_backend: Any) -> None:
    script = SSEScript(on_post=silent_to("slow"))
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        with pytest.raises(RequestTimeout, match=r"'slow' was not answered within 0\.2 s") as caught:
            await client.request("slow", timeout=0.2)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.seconds == 0.2
        await script.until(lambda: "notifications/cancelled" in script.methods())
        assert script.posts[-1]["params"]["requestId"] == script.posts[-2]["id"]
        assert await client.request("x") is not None
        for wrong in (0, -1, float("nan")):
            with pytest.raises(ValueError, match="timeout"):
                await client.request("x", timeout=wrong)


async def test_a_cancelled_call_tells_the_server_and_a_late_answer_is_dropped(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    script = SSEScript(on_post=silent_to("slow"))
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        task = asyncio.ensure_future(client.request("slow"))
        await script.until(lambda: "slow" in script.methods())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await script.until(lambda: "notifications/cancelled" in script.methods())
        script.answer(next(post for post in script.posts if post["method"] == "slow"))
        assert await client.request("x") == {"method": "x", "params": None}
        assert caplog.records == []


@pytest.mark.parametrize("turns", range(10))
async def test_cancelling_a_call_at_any_await_leaves_nothing(anyio_backend: Any, turns: int) -> None:
    async with ScriptedServer(SSEScript()) as server, connect(server.url, "sse") as client:
        task = asyncio.ensure_future(client.request("x"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        assert client._session._calls == {}
        assert await client.request("y") == {"method": "y", "params": None}


async def test_an_answer_that_overtakes_the_answer_to_its_post_ends_the_call(anyio_backend: Any) -> None:
    answered = asyncio.Event()

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if message.get("method") != "x":
            return False
        script.answer(message)
        await answered.wait()
        peer.respond(202)
        return True

    script = SSEScript(on_post=on_post)
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        assert await asyncio.wait_for(client.request("x"), WAIT_S) is not None
        answered.set()
        assert await client.request("y") is not None


async def test_an_id_of_the_wrong_type_fails_the_call_at_once(anyio_backend: Any) -> None:
    """C054: 7 and "7" are two ids, and the call must not wait for ever for the right one."""

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if message.get("method") != "x":
            return False
        peer.respond(202)
        script.send({"jsonrpc": "2.0", "id": str(message["id"]), "result": {}})
        return True

    script = SSEScript(on_post=on_post)
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        with pytest.raises(ProtocolError, match="id as a string"):
            await asyncio.wait_for(client.request("x"), WAIT_S)


@pytest.mark.parametrize("wrong", [True, 1.0, 999, "abc", None, -1, "٣", "9" * 5000])
async def test_answers_with_other_ids_settle_no_call(anyio_backend: Any, wrong: Any) -> None:
    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if message.get("method") == "x":
            script.send({"jsonrpc": "2.0", "id": wrong, "result": "wrong"})
            script.send({"jsonrpc": "2.0", "id": wrong, "error": {"code": 1, "message": "wrong"}})
        return False

    script = SSEScript(on_post=on_post)
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        assert await client.request("x") == {"method": "x", "params": None}


async def test_a_second_answer_is_dropped(anyio_backend: Any) -> None:
    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if message.get("method") == "x":
            peer.respond(202)
            script.answer(message)
            script.send({"jsonrpc": "2.0", "id": message["id"], "result": "second"})
            script.send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": 1, "message": "third"}})
            return True
        return False

    script = SSEScript(on_post=on_post)
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        for _ in range(3):
            assert await client.request("x") == {"method": "x", "params": None}


async def test_an_answer_that_is_malformed_fails_its_call(anyio_backend: Any) -> None:
    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if message.get("method") == "x":
            script.send({"jsonrpc": "2.0", "id": message["id"], "error": "text"})
            peer.respond(202)
            return True
        return False

    script = SSEScript(on_post=on_post)
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        with pytest.raises(ProtocolError, match="error"):
            await asyncio.wait_for(client.request("x"), WAIT_S)


async def test_a_bad_message_is_logged_once_without_its_text(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A15"""
    caplog.set_level(logging.WARNING)
    script = SSEScript()
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        script.send_raw(b"data: {secret\n\n")
        assert await client.request("x") is not None
        assert len(caplog.records) == 1
        assert "secret" not in caplog.text


async def test_headers_may_be_given_for_one_call(anyio_backend: Any) -> None:
    async with ScriptedServer(SSEScript()) as server, connect(server.url, "sse", headers={"X-A": "all"}) as client:
        await client.request("x", headers={"X-A": "one", "X-B": "b"})
        await client.notify("notifications/y", headers={"X-B": "c"})
        await client.request("z")
        assert [(r.header("x-a"), r.header("x-b")) for r in server.requests[-3:]] == [
            ("one", "b"),
            ("all", "c"),
            ("all", None),
        ]
        with pytest.raises(ValueError, match="header"):
            await client.request("x", headers={"X-A": "a\r\nb"})


async def test_arguments_that_cannot_be_json_are_refused_unsent(anyio_backend: Any) -> None:
    script = SSEScript()
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        sent = len(script.posts)
        with pytest.raises(ProtocolError):
            await client.request("x", {"a": object()})
        with pytest.raises(ProtocolError):
            await client.notify("x", {"a": object()})
        assert len(script.posts) == sent
        assert client._session._calls == {}


# Progress


async def test_progress_reaches_its_call_in_order(anyio_backend: Any) -> None:
    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if message.get("method") == "x":
            token = message["params"]["_meta"]["progressToken"]
            for params in (
                {"progressToken": token, "progress": 1, "total": 4, "message": "one"},
                {"progressToken": token, "progress": 2.5},
                {"progressToken": token, "progress": "three"},
                {"progressToken": "other", "progress": 9},
                {"progressToken": float(token), "progress": 9},
                {"progressToken": token, "progress": 4, "total": 4},
            ):
                script.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        return False

    script = SSEScript(on_post=on_post)
    seen: list[Any] = []
    slow: list[Any] = []

    async def later(*progress: Any) -> None:
        await asyncio.sleep(0)
        slow.append(progress)

    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        params = {"a": 1, "_meta": {"k": 2}}
        await client.request("x", params, on_progress=lambda *progress: seen.append(progress))
        assert seen == [(1, 4, "one"), (2.5, None, None), (4, 4, None)]
        assert params == {"a": 1, "_meta": {"k": 2}}
        sent = script.posts[-1]["params"]
        assert (sent["a"], sent["_meta"]["k"]) == (1, 2)
        await client.request("x", on_progress=later)
        await until(lambda: len(slow) == len(seen))
        assert slow == seen
        with pytest.raises(ProtocolError, match="object"):
            await client.request("x", [1], on_progress=later)


# Notifications


async def test_notifications_reach_plain_and_async_handlers_in_order(anyio_backend: Any) -> None:
    script = SSEScript()
    seen: list[Any] = []

    async def later(notification: Notification) -> None:
        await asyncio.sleep(0)
        seen.append(notification.method)
        if notification.method == "n1":
            raise RuntimeError("handler's own trouble")

    def plain(notification: Notification) -> None:
        seen.append(notification)
        raise RuntimeError("handler's own trouble")

    async with ScriptedServer(script) as server, connect(server.url, "sse", on_notification=plain) as client:
        script.send({"jsonrpc": "2.0", "method": "early", "params": {"a": 1}})
        assert await client.request("x") is not None
        assert seen == [Notification("early", {"a": 1})]
        seen.clear()
        client.on_notification(later)
        for number in range(5):
            script.send({"jsonrpc": "2.0", "method": f"n{number}"})
        await client.request("x")
        for _ in range(20):
            await asyncio.sleep(0)
        assert seen == [f"n{number}" for number in range(5)]
        client.on_notification(None)
        script.send({"jsonrpc": "2.0", "method": "dropped"})
        await client.request("x")
        assert len(seen) == 5


async def test_a_slow_handler_holds_the_server_back_but_never_an_answer(
    anyio_backend: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handlers_module, "MAX_WAITING", 10)
    script = SSEScript()
    go_on = asyncio.Event()
    seen = 0

    async def slow(notification: Notification) -> None:
        nonlocal seen
        await go_on.wait()
        seen += 1

    async with ScriptedServer(script) as server, connect(server.url, "sse", on_notification=slow) as client:
        for _ in range(12):
            script.send({"jsonrpc": "2.0", "method": "n"})
        await until(lambda: client._session._is_paused)
        # Not reading, yet a call gets through: it reads on while it waits.
        assert await asyncio.wait_for(client.request("x"), WAIT_S) is not None
        await until(lambda: client._session._is_paused)
        # A flood in front of the answer: what is too much is dropped, and said so.
        asking = asyncio.ensure_future(client.request("y"))
        for _ in range(100):
            script.send({"jsonrpc": "2.0", "method": "n"})
        assert await asyncio.wait_for(asking, WAIT_S) is not None
        assert len(client._session._queue._waiting) <= 20
        go_on.set()
        await until(lambda: not client._session._is_paused and not client._session._queue.tasks)
        assert 12 < seen <= 112


async def test_a_handler_may_call_the_server(anyio_backend: Any) -> None:
    script = SSEScript()
    answers: list[Any] = []
    done = asyncio.Event()

    async def handler(notification: Notification) -> None:
        answers.append(await client.request("from the handler"))
        done.set()

    async with ScriptedServer(script) as server, connect(server.url, "sse", on_notification=handler) as client:
        script.send({"jsonrpc": "2.0", "method": "n"})
        await asyncio.wait_for(done.wait(), WAIT_S)
        assert answers == [{"method": "from the handler", "params": None}]


# The server's requests


def answers_of(script: SSEScript) -> dict[Any, Any]:
    return {post["id"]: post.get("result", post.get("error")) for post in script.posts if "method" not in post}


async def test_the_servers_requests_are_answered(anyio_backend: Any) -> None:
    script = SSEScript()

    async def handler(request: Request) -> Any:
        await asyncio.sleep(0)
        if request.method == "roots/list":
            return {"roots": [], "params": request.params}
        if request.method == "own/error":
            raise RPCError(-1, "user said no", {"k": 1})
        if request.method == "own/odd":
            return object()
        raise RuntimeError("secret")

    async with ScriptedServer(script) as server, connect(server.url, "sse", on_request=handler) as client:
        for number, method in enumerate(("roots/list", "own/error", "own/bug", "own/odd", "ping")):
            script.send({"jsonrpc": "2.0", "id": f"s{number}", "method": method, "params": {"a": 1}})
        script.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        await script.until(lambda: len(answers_of(script)) == 6)
        got = answers_of(script)
        assert got["s0"] == {"roots": [], "params": {"a": 1}}
        assert got["s1"] == {"code": -1, "message": "user said no", "data": {"k": 1}}
        assert got["s2"]["code"] == got["s3"]["code"] == -32603
        assert "secret" not in json.dumps(got)
        assert got["s4"] == got[1] == {}
        client.on_request(lambda request: {"plain": True})
        script.send({"jsonrpc": "2.0", "id": 2, "method": "x"})
        await script.until(lambda: 2 in answers_of(script))
        assert answers_of(script)[2] == {"plain": True}


async def test_requests_nobody_handles_are_refused_politely(anyio_backend: Any) -> None:
    script = SSEScript()
    async with ScriptedServer(script) as server, connect(server.url, "sse"):
        script.send({"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage"})
        await script.until(lambda: 5 in answers_of(script))
        assert answers_of(script)[5]["code"] == -32601


async def test_a_request_the_server_cancels_is_cancelled_and_not_answered(anyio_backend: Any) -> None:
    script = SSEScript()
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with ScriptedServer(script) as server, connect(server.url, "sse", on_request=handler) as client:
        script.send({"jsonrpc": "2.0", "id": 1, "method": "slow"})
        await asyncio.wait_for(started.wait(), WAIT_S)
        for wrong in (True, 1.0, "1", None, [1]):
            params = {"requestId": wrong}
            script.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        await client.request("x")
        assert not cancelled.is_set()
        script.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        await asyncio.wait_for(cancelled.wait(), WAIT_S)
        await client.request("x")
        assert answers_of(script) == {}


async def test_requests_cancelled_before_their_handler_begins_take_no_room(
    anyio_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is cancelled before its first step never runs what it would do at its end."""
    monkeypatch.setattr(session_module, "MAX_SERVER_REQUESTS", 2)
    script = SSEScript()
    async with ScriptedServer(script) as server, connect(server.url, "sse", on_request=lambda request: {}) as client:
        request = b'data: {"jsonrpc":"2.0","id":1,"method":"x"}\n\n'
        cancel = b'data: {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n\n'
        for number in range(3):
            # In one piece, so that both are read before any task has a turn.
            script.send_raw((request + cancel).replace(b"1,", b"%d," % number).replace(b":1}", b":%d}" % number))
            await client.request("x")
        script.send({"jsonrpc": "2.0", "id": 9, "method": "x"})
        await script.until(lambda: answers_of(script) == {9: {}})


async def test_a_flood_of_requests_is_bounded(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_SERVER_REQUESTS", 5)
    script = SSEScript()
    go_on = asyncio.Event()
    most = running = 0

    async def handler(request: Request) -> Any:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1
        return {}

    async with ScriptedServer(script) as server, connect(server.url, "sse", on_request=handler):
        for number in range(50):
            script.send({"jsonrpc": "2.0", "id": number, "method": "slow"})
        script.send({"jsonrpc": "2.0", "id": 0, "method": "slow"})  # a second one with this id
        await script.until(lambda: len([p for p in script.posts if "error" in p]) == 46)
        go_on.set()
        await script.until(lambda: len(answers_of(script)) == 50)
        assert most == 5


async def test_answers_that_pile_up_hold_the_server_back(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_ANSWERS", 10)
    hold = asyncio.Event()

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if "method" not in message:
            await hold.wait()
        return False

    script = SSEScript(on_post=on_post)
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        for number in range(200):
            script.send({"jsonrpc": "2.0", "id": number, "method": "ping"})
            if number % 5 == 0:
                await asyncio.sleep(0.002)
        assert client._session._is_paused
        assert len(client._session._answers) < 100
        hold.set()
        await script.until(lambda: len(answers_of(script)) == 200)
        assert await client.request("x") is not None


# The end


async def test_a_call_is_told_that_it_was_the_server_who_ended_the_stream(anyio_backend: Any) -> None:
    """A clean end has no cause, but it is not the client who is closed."""
    script = SSEScript(on_post=silent_to("slow"))
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        asking = asyncio.ensure_future(client.request("slow"))
        await script.until(lambda: "slow" in script.methods())
        script.streams[0].end_stream()
        with pytest.raises(TransportClosed, match="connection ended: the server closed it"):
            await asyncio.wait_for(asking, WAIT_S)
        with pytest.raises(TransportClosed, match="connection ended: the server closed it"):
            await client.request("x")


async def test_the_end_of_the_stream_fails_what_waits_with_its_cause(anyio_backend: Any) -> None:
    """H24-C-03"""
    script = SSEScript(on_post=silent_to("slow"))
    async with ScriptedServer(script) as server, connect(server.url, "sse") as client:
        waiting = asyncio.gather(*[client.request("slow") for _ in range(3)], return_exceptions=True)
        await script.until(lambda: script.methods().count("slow") == 3)
        script.streams[0].abort()
        for error in await asyncio.wait_for(waiting, WAIT_S):
            assert isinstance(error, TransportClosed)
            assert isinstance(error.__cause__, ConnectionError)
        with pytest.raises(TransportClosed, match="lost"):
            await client.request("x")
        with pytest.raises(TransportClosed, match="lost"):
            await client.notify("x")
        await server.until(lambda: server.open_connections == 0)


async def test_a_gigantic_event_ends_the_session_and_names_the_limit(anyio_backend: Any) -> None:
    script = SSEScript(on_post=silent_to("big"))
    async with ScriptedServer(script) as server, connect(server.url, "sse", max_event_bytes=10_000) as client:
        asking = asyncio.ensure_future(client.request("big"))
        await script.until(lambda: "big" in script.methods())
        script.send_raw(b"data: " + b"x" * 20_000)
        with pytest.raises(TransportClosed, match="limit is 10000") as caught:
            await asyncio.wait_for(asking, WAIT_S)
        assert isinstance(caught.value.__cause__, EventTooLarge)


async def test_closing_fails_what_waits_and_stops_handlers(anyio_backend: Any) -> None:
    script = SSEScript(on_post=silent_to("slow"))
    stopped = 0

    async def forever(_: Any) -> None:
        nonlocal stopped
        try:
            await asyncio.Event().wait()
        finally:
            stopped += 1

    tasks = asyncio.all_tasks()
    async with ScriptedServer(script) as server:
        client = await connect(server.url, "sse", on_notification=forever, on_request=forever).__aenter__()
        asking = asyncio.ensure_future(client.request("slow"))
        script.send({"jsonrpc": "2.0", "method": "n"})
        script.send({"jsonrpc": "2.0", "id": 1, "method": "r"})
        await client.request("x")
        await client.close()
        with pytest.raises(TransportClosed, match="client is closed"):
            await asking
        await client.close()
        assert stopped == 2
        with pytest.raises(TransportClosed):
            await client.request("x")
        await server.until(lambda: server.open_connections == 0)
    assert asyncio.all_tasks() == tasks


async def test_a_handler_may_close_the_client(anyio_backend: Any) -> None:
    script = SSEScript()
    closed = asyncio.Event()

    async def handler(_: Any) -> None:
        await client.close()
        closed.set()

    for kind in ("on_notification", "on_request"):
        closed.clear()
        options: Any = {kind: handler}
        async with ScriptedServer(script) as server, connect(server.url, "sse", **options) as client:
            script.send({"jsonrpc": "2.0", "method": "n"} | ({"id": 1} if kind == "on_request" else {}))
            await asyncio.wait_for(closed.wait(), WAIT_S)
            await server.until(lambda server=server: server.open_connections == 0)


def test_initialized_is_what_the_scripted_server_says() -> None:
    assert INITIALIZED["protocolVersion"] == "2025-11-25"
