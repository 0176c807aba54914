"""HTTP+SSE, server side: rows A6 to A12, H24-S-01 to H24-S-06, and the casebook's cases for them."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from mcpfast.http.interface import Request
from mcpfast.jsonrpc import Notification, Response
from mcpfast.jsonrpc import Request as RPCRequest
from mcpfast.protocol import Connection
from mcpfast.server import Context, Principal, Server, SSEHandler
from tests.server.sse_peer import JSON, SSEPeer
from tests.support.memory import MemoryShell

pytestmark = pytest.mark.anyio

PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}


def make_server() -> Server:
    server = Server("test", "1")

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"echo": params}

    return server


def make_handler(**options: Any) -> SSEHandler:
    server = make_server()
    return SSEHandler(lambda request: server, **options)


# A6: one URL, two methods


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods_get_405_with_allow(method: str) -> None:
    """A6."""
    answer = await MemoryShell(make_handler()).fetch(method, "/sse")
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, POST, HEAD"


async def test_head_is_answered_like_get_without_a_session() -> None:
    """A6."""
    handler = make_handler()
    answer = await MemoryShell(handler).fetch("HEAD", "/sse")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert handler.shared.stats.sessions == 0


# A8, H24-S-03, H24-S-04, H24-S-06: GET


async def test_get_begins_a_stream_with_the_endpoint_event() -> None:
    """A8, H24-S-03, H24-S-04, H24-S-06."""
    peer = await SSEPeer(make_handler(), "/some/sse?x=1").open()
    assert peer.get.headers["content-type"] == "text/event-stream"
    assert "no-cache" in peer.get.headers["cache-control"]
    assert peer.get.headers["x-accel-buffering"] == "no"
    path, _, query = peer.endpoint.partition("?")
    assert path == "/some/sse"
    assert query.startswith("sessionid=")
    assert len(query) > 30
    assert "x=1" not in peer.endpoint
    other = await SSEPeer(peer.shell, "/some/sse").open()
    assert other.endpoint != peer.endpoint


async def test_endpoint_has_the_prefix_of_a_mount_or_of_a_proxy() -> None:
    """A8."""
    mounted = await SSEPeer(MemoryShell(make_handler(), root_path="/api/v1")).open()
    assert mounted.endpoint.startswith("/api/v1/sse?sessionid=")
    proxied = await SSEPeer(make_handler(root_path="/behind")).open()
    assert proxied.endpoint.startswith("/behind/sse?sessionid=")


@pytest.mark.parametrize(
    ("accept", "status"),
    [("text/event-stream", 200), ("*/*", 200), ("Text/*;q=0.1", 200), ("application/json", 406), ("*/*;q=0", 406)],
)
async def test_accept_that_rules_out_a_stream_gets_406(accept: str, status: int) -> None:
    """C050, as far as it applies to a GET."""
    exchange = MemoryShell(make_handler()).request("GET", "/sse", {"accept": accept})
    await exchange.until_started()
    assert exchange.status == status


# A7: POST


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/sse", 400),
        ("/sse?sessionid=", 400),
        ("/sse?other=1", 400),
        ("/sse?sessionid=a&sessionid=b", 400),
        ("/sse?sessionid=unknown", 404),
        ("/sse?sessionid=%00", 404),
    ],
)
async def test_post_without_a_known_session_is_refused(target: str, status: int) -> None:
    """A7, H24-S-06, C065: no guessing, also while exactly one session is live."""
    peer = await SSEPeer(make_handler()).start()
    exchange = peer.send(PING, target)
    await exchange.until_ended()
    assert exchange.status == status
    assert json.loads(exchange.body)["error"]["code"] == -32600
    assert not peer.get.pieces[3:]


@pytest.mark.parametrize("extra", ["&x=1", "&sessionid={id}"])
async def test_further_query_parameters_do_no_harm(extra: str) -> None:
    peer = await SSEPeer(make_handler()).start()
    id = peer.endpoint.partition("=")[2]
    assert await peer.post(PING, peer.endpoint + extra.format(id=id)) == 202


BAD_BODIES = [
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\x97"}}', -32700),
    (b"", -32700),
    (b"{", -32700),
    (b"nul", -32700),
    (b"[" * 100_000, -32700),
    (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', -32700),
    (b"{}", -32600),
    (b"5", -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}', -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
]


@pytest.mark.parametrize(("body", "code"), BAD_BODIES, ids=lambda v: repr(v)[:40])
async def test_body_that_is_no_message_gets_400_and_the_session_goes_on(
    body: bytes, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A7, C058."""
    peer = await SSEPeer(make_handler()).start()
    exchange = peer.send(body)
    await exchange.until_ended()
    error = json.loads(exchange.body)
    assert (exchange.status, error["error"]["code"], error["id"]) == (400, code, None)
    assert exchange.headers["content-type"] == "application/json"
    assert "\x97" not in error["error"]["message"]
    assert (await peer.call("ping"))["result"] == {}
    assert not caplog.records


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 202),
        ("Application/JSON; Charset=utf-8", 202),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("", 415),
    ],
)
async def test_content_type_must_be_json(content_type: str, status: int) -> None:
    """A7."""
    peer = await SSEPeer(make_handler()).start()
    assert await peer.post(PING, **{"content-type": content_type}) == status


