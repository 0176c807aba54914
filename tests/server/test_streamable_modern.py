"""One exchange of 2026-07-28 through the handler."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest

from mcpfast.server.load import PROCESS
from mcpfast.server.streamable import StreamableHTTPHandler
from tests.server.streamable_peer import MODERN, Answer, Gates, Peer, error_of, make_server, modern_meta, note

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]


def peer(gates: Gates | None = None, **options: Any) -> Peer:
    server = make_server(gates)
    return Peer(StreamableHTTPHandler(lambda request: server, **options))


async def result(answer: Answer) -> Any:
    (message,) = await answer.messages()
    assert answer.status == 200
    return message["result"]


async def test_a_request_is_answered_by_one_json_object() -> None:
    """M26-S-01, M26-S-11, M26-S-12, M26-S-48, M26-S-49."""
    answer = await peer().modern("tools/call", {"name": "echo", "arguments": {"a": "\u65e5"}}, "seven").ended()
    assert (answer.status, answer.content_type) == (200, "application/json")
    message = answer.json()
    assert message["id"] == "seven"
    assert message["result"] == {
        "resultType": "complete",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "test", "version": "1"}},
        "echo": {"a": "\u65e5"},
        "name": "echo",
    }
    assert "mcp-session-id" not in answer.exchange.headers


async def test_discovery_names_the_revisions_and_capabilities() -> None:
    """M26-S-51."""
    found = await result(peer().modern("server/discover"))
    assert found["supportedVersions"][0] == MODERN
    assert found["capabilities"] == {"tools": {"listChanged": True}}
    assert (found["resultType"], found["ttlMs"], found["cacheScope"]) == ("complete", 0, "private")


async def test_what_is_said_before_the_answer_makes_it_a_stream() -> None:
    """M26-S-11, M26-S-13, M26-S-15, M26-S-16."""
    answer = peer().modern("say", {"count": 2}, 5)
    messages = await answer.messages()
    assert answer.is_stream
    assert answer.exchange.headers["x-accel-buffering"] == "no"
    assert [m.get("method") for m in messages] == ["notifications/said", "notifications/said", None]
    assert messages[-1]["id"] == 5
    assert messages[-1]["result"]["said"] == 2


async def test_its_events_have_no_ids_and_last_event_id_has_no_effect() -> None:
    """M26-S-18, M26-S-61."""
    answer = peer().modern("say", {"count": 1}, last_event_id="t-1-0", mcp_session_id="some")
    await answer.ended()
    event = await answer.next_event()
    assert event is not None
    assert event.id == ""
    assert b"id:" not in answer.exchange.body
    assert "mcp-session-id" not in answer.exchange.headers


async def test_an_answer_that_takes_long_becomes_a_stream_and_is_kept_alive() -> None:
    """M26-S-17, C034."""
    gates = Gates()
    answer = peer(gates, stream_after_s=0.01, keepalive_s=0.1).modern("wait")
    await gates.until("entered gate")
    await answer.started()
    assert answer.is_stream
    await answer.exchange.until(lambda: answer.exchange.body.count(b":") >= 3)
    assert answer.exchange.body.startswith(b":")
    gates.open("gate")
    assert (await answer.messages())[0]["result"]["waited"] == "gate"


@pytest.mark.parametrize("responses", ["auto", "json", "sse"])
async def test_the_form_of_answers_can_be_set(responses: str) -> None:
    server = peer(responses=responses)
    assert (await server.modern("tools/list").ended()).is_stream is (responses == "sse")
    said = server.modern("say", {"count": 2})
    messages = await said.messages()
    assert said.is_stream is (responses != "json")
    assert len(messages) == (1 if responses == "json" else 3)


async def test_a_client_that_takes_json_only_gets_the_answer_alone() -> None:
    said = peer().modern("say", {"count": 2}, accept="application/json")
    assert [m["result"]["said"] for m in await said.messages()] == [2]
    assert not said.is_stream


async def test_a_client_that_takes_streams_only_gets_one_but_errors_with_a_status_are_json() -> None:
    """M26-S-45."""
    server = peer()
    assert (await server.modern("tools/list", accept="text/event-stream").ended()).is_stream
    assert error_of(await server.modern("no/such", accept="text/event-stream").ended())[:2] == (404, -32601)


@pytest.mark.parametrize("method", ["no/such", "initialize", "ping", "logging/setLevel", "resources/subscribe"])
async def test_unknown_and_removed_methods_get_404(method: str) -> None:
    """M26-S-45, C059 (h)."""
    server = make_server()
    if method not in ("initialize", "ping"):
        server.method("logging/setLevel")(lambda ctx, params: {})
    answer = await Peer(StreamableHTTPHandler(lambda request: server)).modern(method, id=3).ended()
    assert error_of(answer) == (404, -32601, 3)


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({}, 200, -32603),
        ({"code": -32602}, 400, -32602),
        ({"code": -32601}, 404, -32601),
        ({"code": -32000}, 200, -32000),
        ({"code": 7}, 200, 7),
        ({"code": -32002}, 400, -32602),
        ({"code": -32050}, 200, -32603),
    ],
)
async def test_what_a_handler_raises_has_its_status(
    params: Any, status: int, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """M26-S-12, M26-S-46, M26-S-47."""
    answer = await peer().modern("fail", params, "x").ended()
    assert error_of(answer) == (status, code, "x")
    assert b"secret" not in answer.exchange.body


async def test_an_undeclared_capability_is_named() -> None:
    """M26-S-44: the application says so, the transport gives it the status."""
    data = {"requiredCapabilities": {"sampling": {}}}
    answer = await peer().modern("fail", {"code": -32021, "data": data}).ended()
    assert error_of(answer)[:2] == (400, -32021)
    assert answer.json()["error"]["data"] == data


async def test_an_error_after_something_was_said_is_the_last_event() -> None:
    server = make_server()

    @server.method("half")
    async def half(ctx: Any, params: Any) -> Any:
        await ctx.notify("notifications/x")
        raise ValueError("secret")

    messages = await Peer(StreamableHTTPHandler(lambda request: server)).modern("half", id=4).messages()
    assert [m.get("method") for m in messages] == ["notifications/x", None]
    assert (messages[-1]["id"], messages[-1]["error"]["code"]) == (4, -32603)


# Headers against the body


@pytest.mark.parametrize(
    ("headers", "drop"),
    [
        ({"mcp_name": "other"}, ()),
        ({}, ("mcp-name",)),
        ({}, ("mcp-method",)),
        ({"mcp_method": "TOOLS/CALL"}, ()),
        ({"mcp_protocol_version": "2025-11-25"}, ()),
        ({}, ("mcp-protocol-version",)),
        ({"mcp_name": "=?BASE64?5pel5pys?="}, ()),
        ({"mcp_name": "\u65e5\u672c".encode().decode("latin-1")}, ()),
    ],
)
async def test_headers_that_differ_from_the_body_are_refused(headers: Any, drop: tuple[str, ...]) -> None:
    """M26-S-28, M26-S-31, M26-S-32, M26-S-33, M26-S-34, M26-S-35, M26-S-36, M26-S-41, C057, C059 (b) to (g)."""
    good = {"mcp_name": "=?base64?5pel5pys?="}
    call = {"name": "\u65e5\u672c", "arguments": {}}
    answer = await peer().modern("tools/call", call, 9, drop, **{**good, **headers}).ended()
    assert error_of(answer) == (400, -32020, 9)


async def test_good_headers_in_any_case_and_with_white_space_around_are_taken() -> None:
    """M26-S-34, M26-S-36, M26-S-37, C059 (a)."""
    client = peer()
    client.headers = {"MCP-NAME": " =?base64?5pel5pys?= "}
    answer = client.modern("tools/call", {"name": "\u65e5\u672c"}, drop=("mcp-name",))
    assert (await result(answer))["name"] == "\u65e5\u672c"


async def test_a_header_that_came_twice_is_refused() -> None:
    """M26-S-42."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": modern_meta()}}).encode()
    fields = [(b"content-type", b"application/json"), (b"mcp-protocol-version", MODERN.encode())]
    fields += [(b"mcp-method", b"tools/list")] * 2
    answer = Answer(peer().shell.request("POST", "/mcp", fields, body))
    assert error_of(await answer.ended()) == (400, -32020, 1)


