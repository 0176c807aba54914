"""Sessions of 2025-03-26 to 2025-11-25 through the handler: their life, and what POST brings and gets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcpfast.server import Principal
from mcpfast.server.load import PROCESS
from mcpfast.server.streamable import StreamableHTTPHandler
from tests.server.streamable_peer import BOTH, Answer, Gates, Peer, error_of, initialize, make_server, note

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]

VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]


def peer(gates: Gates | None = None, **options: Any) -> Peer:
    server = make_server(gates)
    return Peer(StreamableHTTPHandler(lambda request: server, **options))


async def result(answer: Answer) -> Any:
    (message,) = await answer.messages()
    assert answer.status == 200
    return message["result"]


# The beginning and the end


@pytest.mark.parametrize("version", VERSIONS)
async def test_initialize_opens_a_session_with_an_id(version: str) -> None:
    """L25-S-01, L25-S-05, L25-S-18, L25-S-23, M26-S-63."""
    answer = await peer().fetch("POST", initialize(version))
    assert answer.json()["result"]["protocolVersion"] == version
    id = answer.exchange.headers["mcp-session-id"]
    assert len(id) >= 32
    assert all("!" <= c <= "~" for c in id)
    others = {(await peer().fetch("POST", initialize())).exchange.headers["mcp-session-id"] for _ in range(20)}
    assert len(others | {id}) == 21


@pytest.mark.parametrize(("asked", "given"), [("1999-01-01", "2025-11-25"), ("2026-07-28", "2025-11-25")])
async def test_a_version_that_is_not_served_is_negotiated(asked: str, given: str) -> None:
    """L25-S-23."""
    client = await peer().initialize(asked)
    assert client.version == given


async def test_a_session_negotiated_at_2024_works() -> None:
    client = await peer().initialize("2024-11-05")
    assert (await result(client.request("who", mcp_protocol_version="2024-11-05")))["version"] == "2024-11-05"


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 5}, []])
async def test_an_initialize_that_is_none_opens_nothing(params: Any) -> None:
    client = peer()
    answer = await client.fetch("POST", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    assert error_of(answer) == (400, -32602, 1)
    assert "mcp-session-id" not in answer.exchange.headers
    assert client.shell.handler.shared.stats.sessions == 0  # type: ignore[attr-defined]


async def test_a_second_initialize_in_a_session_is_refused() -> None:
    client = await peer().initialize()
    assert error_of(await client.fetch("POST", initialize(id=5)))[0] == 400
    assert (await result(client.request("tools/list"))) == {"tools": []}


async def test_requests_without_a_session_are_refused_with_400() -> None:
    """L25-S-19, C065: no session is guessed."""
    client = await peer().initialize()
    client.session_id = ""
    assert error_of(await client.request("tools/list", id=7).ended())[:2] == (400, -32600)
    assert (await client.fetch("POST", note("notifications/x"))).status == 400
    assert (await client.fetch("GET")).status == 400
    assert (await client.fetch("DELETE")).status == 400
    assert (await client.fetch("POST", [client.call("tools/list")])).status == 400


async def test_an_unknown_session_gets_404() -> None:
    """L25-S-20, C069: at once, and with a word about why."""
    client = await peer().initialize()
    client.session_id = "x" * 32
    for method, body in (("POST", client.call("tools/list")), ("GET", b""), ("DELETE", b"")):
        answer = await client.fetch(method, body)
        assert answer.status == 404
        assert "another process" in answer.json()["error"]["message"]


@pytest.mark.parametrize("value", ["", "\x7f", "a b", "\u00e9".encode().decode("latin-1"), "x" * 5000])
async def test_a_damaged_session_id_is_an_unknown_one(value: str) -> None:
    client = await peer().initialize()
    assert (await client.fetch("POST", client.call("tools/list"), mcp_session_id=value)).status == 404


async def test_delete_ends_the_session() -> None:
    """L25-S-20, L25-S-21, L25-S-11."""
    gates = Gates()
    client = await peer(gates).initialize()
    running = client.request("wait", id="r")
    stream = await client.send("GET").started()
    await gates.until("entered gate")
    assert (await client.fetch("DELETE")).status == 200
    await gates.until("cancelled gate")
    assert error_of(await running.ended()) == (404, -32603, "r")
    assert await stream.next_event() is None
    assert (await client.request("tools/list").ended()).status == 404
    assert (await client.fetch("DELETE")).status == 404


async def test_an_idle_session_ends_and_one_that_is_busy_does_not() -> None:
    """L25-S-20."""
    gates = Gates()
    client = await peer(gates, session_idle_s=0.05).initialize()
    stats = client.shell.handler.shared.stats  # type: ignore[attr-defined]
    stream = await client.send("GET").started()
    await asyncio.sleep(0.2)
    running = client.request("wait")
    await gates.until("entered gate")
    stream.leave()
    await asyncio.sleep(0.2)
    assert stats.sessions == 1
    gates.open("gate")
    await running.ended()
    for _ in range(200):
        if not stats.sessions:
            break
        await asyncio.sleep(0.01)
    assert stats.ended == {"idle": 1}
    assert (await client.request("tools/list").ended()).status == 404


async def test_a_session_never_followed_up_ends_early() -> None:
    client = peer(session_follow_up_s=0.02)
    await client.fetch("POST", initialize())
    stats = client.shell.handler.shared.stats  # type: ignore[attr-defined]
    for _ in range(200):
        if not stats.sessions:
            break
        await asyncio.sleep(0.01)
    assert stats.ended == {"never_followed_up": 1}


async def test_sessions_are_capped() -> None:
    client = await peer(max_sessions=1).initialize()
    refused = await Peer(client.shell).fetch("POST", initialize(id=3))
    assert error_of(refused) == (503, -32603, 3)
    await client.fetch("DELETE")
    await Peer(client.shell).initialize()


async def test_an_initialize_that_is_too_large_is_refused() -> None:
    answer = await peer().fetch("POST", initialize(extra="x" * (64 << 10)))
    assert answer.status == 413


async def test_the_factory_of_ids_and_the_hook_for_sessions(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    client = peer(session_id_factory=lambda: "same", on_connection=seen.append)
    await client.initialize()
    assert (client.session_id, len(seen)) == ("same", 1)
    assert (await Peer(client.shell).fetch("POST", initialize())).status == 500, "an id that is in use"
    assert (await peer(session_id_factory=lambda: "a b").fetch("POST", initialize())).status == 500

    def refuses(session: Any) -> None:
        raise RuntimeError("secret")

    answer = await peer(on_connection=refuses).fetch("POST", initialize())
    assert answer.status == 500
    assert b"secret" not in answer.exchange.body


# The version header


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 200),
        ("2025-11-25", 200),
        ("2025-06-18", 200),
        ("2025-03-26", 200),
        ("", 400),
        ("1999-12-31-x", 400),
        ("2025-11-25, 2025-11-25", 400),
        ("2026-07-28", 400),
    ],
)
async def test_the_version_header_of_later_requests(header: str | None, status: int) -> None:
    """L25-S-22, L03-C-04, C057."""
    client = await peer().initialize()
    client.version = ""
    fields = {} if header is None else {"mcp_protocol_version": header}
    answer = await client.request("who", **fields).ended()
    assert answer.status == status
    if status == 200:
        assert answer.json()["result"]["version"] == "2025-11-25", "the negotiated one counts"
    if header not in (None, "2026-07-28"):
        assert (await client.fetch("DELETE", **fields)).status == status


async def test_a_repeated_version_header_is_refused() -> None:
    """C057."""
    client = await peer().initialize()
    fields = [(b"content-type", b"application/json"), (b"mcp-session-id", client.session_id.encode())]
    fields += [(b"mcp-protocol-version", b"2025-11-25")] * 2
    body = json.dumps(client.call("tools/list")).encode()
    assert (await Answer(client.shell.request("POST", "/mcp", fields, body)).ended()).status == 400


@pytest.mark.parametrize("header", [None, "2025-11-25", "2025-06-18"])
async def test_initialize_needs_no_version_header(header: str | None) -> None:
    """C057."""
    await peer().initialize(**({} if header is None else {"mcp_protocol_version": header}))


async def test_nonsense_at_initialize_is_refused() -> None:
    answer = await peer().fetch("POST", initialize(), mcp_protocol_version="nonsense")
    assert error_of(answer) == (400, -32022, 0)


# What POST brings


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "application/json"),
        ("application/*, text/*", "application/json"),
        ("application/json;q=0.9, text/event-stream;q=0.1", "application/json"),
        ("APPLICATION/JSON, Text/Event-Stream", "application/json"),
        ("application/json, text/event-stream;q=0", "application/json"),
        ("application/json", "application/json"),
        ("text/event-stream", "text/event-stream"),
        (None, "application/json"),
    ],
)
async def test_accept_is_read_as_http_says(accept: str | None, content_type: str) -> None:
    """C050."""
    drop = ("accept",) if accept is None else ()
    answer = await peer().fetch("POST", initialize(), drop, **({} if accept is None else {"accept": accept}))
    assert (answer.status, answer.content_type) == (200, content_type)
    client = await peer().initialize()
    said = client.send("POST", client.call("say", {"count": 1}), drop, **({} if accept is None else {"accept": accept}))
    await said.ended()
    takes_streams = (
        accept is None or ("stream" in accept.lower() and "q=0" not in accept.split("stream")[-1]) or "*" in accept
    )
    assert said.is_stream is (takes_streams or "q=0.1" in (accept or ""))


@pytest.mark.parametrize("accept", ["text/plain", "image/*", "application/json;q=0, text/event-stream;q=0"])
async def test_a_client_that_takes_no_answer_is_told(accept: str) -> None:
    """C050."""
    client = await peer().initialize()
    assert (await client.fetch("POST", initialize(), accept=accept)).status == 406
    assert (await client.fetch("GET", accept=accept)).status == 406
    assert (await client.fetch("GET", accept="application/json")).status == 406


async def test_several_accept_fields_are_one_list() -> None:
    fields = [(b"content-type", b"application/json"), (b"accept", b"text/plain"), (b"accept", b"application/json")]
    answer = Answer(peer().shell.request("POST", "/mcp", fields, json.dumps(initialize()).encode()))
    assert (await answer.ended()).status == 200


@pytest.mark.parametrize(("responses", "accept"), [("json", "text/event-stream"), ("sse", "application/json")])
async def test_forms_that_do_not_meet_are_told(responses: str, accept: str) -> None:
    assert (await peer(responses=responses).fetch("POST", initialize(), accept=accept)).status == 406


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/jsonp", None])
async def test_a_body_that_is_not_called_json_is_refused(content_type: str | None) -> None:
    drop = ("content-type",) if content_type is None else ()
    fields = {} if content_type is None else {"content_type": content_type}
    assert (await peer().fetch("POST", initialize(), drop, **fields)).status == 415
    assert (await peer().fetch("POST", initialize(), content_type="Application/JSON; charset=x")).status == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\x97"}}', -32700),
        (b"", -32700),
        (b"{", -32700),
        (b"nul", -32700),
        (b"[" * 100_000, -32700),
        (b"{}", -32600),
        (b"5", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
    ],
)
async def test_damaged_bodies_get_an_error_and_the_session_goes_on(
    body: bytes, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """C058, L25-S-04."""
    client = await peer().initialize()
    assert error_of(await client.fetch("POST", body))[:2] == (400, code)
    assert await result(client.request("ping")) == {}
    assert not caplog.records


async def test_a_body_over_the_limit_is_refused() -> None:
    client = await peer(max_body_bytes=1000).initialize()
    assert (await client.request("tools/call", {"x": "y" * 1000}).ended()).status == 413


async def test_a_body_that_comes_in_pieces() -> None:
    client = await peer().initialize()
    fields = {"content-type": "application/json", "mcp-session-id": client.session_id, "accept": BOTH}
    exchange = client.shell.request("POST", "/mcp", fields, None)
    exchange.feed(b'{"jsonrpc":"2.0","id":1,')
    exchange.feed(b'"method":"tools/list"}')
    exchange.finish_body()
    assert await result(Answer(exchange)) == {"tools": []}


async def test_notifications_and_responses_get_202_without_a_body() -> None:
    """L25-S-04."""
    client = await peer().initialize()
    for body in (note("notifications/x"), {"jsonrpc": "2.0", "id": 5, "result": {}}, note("notifications/tell")):
        answer = await client.fetch("POST", body)
        assert (answer.status, answer.exchange.body) == (202, b"")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "OPTIONS"])
async def test_other_methods_are_refused(method: str) -> None:
    answer = await peer().fetch(method)
    assert (answer.status, answer.exchange.headers["allow"]) == (405, "GET, POST, DELETE")


# What a request gets


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_answer_is_json_until_something_is_said(version: str) -> None:
    """L25-S-05, L25-S-09, L25-S-10."""
    client = await peer().initialize(version)
    assert await result(client.request("tools/call", {"name": "x", "arguments": 5})) == {"name": "x", "echo": 5}
    said = client.request("say", {"count": 2})
    messages = await said.messages()
    assert said.is_stream
    assert [m.get("method") for m in messages] == ["notifications/said"] * 2 + [None]
    assert b"id:" not in said.exchange.body.replace(b'"id":', b"")


async def test_errors_of_requests_have_status_200() -> None:
    client = await peer().initialize()
    for method, code in (("no/such", -32601), ("fail", -32603)):
        assert error_of(await client.request(method, id=4).ended()) == (200, code, 4)


async def test_a_client_that_leaves_has_not_cancelled() -> None:
    """L25-S-12."""
    gates = Gates()
    client = await peer(gates).initialize()
    answer = client.request("wait")
    streaming = client.request("say", {"count": 2, "gate": "s"})
    await streaming.next_message()
    await gates.until("entered gate")
    answer.leave()
    streaming.leave()
    gates.open("gate")
    for gate in ("s0", "s1"):
        gates.open(gate)
        await gates.until("entered " + gate)
    assert await result(client.request("tools/list")) == {"tools": []}
    assert gates.cancelled == []


async def test_a_cancelled_request_gets_no_answer() -> None:
    """L25-S-24."""
    gates = Gates()
    client = await peer(gates).initialize()
    plain = client.request("wait", id=1)
    streaming = client.request("say", {"count": 2, "gate": "s"}, id="1")
    only_json = client.request("wait", {"gate": "j"}, id=3, accept="application/json")
    await streaming.next_message()
    await gates.until("entered j")
    for id in ("1", 3, 1, 1, "nobody", True, None, 1.0):
        assert (await client.fetch("POST", note("notifications/cancelled", {"requestId": id}))).status == 202
    assert (await client.fetch("POST", note("notifications/cancelled"))).status == 202
    assert await plain.messages() == []
    assert await streaming.messages() == []
    assert error_of(await only_json.ended()) == (200, -32800, 3)
    for name in ("gate", "j", "s0"):
        await gates.until("cancelled " + name)
    assert await result(client.request("tools/list", id=1)) == {"tools": []}, "the id is free again"


async def test_a_request_cancelled_before_its_handler_has_run_leaves_nothing_behind() -> None:
    """L25-S-24: a task that is cancelled before its first step runs no ``finally``."""
    gates = Gates()
    client = await peer(gates).initialize()
    before = PROCESS.in_flight
    answer = client.request("wait", id=1)
    cancel = client.send("POST", note("notifications/cancelled", {"requestId": 1}))
    await cancel.ended()
    assert await answer.messages() == []
    await asyncio.sleep(0)
    assert PROCESS.in_flight == before
    for _ in range(2):
        client.request("wait")
        client.send("POST", note("notifications/tell"))
    client.send("DELETE")
    await asyncio.sleep(0)
    assert PROCESS.in_flight == before


async def test_ids_are_told_apart_by_type_and_come_back_as_they_were() -> None:
    """C052, C054."""
    gates = Gates()
    client = await peer(gates).initialize()
    number, text = client.request("wait", {"gate": "n"}, 1), client.request("wait", {"gate": "t"}, "1")
    await gates.until("entered t")
    gates.open("t")
    (message,) = await text.messages()
    assert (message["id"], message["result"]["waited"]) == ("1", "t")
    gates.open("n")
    (message,) = await number.messages()
    assert (message["id"], message["result"]["waited"]) == (1, "n")
    for id in ("", "007", "a\u00e9", 0, -1, 9007199254740993):
        (message,) = await client.request("tools/list", id=id).messages()
        assert (message["id"], type(message["id"])) == (id, type(id))


async def test_a_second_request_with_an_id_in_flight_is_refused_at_once() -> None:
    """C052."""
    gates = Gates()
    client = await peer(gates).initialize()
    first = client.request("wait", {"gate": "a"}, 1)
    await gates.until("entered a")
    assert error_of(await client.request("wait", {"gate": "b"}, 1).ended()) == (400, -32600, 1)
    gates.open("a")
    assert (await result(first))["waited"] == "a"
    assert gates.entered == ["a"]


async def test_requests_of_a_session_run_side_by_side() -> None:
    """C071."""
    gates = Gates()
    client = await peer(gates).initialize()
    slow = client.request("wait")
    await gates.until("entered gate")
    assert await result(client.request("ping")) == {}
    assert await result(client.request("tools/list")) == {"tools": []}
    gates.open("gate")
    await result(slow)


async def test_a_request_to_the_client_goes_on_the_requests_stream_and_is_answered_by_a_post() -> None:
    """L25-S-10, C071."""
    client = await peer().initialize()
    answer = client.request("ask", id=9)
    question = await answer.next_message()
    assert question["method"] == "sampling/createMessage"
    reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"text": "hi"}}
    wrong = {**reply, "id": str(question["id"]), "result": {"text": "wrong"}}
    assert (await client.fetch("POST", wrong)).status == 202
    assert (await client.fetch("POST", reply)).status == 202
    assert (await answer.next_message())["result"] == {"answer": {"text": "hi"}}
    assert await answer.next_event() is None


async def test_another_sessions_answer_settles_nothing() -> None:
    client = await peer().initialize()
    other = await Peer(client.shell).initialize()
    answer = client.request("ask")
    question = await answer.next_message()
    reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"text": "stolen"}}
    await other.fetch("POST", reply)
    await client.fetch("POST", {**reply, "result": {"text": "own"}})
    assert (await answer.next_message())["result"] == {"answer": {"text": "own"}}


async def test_a_json_answer_has_no_room_for_requests_to_the_client(caplog: pytest.LogCaptureFixture) -> None:
    client = await peer(responses="json").initialize()
    assert error_of(await client.request("ask").ended())[1] == -32603


async def test_requests_in_flight_are_bounded_in_a_session_and_in_the_process() -> None:
    gates = Gates()
    client = await peer(gates, max_in_flight=1).initialize()
    running = client.request("wait")
    await gates.until("entered gate")
    assert error_of(await client.request("tools/list", id=6).ended()) == (503, -32603, 6)
    assert await result(client.request("ping")) == {}
    gates.open("gate")
    await result(running)
    gates = Gates()
    client = await peer(gates, max_in_flight_total=PROCESS.in_flight + 1).initialize()
    running = client.request("wait")
    await gates.until("entered gate")
    assert error_of(await client.request("tools/list", id=6).ended()) == (503, -32603, 6)
    gates.open("gate")
    await result(running)


# Batches


def batch(client: Peer, *methods: str) -> list[Any]:
    return [client.call(method) for method in methods]


async def test_a_batch_of_requests_is_answered_on_one_stream() -> None:
    """L03-B-01, L03-S-02."""
    client = await peer().initialize("2025-03-26")
    answer = await client.fetch("POST", [*batch(client, "tools/list", "ping", "no/such"), note("notifications/x")])
    messages = await answer.messages()
    assert answer.is_stream
    assert sorted(m["id"] for m in messages) == [1, 2, 3]
    assert {m["id"]: m["error"]["code"] for m in messages if "error" in m} == {3: -32601}


async def test_a_batch_of_requests_is_answered_by_one_array_where_json_is_wanted() -> None:
    """L03-B-01, L03-S-02."""
    client = await peer().initialize("2025-03-26")
    answer = await client.fetch("POST", batch(client, "tools/list", "ping", "say"), accept="application/json")
    assert sorted(m["id"] for m in answer.json()) == [1, 2, 3]


async def test_a_batch_without_requests_gets_202() -> None:
    """L03-S-02."""
    client = await peer().initialize("2025-03-26")
    for body in ([note("a"), note("b")], [{"jsonrpc": "2.0", "id": 1, "result": {}}]):
        answer = await client.fetch("POST", body)
        assert (answer.status, answer.exchange.body) == (202, b"")


async def test_members_of_a_batch_that_are_no_messages_get_their_errors() -> None:
    """L03-B-01."""
    client = await peer().initialize("2025-03-26")
    bad = {"jsonrpc": "2.0", "id": 8, "method": 5}
    for accept in ("application/json", BOTH):
        answer = await client.fetch("POST", [1, bad, *batch(client, "ping")], accept=accept)
        messages = answer.json() if not answer.is_stream else await answer.messages()
        assert [m["id"] for m in messages if "error" in m] == [None, 8]
        assert len([m for m in messages if "result" in m]) == 1
    assert len((await client.fetch("POST", [1, 2], accept="application/json")).json()) == 2


async def test_a_batch_is_taken_whole_or_not_at_all() -> None:
    """C052."""
    gates = Gates()
    client = await peer(gates).initialize("2025-03-26")
    running = client.request("wait", id=1)
    await gates.until("entered gate")
    answer = await client.fetch("POST", [client.call("wait", {"gate": "new"}, 2), client.call("ping", id=1)])
    assert error_of(answer) == (400, -32600, 1)
    assert gates.entered == ["gate"]
    gates.open("gate")
    await result(running)


async def test_cancelling_members_of_a_batch() -> None:
    """L25-S-24, L03-S-02."""
    gates = Gates()
    client = await peer(gates).initialize("2025-03-26")
    for accept, count in (("application/json", 1), (BOTH, 1)):
        answer = client.send("POST", [client.call("wait", id="c"), client.call("ping", id="p")], accept=accept)
        await gates.until("entered gate")
        await client.fetch("POST", note("notifications/cancelled", {"requestId": "c"}))
        await answer.ended()
        messages = answer.json() if not answer.is_stream else await answer.messages()
        assert [m["id"] for m in messages] == ["p"]
        assert len(messages) == count
        gates["entered gate"].clear()
    answer = client.send("POST", [client.call("wait", id="c")], accept="application/json")
    await gates.until("entered gate")
    await client.fetch("POST", note("notifications/cancelled", {"requestId": "c"}))
    assert error_of(await answer.ended()) == (200, -32800, "c")


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_later_revisions_have_no_batches(version: str) -> None:
    client = await peer().initialize(version)
    assert error_of(await client.fetch("POST", batch(client, "ping"))) == (400, -32600, None)


async def test_initialize_in_a_batch_is_refused() -> None:
    """L03-C-03."""
    client = await peer().initialize("2025-03-26")
    assert (await client.fetch("POST", [initialize()])).status == 400


# Whose session it is


def by_token(request: Any) -> Principal | None:
    value = request.headers.get("authorization", "")
    return Principal(value.removeprefix("Bearer ")) if value.startswith("Bearer ") else None


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_session_belongs_to_who_opened_it(is_async: bool) -> None:
    """C065, L25-S-03, M26-S-05."""
    gates = Gates()

    async def later(request: Any) -> Principal | None:
        return by_token(request)

    client = peer(gates, authenticate=later if is_async else by_token)
    client.headers = {"authorization": "Bearer a"}
    await client.initialize()
    stream = await client.send("GET").started()
    for headers, status in (({"authorization": "Bearer b"}, 404), ({"authorization": ""}, 401)):
        for method, body in (("POST", client.call("wait")), ("GET", b""), ("DELETE", b"")):
            answer = await client.fetch(method, body, **headers)
            assert answer.status == status
    assert gates.entered == []
    assert (await result(client.request("who")))["principal"] == "a"
    assert stream.exchange.body == b""


async def test_handlers_know_who_asks_on_each_request_of_2026() -> None:
    """M26-S-05, M26-S-49."""
    client = peer(authenticate=by_token)
    assert (await client.modern("who").ended()).status == 401
    found = await result(client.modern("who", authorization="Bearer z"))
    assert found["principal"] == "z"


# Origin and Host


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
async def test_a_foreign_page_is_refused_before_anything_else(method: str) -> None:
    """M26-S-02, M26-S-03, L25-S-02, L06-S-03, C061."""
    answer = await peer().fetch(method, initialize(), origin="http://evil.test")
    assert error_of(answer) == (403, -32600, None)
    answer = await peer(allowed_hosts=["api.test"]).fetch(method, initialize(), host="evil.test")
    assert answer.status == 421


@pytest.mark.parametrize("origin", ["http://localhost", "http://app.test:1"])
async def test_good_origins_pass(origin: str) -> None:
    """M26-S-02, L25-S-02."""
    answer = await peer(allowed_origins=["http://app.test:*"]).fetch("POST", initialize(), origin=origin)
    assert answer.status == 200


# Stopping


async def test_stopping_ends_idle_sessions_and_lets_others_finish() -> None:
    """C074."""
    gates = Gates()
    server = make_server(gates)
    handler = StreamableHTTPHandler(lambda request: server)
    idle, busy = await Peer(handler).initialize(), await Peer(handler).initialize()
    stream = await idle.send("GET").started()
    running = busy.request("wait")
    asking = busy.request("ask")
    question = await asking.next_message()
    await gates.until("entered gate")
    draining = asyncio.ensure_future(handler.drain(5))
    assert await stream.next_event() is None
    assert (await idle.fetch("POST", initialize())).status == 503
    assert (await busy.request("tools/list").ended()).status == 503
    assert (await busy.fetch("GET")).status == 503
    reply = {"jsonrpc": "2.0", "id": question["id"], "result": {}}
    assert (await busy.fetch("POST", reply)).status == 202
    assert (await asking.next_message())["result"] == {"answer": {}}
    assert not draining.done()
    gates.open("gate")
    assert (await result(running))["waited"] == "gate"
    await asyncio.wait_for(draining, 5)
    assert handler.shared.stats.sessions == 0


async def test_what_still_runs_after_the_grace_is_cancelled_and_told() -> None:
    """C074."""
    gates = Gates()
    server = make_server(gates)
    handler = StreamableHTTPHandler(lambda request: server)
    client = await Peer(handler).initialize()
    running = client.request("wait", id=1)
    await gates.until("entered gate")
    await asyncio.wait_for(handler.drain(0), 5)
    assert error_of(await running.ended()) == (503, -32603, 1)
    await gates.until("cancelled gate")


async def test_hurrying_gives_up_the_grace() -> None:
    gates = Gates()
    server = make_server(gates)
    handler = StreamableHTTPHandler(lambda request: server)
    client = await Peer(handler).initialize()
    running = client.request("wait")
    await gates.until("entered gate")
    draining = asyncio.ensure_future(handler.drain(60))
    await asyncio.sleep(0)
    handler.hurry()
    await asyncio.wait_for(draining, 5)
    assert (await running.ended()).status == 503