async def test_body_over_the_limit_gets_413_whole_or_in_pieces() -> None:
    """A7."""
    peer = await SSEPeer(make_handler(max_body_bytes=100)).open()
    assert await peer.post(b" " * 101) == 413
    exchange = peer.shell.request("POST", peer.endpoint, JSON, None)
    exchange.feed(b" " * 60)
    exchange.feed(b" " * 60)
    await exchange.until_ended()
    assert exchange.status == 413
    assert json.loads(exchange.body)["error"]["message"] == "request body is over the limit of 100 bytes"


async def test_body_that_arrives_in_pieces_is_served() -> None:
    peer = await SSEPeer(make_handler()).start()
    exchange = peer.shell.request("POST", peer.endpoint, JSON, None)
    for byte in json.dumps(PING).encode():
        exchange.feed(bytes([byte]))
    exchange.finish_body()
    await exchange.until_ended()
    assert exchange.status == 202
    assert (await peer.next_message())["result"] == {}


async def test_what_a_client_says_of_itself_is_bounded() -> None:
    peer = await SSEPeer(make_handler()).open()
    params = {"protocolVersion": "2024-11-05", "clientInfo": {"name": "x" * 70_000}}
    assert await peer.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}) == 413


@pytest.mark.parametrize("ids", [["1", 1], ["", "007", "a\u00e9", 0, -1, 9007199254740993]])
async def test_ids_come_back_as_they_were(ids: list[Any]) -> None:
    """C054."""
    peer = await SSEPeer(make_handler()).start()
    for id in ids:
        await peer.request("tools/call", {}, id=id)
    answers = [await peer.next_message() for _ in ids]
    assert [answer["id"] for answer in answers] == ids


async def test_batches_are_taken_on_the_revision_that_has_them() -> None:
    """L03-B-01: each request gets its own answer, each damaged member its own error."""
    peer = await SSEPeer(make_handler()).start("2025-03-26")
    batch = [
        PING,
        {"jsonrpc": "2.0", "method": "notifications/x"},
        7,
        {"jsonrpc": "2.0", "id": 5, "method": 5},
        {**PING, "id": 9},
    ]
    assert await peer.post(batch) == 202
    answers = [await peer.next_message() for _ in range(4)]
    assert [(a["id"], "result" in a) for a in answers] == [("p", True), (None, False), (5, False), (9, True)]


# A9: get_server


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_server_is_chosen_for_each_request(is_async: bool) -> None:
    """A9."""
    servers = {"/a": Server("a", "1"), "/b": Server("b", "1")}

    def sync_choice(request: Request) -> Server:
        return servers[request.path]

    async def async_choice(request: Request) -> Server:
        await asyncio.sleep(0)
        return servers[request.path]

    shell = MemoryShell(SSEHandler(async_choice if is_async else sync_choice))
    for path in servers:
        peer = await SSEPeer(shell, path).open()
        answer = await peer.call("initialize", {"protocolVersion": "2024-11-05"})
        assert answer["result"]["serverInfo"]["name"] == path[1:]