async def test_a_version_that_is_not_served_gets_the_list() -> None:
    """M26-S-29."""
    meta = modern_meta() | {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    answer = await peer().modern("tools/list", {"_meta": meta}, 1, mcp_protocol_version="2031-01-01").ended()
    assert error_of(answer) == (400, -32022, 1)
    data = answer.json()["error"]["data"]
    assert (data["requested"], data["supported"][0]) == ("2031-01-01", MODERN)


async def test_a_request_without_its_meta_is_refused() -> None:
    """M26-S-43."""
    assert error_of(await peer().modern("tools/list", {"_meta": {}}, 1).ended()) == (400, -32602, 1)


SCHEMA = {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


@pytest.mark.parametrize(
    ("arguments", "headers", "is_good"),
    [
        ({"region": "eu"}, {"mcp_param_region": "eu"}, True),
        ({}, {}, True),
        (None, {}, True),
        ({"region": "eu"}, {}, False),
        ({"region": "eu"}, {"mcp_param_region": "us"}, False),
        ({}, {"mcp_param_region": "eu"}, False),
    ],
)
async def test_param_headers_are_held_against_the_tools_schema(arguments: Any, headers: Any, is_good: bool) -> None:
    """M26-S-38, M26-S-39, M26-S-40."""
    client = peer(tool_input_schema={"echo": SCHEMA}.get)
    answer = await client.modern("tools/call", {"name": "echo", "arguments": arguments}, 1, **headers).ended()
    assert answer.status == (200 if is_good else 400)
    if not is_good:
        assert error_of(answer) == (400, -32020, 1)
    other = await client.modern("tools/call", {"name": "other", "arguments": arguments}, 2, **headers).ended()
    assert other.status == 200, "a tool without a schema has no recognised headers"


async def test_a_schema_hook_that_fails_refuses_the_call(caplog: pytest.LogCaptureFixture) -> None:
    def fails(name: str) -> Any:
        raise KeyError("secret")

    answer = await peer(tool_input_schema=fails).modern("tools/call", {"name": "x"}).ended()
    assert answer.status == 500
    assert b"secret" not in answer.exchange.body


# What else may arrive


async def test_notifications_are_taken_and_do_nothing() -> None:
    """M26-S-07."""
    gates = Gates()
    client = peer(gates)
    running = client.modern("wait", id=1)
    await gates.until("entered gate")
    cancel = await client.fetch("POST", note("notifications/cancelled", {"requestId": 1}), mcp_protocol_version=MODERN)
    assert (cancel.status, cancel.exchange.body) == (202, b"")
    gates.open("gate")
    assert (await result(running))["waited"] == "gate"


async def test_notifications_of_a_version_that_is_not_served_are_refused() -> None:
    """M26-S-08."""
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}}
    answer = await peer().fetch("POST", note("notifications/x", meta), mcp_protocol_version="2031-01-01")
    assert error_of(answer) == (400, -32022, None)