@pytest.mark.parametrize(("options", "status"), [({}, 404), ({"no_server_status": 403}, 403)])
async def test_no_server_is_404_or_a_chosen_status(options: dict[str, Any], status: int) -> None:
    """A9."""
    handler = SSEHandler(lambda request: None, **options)
    answer = await MemoryShell(handler).fetch("GET", "/sse")
    assert answer.status == status
    assert handler.shared.stats.sessions == 0


@pytest.mark.parametrize("fault", ["get_server", "type", "on_connection", "session_id", "lifespan"])
async def test_a_failure_before_the_stream_is_500_without_its_text(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A9."""

    def fail(*_: object) -> Any:
        raise RuntimeError("secret text")

    options: dict[str, Any] = {}
    get_server: Any = lambda request: make_server()  # noqa: E731
    if fault == "get_server":
        get_server = fail
    elif fault == "type":
        get_server = lambda request: 5  # noqa: E731
    elif fault == "on_connection":
        options["on_connection"] = fail
    elif fault == "session_id":
        options["session_id_factory"] = lambda: "a b"
    else:
        server = Server("x", "1", lifespan=fail)
        get_server = lambda request: server  # noqa: E731
    handler = SSEHandler(get_server, **options)
    for _ in range(2):
        answer = await MemoryShell(handler).fetch("GET", "/sse")
        assert answer.status == 500
        assert json.loads(answer.body)["error"] == {"code": -32603, "message": "internal error"}
    assert handler.shared.stats.sessions == handler.shared.stats.streams == 0
    assert all(record.exc_info for record in caplog.records)
    assert len(caplog.records) == 2


async def test_the_hook_is_told_of_each_connection() -> None:
    """A9."""
    seen: list[Any] = []
    shell = MemoryShell(make_handler(on_connection=seen.append))
    peers = [await SSEPeer(shell).open() for _ in range(2)]
    assert [session.endpoint for session in seen] == [peer.endpoint for peer in peers]


async def test_a_session_id_that_is_in_use_is_not_given_twice(caplog: pytest.LogCaptureFixture) -> None:
    shell = MemoryShell(make_handler(session_id_factory=lambda: "same"))
    first = await SSEPeer(shell).open()
    assert (await shell.fetch("GET", "/sse")).status == 500
    assert await first.post(PING) == 202


# A10: the end


async def test_post_to_a_session_whose_client_left_is_404(caplog: pytest.LogCaptureFixture) -> None:
    """A10, C038: the table is empty at once, and no traceback."""
    handler = make_handler()
    shell = MemoryShell(handler)
    for _ in range(200):
        peer = await SSEPeer(shell).open()
        peer.leave()
        assert await peer.post(PING) == 404
    assert not handler._sessions
    assert handler.shared.stats.ended == {"client_left": 200}
    assert handler.shared.stats.streams == 0
    assert not caplog.records


async def test_running_handlers_are_cancelled_when_the_client_leaves() -> None:
    """A10, H24-C-03."""
    server = Server("x", "1")
    started, cancelled = asyncio.Event(), asyncio.Event()

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert ctx.is_cancelled
            cancelled.set()

    handler = SSEHandler(lambda request: server)
    peer = await SSEPeer(handler).start()
    await peer.request("tools/call")
    await asyncio.wait_for(started.wait(), 5)
    peer.leave()
    await asyncio.wait_for(cancelled.wait(), 5)
    await asyncio.sleep(0)
    assert handler.shared.load.in_flight == 0


async def test_drain_ends_idle_streams_properly_and_refuses_what_comes() -> None:
    """A10, C074."""
    handler = make_handler()
    peer = await SSEPeer(handler).start()
    await asyncio.wait_for(handler.aclose(), 5)
    await peer.get.until_ended()
    assert peer.get.aborted is None
    assert (await peer.shell.fetch("GET", "/sse")).status == 503
    assert await peer.post(PING) == 404
    assert handler.shared.stats.ended == {"shutdown": 1}


async def test_while_it_drains_answers_pass_and_new_requests_do_not() -> None:
    """C074: a request that waits for the client may still end within the grace."""
    server = Server("x", "1")

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"said": await ctx.request("roots/list")}

    handler = SSEHandler(lambda request: server)
    peer = await SSEPeer(handler).start()
    await peer.request("tools/call", id=1)
    asked = await peer.next_message()
    drained = asyncio.ensure_future(handler.drain(30))
    await asyncio.sleep(0)
    assert await peer.post({"jsonrpc": "2.0", "id": 2, "method": "tools/call"}) == 503
    assert (await peer.call("ping", id=3))["result"] == {}
    assert await peer.post({"jsonrpc": "2.0", "id": asked["id"], "result": "yes"}) == 202
    assert (await peer.next_message())["result"] == {"said": "yes"}
    await peer.get.until_ended()
    await asyncio.wait_for(drained, 5)
    assert handler.shared.stats.ended == {"shutdown": 1}


async def test_what_is_published_before_the_end_still_arrives() -> None:
    server = make_server()
    handler = SSEHandler(lambda request: server)
    peer = await SSEPeer(handler).start()
    server.publish("last/words", {"a": 1})
    await handler.aclose()
    assert (await peer.next_message())["method"] == "last/words"


# A12, H24-S-05: what is written


async def test_messages_of_many_tasks_never_interleave() -> None:
    """A12, H24-S-05: each is one whole ``message`` event."""
    server = Server("x", "1")

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        for i in range(5):
            await ctx.notify("n", {"from": ctx.request_id, "i": i, "pad": "x" * 30_000})
            await asyncio.sleep(0)
        return {}

    peer = await SSEPeer(SSEHandler(lambda request: server)).start()
    for id in range(20):
        await peer.request("tools/call", id=id)
    seen: dict[int, list[int]] = {id: [] for id in range(20)}
    for _ in range(20 * 6):
        message = await peer.next_message()
        if "id" in message:
            seen[message["id"]].append(99)
        else:
            seen[message["params"]["from"]].append(message["params"]["i"])
    assert all(order == [0, 1, 2, 3, 4, 99] for order in seen.values())


async def test_a_burst_of_messages_is_one_write() -> None:
    server = Server("x", "1")

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        for i in range(10):
            await ctx.progress(i)
        return {}

    peer = await SSEPeer(SSEHandler(lambda request: server)).start()
    before = len(peer.get.pieces)
    await peer.request("tools/call", {"_meta": {"progressToken": 0}})
    messages = [await peer.next_message() for _ in range(11)]
    assert [m["params"]["progress"] for m in messages[:10]] == list(range(10))
    assert len(peer.get.pieces) == before + 1


# H24-S-01, C061: Origin and Host


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE"])
async def test_origin_is_checked_on_every_request(method: str) -> None:
    """H24-S-01."""
    handler = make_handler(allowed_origins=["http://localhost:5173"])
    shell = MemoryShell(handler)
    peer = await SSEPeer(shell).start()
    headers = {"origin": "http://evil.test", **JSON}
    answer = await shell.fetch(method, peer.endpoint, headers, json.dumps(PING).encode())
    assert answer.status == 403
    if method != "HEAD":
        assert "'http://evil.test'" in json.loads(answer.body)["error"]["message"]
    assert await peer.post(PING, origin="http://localhost:5173") == 202
    assert handler.shared.stats.refused == {"origin": 1}


@pytest.mark.parametrize("origins", [(b"http://evil.test", b"http://localhost"), (b"http://localhost", b"")])
async def test_an_origin_or_host_that_comes_twice_is_none_of_those_allowed(origins: tuple[bytes, bytes]) -> None:
    """H24-S-01: whichever of the two another reader takes, it must not be one that was never looked at."""
    shell = MemoryShell(make_handler(allowed_hosts=["localhost"]))
    fields = [(b"host", b"localhost"), *((b"origin", origin) for origin in origins)]
    assert (await shell.fetch("GET", "/sse", fields)).status == 403
    assert (await shell.fetch("GET", "/sse", [(b"host", b"evil.test"), (b"host", b"localhost")])).status == 421
    # What else comes twice is no matter, and hides nothing.
    empty = [(b"host", b"localhost"), (b"origin", b""), (b"x", b"1"), (b"x", b"2")]
    assert (await shell.fetch("GET", "/sse", empty)).status == 403
    answer = await shell.fetch("HEAD", "/sse", [(b"host", b"localhost"), (b"x", b"1"), (b"x", b"2")])
    assert answer.status == 200


async def test_host_is_checked_where_hosts_are_listed() -> None:
    """C061."""
    shell = MemoryShell(make_handler(allowed_hosts=["api.test"]))
    assert (await shell.fetch("GET", "/sse", {"host": "evil.test"})).status == 421
    await SSEPeer(shell, host="API.test").open()


async def test_an_empty_list_of_hosts_is_loudly_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """C061."""
    make_handler(allowed_hosts=[])
    assert "allowed_hosts is empty" in caplog.text
    assert caplog.records[0].levelno >= logging.WARNING


# C065, H24-S-02: authentication and ownership


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_session_belongs_to_who_opened_it(is_async: bool) -> None:
    """C065, H24-S-02."""
    ran: list[str] = []
    server = Server("x", "1")

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        assert ctx.principal is not None
        ran.append(ctx.principal.subject)
        return {}

    def authenticate(request: Request) -> Any:
        token = request.headers.get("authorization", "")
        principal = Principal(token[7:], scopes=frozenset({str(len(ran))})) if token.startswith("Bearer ") else None

        async def later() -> Principal | None:
            await asyncio.sleep(0)
            return principal

        return later() if is_async else principal

    shell = MemoryShell(SSEHandler(lambda request: server, authenticate=authenticate))
    refused = await shell.fetch("GET", "/sse")
    assert refused.status == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")

    peer = await SSEPeer(shell, authorization="Bearer alice").start()
    call_ = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    assert await peer.post(call_, authorization="Bearer bob") == 404
    assert await peer.post(call_, authorization="") == 401
    assert await peer.post(call_, "/sse?sessionid=unknown", authorization="") == 401
    assert await peer.post(call_, "/sse", authorization="Bearer alice") == 400
    assert ran == []
    assert (await peer.call("tools/call"))["result"] == {}
    assert (await peer.call("tools/call"))["result"] == {}
    assert ran == ["alice", "alice"]


async def test_authenticate_that_fails_is_500_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Request) -> Principal:
        raise RuntimeError("secret text")

    async def fail_later(request: Request) -> Principal:
        return fail(request)

    for authenticate in (fail, fail_later, lambda request: "alice"):
        answer = await MemoryShell(make_handler(authenticate=authenticate)).fetch("GET", "/sse")
        assert answer.status == 500
        assert b"secret" not in answer.body
        assert b"alice" not in answer.body


async def test_head_needs_authentication_as_get_does() -> None:
    shell = MemoryShell(make_handler(authenticate=lambda request: None))
    assert (await shell.fetch("HEAD", "/sse")).status == 401


async def test_a_hook_that_gives_something_to_await_is_awaited() -> None:
    async def alice() -> Principal:
        return Principal("alice")

    peer = await SSEPeer(make_handler(authenticate=lambda request: alice())).start()
    assert (await peer.call("ping"))["result"] == {}


def test_a_principal_is_the_same_whatever_its_claims() -> None:
    assert Principal("a", claims={"exp": 1}) == Principal("a", claims={"exp": 2})
    assert hash(Principal("a", claims={"exp": 1})) == hash(Principal("a"))
    assert "secret" not in repr(Principal("a", claims={"token": "secret"}))


# Limits


async def test_sessions_are_capped() -> None:
    handler = make_handler(max_sessions=2)
    shell = MemoryShell(handler)
    peers = [await SSEPeer(shell).open() for _ in range(2)]
    answer = await shell.fetch("GET", "/sse")
    assert answer.status == 503
    assert json.loads(answer.body)["error"]["message"] == "server has 2 sessions, the limit"
    peers[0].leave()
    await SSEPeer(shell).open()
    assert handler.shared.stats.refused == {"sessions": 1}


async def test_the_cap_holds_while_get_server_is_awaited() -> None:
    server = make_server()
    gate = asyncio.Event()

    async def slow(request: Request) -> Server:
        await gate.wait()
        return server

    shell = MemoryShell(SSEHandler(slow, max_sessions=2))
    exchanges = [shell.request("GET", "/sse") for _ in range(5)]
    await asyncio.sleep(0)
    gate.set()
    for exchange in exchanges:
        await exchange.until_started()
    assert sorted(exchange.status or 0 for exchange in exchanges) == [200, 200, 503, 503, 503]


async def test_a_full_session_still_takes_answers_cancels_and_pings() -> None:
    """The flood of issue 3: 503 for more work, at once, and room for what frees it."""
    server = Server("x", "1")
    cancelled: list[Any] = []

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        try:
            if params.get("ask"):
                return {"answer": await ctx.request("roots/list")}
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(ctx.request_id)
            raise
        return {}

    handler = SSEHandler(lambda request: server, max_in_flight=3)
    peer = await SSEPeer(handler).start()
    await peer.request("tools/call", {"ask": True}, id="ask")
    for id in range(2):
        await peer.request("tools/call", id=id)
    asked = await peer.next_message()
    for id in range(100, 120):
        exchange = peer.send({"jsonrpc": "2.0", "id": id, "method": "tools/call"})
        await exchange.until_ended()
        assert (exchange.status, json.loads(exchange.body)["id"]) == (503, id)
    assert (await peer.call("ping", id="p"))["result"] == {}
    await peer.notify("notifications/cancelled", {"requestId": 0})
    assert await peer.post({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}) == 202
    assert await peer.next_message() == {"jsonrpc": "2.0", "id": "ask", "result": {"answer": {"roots": []}}}
    assert cancelled == [0]
    assert handler.shared.stats.refused == {"in_flight": 20}


async def test_notifications_that_have_handlers_count_as_work() -> None:
    server = Server("x", "1")
    release = asyncio.Event()

    @server.notification("work")
    async def work(ctx: Context, params: dict[str, Any]) -> None:
        await release.wait()

    peer = await SSEPeer(SSEHandler(lambda request: server, max_in_flight=2)).start()
    for _ in range(2):
        await peer.notify("work")
    assert await peer.post({"jsonrpc": "2.0", "method": "work"}) == 503
    await peer.notify("nobody/hears/this")
    await peer.notify("notifications/cancelled", {"requestId": 1})
    release.set()
    await asyncio.sleep(0.01)
    await peer.notify("work")


async def test_a_batch_over_the_limit_is_refused_member_by_member() -> None:
    server = Server("x", "1")

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    handler = SSEHandler(lambda request: server, max_in_flight=2)
    peer = await SSEPeer(handler).start("2025-03-26")
    ids = [1, 2, 3, 1, 4]
    assert await peer.post([{"jsonrpc": "2.0", "id": id, "method": "tools/call"} for id in ids]) == 202
    refused = [await peer.next_message() for _ in range(3)]
    assert [(m["id"], m["error"]["code"]) for m in refused] == [(3, -32603), (1, -32600), (4, -32603)]
    assert handler.shared.stats.refused == {"in_flight": 2, "duplicate_id": 1}


async def test_requests_of_all_sessions_together_are_capped() -> None:
    server = Server("x", "1")

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    handler = SSEHandler(lambda request: server, max_in_flight_total=2)
    shell = MemoryShell(handler)
    peers = [await SSEPeer(shell).start() for _ in range(3)]
    for peer in peers[:2]:
        await peer.request("tools/call")
    assert await peers[2].post({"jsonrpc": "2.0", "id": 1, "method": "tools/call"}) == 503
    assert (await peers[2].call("ping"))["result"] == {}
    peers[0].leave()
    await asyncio.sleep(0.01)
    await peers[2].request("tools/call")


async def test_unknown_options_are_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(TypeError, match=r"'max_session'.*max_sessions"):
        make_handler(max_session=5)
    with pytest.raises(TypeError, match="no option 'max_connections'"):
        make_handler(max_connections=5)


# C052, C071: requests side by side


async def test_the_second_of_two_requests_with_one_id_is_refused() -> None:
    """C052."""
    server = Server("x", "1")
    release = asyncio.Event()

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        await release.wait()
        return {"tool": params["name"]}

    peer = await SSEPeer(SSEHandler(lambda request: server)).start()
    await peer.request("tools/call", {"name": "first"}, id=1)
    exchange = peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "second"}})
    await exchange.until_ended()
    assert exchange.status == 400
    assert json.loads(exchange.body)["error"]["code"] == -32600
    await peer.request("tools/call", {"name": "text"}, id="1")
    release.set()
    answers = {type(m["id"]): m["result"]["tool"] for m in [await peer.next_message() for _ in range(2)]}
    assert answers == {int: "first", str: "text"}
    assert (await peer.call("tools/call", {"name": "again"}, id=1))["result"] == {"tool": "again"}


async def test_a_slow_request_keeps_nobody_waiting() -> None:
    """C071: ping, list and a short call overtake a long one; asking the client does not deadlock."""
    server = Server("x", "1")
    long = asyncio.Event()

    @server.method("tools/list")
    async def list_(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"tools": []}

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        if params["name"] == "ask":
            return dict(await ctx.request("sampling/createMessage", {"x": 1}))
        if params["name"] == "long":
            await long.wait()
        return {"name": params["name"]}

    peer = await SSEPeer(SSEHandler(lambda request: server)).start()
    await peer.request("tools/call", {"name": "long"}, id=1)
    assert (await peer.call("ping", id=2))["result"] == {}
    assert (await peer.call("tools/list", id=3))["result"] == {"tools": []}
    assert (await peer.call("tools/call", {"name": "short"}, id=4))["result"] == {"name": "short"}
    await peer.request("tools/call", {"name": "ask"}, id=5)
    question = await peer.next_message()
    assert (question["method"], question["params"]) == ("sampling/createMessage", {"x": 1})
    await peer.post({"jsonrpc": "2.0", "id": question["id"], "result": {"said": "yes"}})
    assert (await peer.next_message())["result"] == {"said": "yes"}
    long.set()
    assert (await peer.next_message())["result"] == {"name": "long"}


# Raw messages


async def test_an_async_function_may_read_the_raw_messages() -> None:
    """A9 with a Connection; the session ends when the function returns."""
    seen: list[Any] = []

    async def application(connection: Connection) -> None:
        async for message in connection:
            seen.append(message)
            if isinstance(message, RPCRequest):
                await connection.send(Response(message.id, {"raw": True}))
            elif isinstance(message, Notification):
                return

    handler = SSEHandler(lambda request: application)
    peer = await SSEPeer(handler).open()
    assert (await peer.call("anything"))["result"] == {"raw": True}
    await peer.notify("bye")
    await peer.get.until_ended()
    assert peer.get.aborted is None
    assert await peer.post(PING) == 404
    assert [type(message) for message in seen] == [RPCRequest, Notification]
    assert not handler._sessions
    assert not handler._raw_tasks


async def test_a_raw_application_that_fails_ends_its_session_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def application(connection: Connection) -> None:
        raise RuntimeError("broken")

    handler = SSEHandler(lambda request: application)
    peer = await SSEPeer(handler).open()
    await peer.get.until_ended()
    assert "broken" in caplog.text
    assert not handler._sessions


async def test_a_raw_application_is_cancelled_when_its_client_leaves() -> None:
    """A10."""
    ended = asyncio.Event()

    async def application(connection: Connection) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    handler = SSEHandler(lambda request: application)
    peer = await SSEPeer(handler).open()
    await asyncio.sleep(0)
    peer.leave()
    await asyncio.wait_for(ended.wait(), 5)
    assert not handler._raw_tasks