@pytest.mark.parametrize(
    "body",
    [
        [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}],
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": None, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": True, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"},
        {"jsonrpc": "1.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1, "method": 5},
        {},
        5,
        [],
    ],
)
async def test_what_is_no_request_or_notification_is_refused(body: Any) -> None:
    """M26-S-06, M26-S-10."""
    answer = await peer().fetch("POST", body, mcp_protocol_version=MODERN)
    assert error_of(answer)[:2] == (400, -32600)


@pytest.mark.parametrize("body", [b"", b"{", b"nul", b'{"a":"\x97"}', b"[" * 100_000])
async def test_bytes_that_are_not_json_are_refused(body: bytes) -> None:
    """M26-S-06, M26-S-09, C058."""
    answer = await peer().fetch("POST", body, mcp_protocol_version=MODERN)
    assert error_of(answer) == (400, -32700, None)


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD"])
async def test_post_is_all_there_is(method: str) -> None:
    """M26-S-61."""
    answer = await peer().fetch(method, mcp_protocol_version=MODERN)
    assert (answer.status, answer.exchange.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("id", ["1", 1, "", "007", "a\u00e9", 0, -1, 9007199254740993])
async def test_ids_come_back_as_they_were(id: Any) -> None:
    """C054, M26-S-12."""
    (message,) = await peer().modern("tools/list", id=id).messages()
    assert (message["id"], type(message["id"])) == (id, type(id))


async def test_two_requests_with_one_id_are_two_requests() -> None:
    """C052, M26-S-49, M26-S-50."""
    gates = Gates()
    client = peer(gates)
    first, second = client.modern("wait", {"gate": "a"}, 1), client.modern("wait", {"gate": "b"}, 1)
    await gates.until("entered b")
    gates.open("b")
    assert (await result(second))["waited"] == "b"
    gates.open("a")
    assert (await result(first))["waited"] == "a"


async def test_each_request_says_itself_who_sends_it() -> None:
    """M26-S-49."""
    client = peer()
    info = {"name": "one", "version": "1"}
    meta = modern_meta() | {"io.modelcontextprotocol/clientInfo": info}
    meta["io.modelcontextprotocol/clientCapabilities"] = {"sampling": {}}
    found = await result(client.modern("who", {"_meta": meta}))
    assert (found["client"], found["capabilities"], found["version"]) == (info, {"sampling": {}}, MODERN)
    found = await result(client.modern("who"))
    assert (found["client"], found["capabilities"], found["session"]) == ({}, {}, False)


# Cancellation


@pytest.mark.parametrize("form", ["application/json", "application/json, text/event-stream", "text/event-stream"])
async def test_a_client_that_leaves_has_cancelled(form: str) -> None:
    """M26-S-22, M26-S-23, M26-S-24, M26-S-25: in whatever form it would have been answered."""
    gates = Gates()
    client = peer(gates)
    answer = client.modern("wait", accept=form)
    await gates.until("entered gate")
    answer.leave()
    await gates.until("cancelled gate")
    await answer.ended()
    assert answer.exchange.body == b""


async def test_a_client_that_leaves_a_stream_has_cancelled() -> None:
    """M26-S-22, M26-S-25, M26-S-27: nothing is said to it any more, also not that it was cancelled."""
    gates = Gates()
    server = peer(gates)
    answer = server.modern("say", {"count": 5, "gate": "g"})
    assert (await answer.next_message())["params"] == {"number": 0}
    answer.leave()
    await gates.until("cancelled g0")
    await answer.ended()
    assert await answer.next_event() is None


async def test_a_client_that_leaves_after_the_answer_changes_nothing() -> None:
    """M26-S-26."""
    answer = await peer().modern("tools/list").ended()
    answer.leave()
    assert answer.status == 200


async def test_a_thread_is_told_that_its_client_left() -> None:
    """M26-S-24."""
    server = make_server()
    loop = asyncio.get_running_loop()
    entered, seen = asyncio.Event(), asyncio.Event()

    @server.method("block")
    def block(ctx: Any, params: Any) -> Any:
        loop.call_soon_threadsafe(entered.set)
        while not ctx.is_cancelled:
            time.sleep(0.001)  # a poll, not a wait for something to happen in time
        loop.call_soon_threadsafe(seen.set)
        return {}

    answer = Peer(StreamableHTTPHandler(lambda request: server)).modern("block")
    await asyncio.wait_for(entered.wait(), 5)
    answer.leave()
    await asyncio.wait_for(seen.wait(), 5)


async def test_a_handler_that_awaits_something_cancelled_still_answers() -> None:
    server = make_server()

    @server.method("trip")
    async def trip(ctx: Any, params: Any) -> Any:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    answer = await Peer(StreamableHTTPHandler(lambda request: server)).modern("trip", id=1).ended()
    assert error_of(answer)[1:] == (-32603, 1)


async def test_a_client_that_leaves_in_the_same_turn_leaves_nothing_behind() -> None:
    """M26-S-24: before its handler has run at all."""
    gates = Gates()
    before = PROCESS.in_flight
    answer = peer(gates).modern("wait")
    answer.leave()
    await answer.ended()
    assert (PROCESS.in_flight, gates.entered) == (before, [])


# What the revision does not have


async def test_requests_to_the_client_and_polling_are_refused_to_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    """M26-S-14."""
    with caplog.at_level(logging.CRITICAL):
        for method in ("ask", "poll"):
            messages = await peer().modern(method).messages()
            assert messages[-1]["error"]["code"] == -32603
            assert all("id" not in m for m in messages[:-1])


async def test_what_is_said_after_the_answer_is_refused() -> None:
    """M26-S-13, M26-S-15, M26-S-19, M26-S-21."""
    server = make_server()
    late: list[Any] = []

    @server.method("keep")
    async def keep(ctx: Any, params: Any) -> Any:
        late.append(ctx)
        return {}

    meta = modern_meta() | {"progressToken": 1}
    answer = await Peer(StreamableHTTPHandler(lambda request: server)).modern("keep", {"_meta": meta}).ended()
    body = answer.exchange.body
    await late[0].progress(1)
    from mcpfast import TransportClosed

    with pytest.raises(TransportClosed):
        await late[0].notify("notifications/message", {})
    assert answer.exchange.body == body


async def test_progress_and_logging_stay_on_their_own_requests_stream() -> None:
    """M26-S-19."""
    gates = Gates()
    client = peer(gates)
    one, two = client.modern("say", {"count": 1, "gate": "a"}), client.modern("say", {"count": 1, "gate": "b"})
    await gates.until("entered b0")
    gates.open("a0")
    gates.open("b0")
    assert len(await one.messages()) == len(await two.messages()) == 2


# Limits


async def test_requests_over_the_limit_are_refused() -> None:
    gates = Gates()
    client = peer(gates, max_in_flight_total=PROCESS.in_flight + 1)
    running = client.modern("wait")
    await gates.until("entered gate")
    refused = await client.modern("tools/list", id=5).ended()
    assert error_of(refused) == (503, -32603, 5)
    gates.open("gate")
    await running.ended()
    assert (await client.modern("tools/list").ended()).status == 200


async def test_a_stopping_server_refuses_new_requests() -> None:
    server = make_server()
    handler = StreamableHTTPHandler(lambda request: server)
    await handler.drain()
    assert (await Peer(handler).modern("tools/list").ended()).status == 503


@pytest.mark.parametrize("answer", [None, "async none"])
async def test_get_server_may_have_no_server(answer: Any) -> None:
    async def later(request: Any) -> None:
        return None

    handler = StreamableHTTPHandler(later if answer else lambda request: None, no_server_status=410)
    assert (await Peer(handler).modern("tools/list").ended()).status == 410


async def test_get_server_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    def fails(request: Any) -> Any:
        raise RuntimeError("secret")

    async def fails_later(request: Any) -> Any:
        raise RuntimeError("secret")

    for get_server in (fails, fails_later, lambda request: "no server"):
        answer = await Peer(StreamableHTTPHandler(get_server)).modern("tools/list").ended()
        assert answer.status == 500
        assert b"secret" not in answer.exchange.body
