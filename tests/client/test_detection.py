"""connect() finds out what a server speaks, and takes no outage for an old server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfast import Server, connect, serve
from mcpfast.client import detection
from mcpfast.errors import (
    AuthorizationRequired,
    EndpointMissing,
    HTTPStatusError,
    ProtocolError,
    RequestTimeout,
    RPCError,
    UnexpectedContentType,
)
from mcpfast.server import Context
from tests.support.scripted_server import Peer, Received, ScriptedServer
from tests.support.scripted_sse import SSEScript
from tests.support.scripted_streamable import StreamableScript, body_of, error_of, event, result_event

pytestmark = pytest.mark.anyio

DISCOVER = "server/discover"


def discovered(*versions: str) -> Any:
    result = {"supportedVersions": list(versions), "capabilities": {}, "instructions": "be kind"}
    return lambda peer, message: peer.respond(200, body_of(message, result))


async def enter_and_leave(url: str, *args: Any, **options: Any) -> tuple[str, str | None]:
    async with connect(url, *args, **options) as client:
        return client.protocol_version, client.session_id


# Each kind of server


async def test_our_own_server_at_its_two_addresses(anyio_backend: Any) -> None:
    """M26-C-25, L25-C-14: one endpoint for all, and the old one."""
    server = Server("both", "1", instructions="be kind")

    @server.method("who")
    async def who(ctx: Context, params: Any) -> Any:
        return {"version": ctx.protocol_version}

    async with serve(server) as listener:
        for url, version in ((listener.url, "2026-07-28"), (listener.sse_url, "2025-11-25")):
            async with connect(url) as client:
                assert client.protocol_version == version
                assert client.server_info == {"name": "both", "version": "1"}
                assert client.instructions == "be kind"
                assert (await client.request("who"))["version"] == version
        for version in ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"):
            async with connect(listener.url, protocol_version=version) as client:
                assert (await client.request("who"))["version"] == version
                assert (client.session_id is None) == (version == "2026-07-28")
        async with connect(listener.sse_url, protocol_version="2024-11-05") as client:
            assert (await client.request("who"))["version"] == "2024-11-05"


async def test_a_server_of_2026_is_asked_once(anyio_backend: Any) -> None:
    script = StreamableScript(modern=True)
    script.on(DISCOVER, discovered("2026-07-28", "2025-11-25"))
    async with ScriptedServer(script) as server:
        async with connect(script.url(server)) as client:
            assert client.protocol_version == "2026-07-28"
            assert client.instructions == "be kind"
        assert script.methods() == [DISCOVER]


async def test_a_list_of_older_versions_is_obeyed(anyio_backend: Any) -> None:
    """M26-C-14: the newest of those we know."""
    script = StreamableScript(version="2025-06-18")
    script.on(DISCOVER, discovered("2025-03-26", "2025-06-18", "2030-01-01"))
    async with ScriptedServer(script) as server:
        assert await enter_and_leave(script.url(server)) == ("2025-06-18", "session-1")
        assert script.posts[1][0]["params"]["protocolVersion"] == "2025-06-18"


@pytest.mark.parametrize("status", [200, 400])
async def test_an_unsupported_version_is_no_old_server_but_a_choice(anyio_backend: Any, status: int) -> None:
    """M26-C-14, M26-C-24, C048: no GET."""
    script = StreamableScript(version="2025-06-18")
    data = {"supported": ["2025-06-18"], "requested": "2026-07-28"}
    script.on(DISCOVER, lambda p, m: p.respond(status, error_of(m, -32022, "no", data)))
    async with ScriptedServer(script) as server:
        assert await enter_and_leave(script.url(server), continuous_listening=False) == ("2025-06-18", "session-1")
        assert script.posts[1][0]["params"]["protocolVersion"] == "2025-06-18"
        assert not script.gets


async def test_nothing_in_common_is_said(anyio_backend: Any) -> None:
    script = StreamableScript()
    data = {"supported": ["2030-01-01"], "requested": "2026-07-28"}
    script.on(DISCOVER, lambda p, m: p.respond(400, error_of(m, -32022, "no", data)), discovered("2030-01-01"))
    async with ScriptedServer(script) as server:
        for _ in range(2):
            with pytest.raises(ProtocolError, match="server serves protocol versions 2030-01-01, this client"):
                await enter_and_leave(script.url(server))
        assert set(script.methods()) == {DISCOVER}


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_a_modern_error_means_a_modern_server(anyio_backend: Any, code: int) -> None:
    """M26-C-24"""
    script = StreamableScript()
    script.on(DISCOVER, lambda p, m: p.respond(400, error_of(m, code, "no")))
    async with ScriptedServer(script) as server:
        with pytest.raises(RPCError) as caught:
            await enter_and_leave(script.url(server))
        assert caught.value.code == code
        assert script.methods() == [DISCOVER]


def answers_to_an_unknown_method() -> list[Any]:
    def stream(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(event(json.loads(error_of(message, -32601, "method not found"))))
        peer.end_stream()

    def nothing(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.end_stream()

    return [
        lambda p, m: p.respond(400, b"Bad Request: no valid session ID", content_type="text/plain"),
        lambda p, m: p.respond(400, error_of(m, -32000, "Bad Request: Server not initialized")),
        lambda p, m: p.respond(400, b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"m"}}'),
        lambda p, m: p.respond(404, error_of(m, -32601, "method not found")),
        lambda p, m: p.respond(200, error_of(m, -32601, "method not found")),
        lambda p, m: p.respond(200, error_of(m, -32602, "invalid request parameters")),
        lambda p, m: p.respond(422),
        lambda p, m: p.respond(202),
        stream,
        nothing,
    ]


@pytest.mark.parametrize("number", range(10))
async def test_what_servers_with_initialize_say_to_a_method_they_do_not_know(anyio_backend: Any, number: int) -> None:
    """M26-C-25: then initialize follows, without what the probe had."""
    script = StreamableScript()
    script.on(DISCOVER, answers_to_an_unknown_method()[number])
    async with ScriptedServer(script) as server:
        assert await enter_and_leave(script.url(server)) == ("2025-11-25", "session-1")
        assert script.methods() == [DISCOVER, "initialize", "notifications/initialized"]
        for name in ("mcp-protocol-version", "mcp-method", "mcp-session-id"):
            assert script.posts[1][1].header(name) is None
        assert "_meta" not in script.posts[1][0]["params"]


@pytest.mark.parametrize("status", [400, 404, 405, 406, 415])
async def test_a_post_that_an_old_server_refuses_leads_to_http_sse(anyio_backend: Any, status: int) -> None:
    """M26-C-25, L25-C-14, L06-C-02, C048: one GET, which brings the endpoint."""

    class Old(SSEScript):
        async def __call__(self, peer: Peer) -> None:
            while True:
                received = await peer.request()
                everything.append(received)
                if received.target == "/sse" and received.method == "POST":
                    peer.respond(status)
                elif received.method == "GET":
                    peer.start_stream()
                    peer.chunk(self.first)
                    self.streams.append(peer)
                    await peer.until_left()
                    return
                else:
                    message = json.loads(received.body)
                    peer.respond(202)
                    if "id" in message:
                        self.answer(message)

    everything: list[Received] = []
    async with ScriptedServer(Old()) as server:
        async with connect(server.url, headers={"x-key": "k"}) as client:
            assert client.session_id is None
            assert await client.request("x") == {"method": "x", "params": None}
        kinds = [(received.method, received.target.partition("?")[0]) for received in everything]
        assert kinds[:3] == [("POST", "/sse"), ("POST", "/sse"), ("GET", "/sse")]
        assert len([kind for kind in kinds if kind[0] == "GET"]) == 1
        assert all(received.header("x-key") == "k" for received in everything)


# What is no old server


@pytest.mark.parametrize("status", [401, 403, 408, 429, 500, 502, 503])
@pytest.mark.parametrize("at", [DISCOVER, "initialize"])
async def test_a_refusal_that_says_nothing_of_age_is_the_error(anyio_backend: Any, status: int, at: str) -> None:
    """C048: no GET, no other try."""
    script = StreamableScript()
    script.on(at, lambda p, m: p.respond(status, b"", "www-authenticate: Bearer"))
    async with ScriptedServer(script) as server:
        with pytest.raises(HTTPStatusError) as caught:
            await enter_and_leave(script.url(server))
        assert caught.value.status == status
        assert isinstance(caught.value, AuthorizationRequired) == (status in (401, 403))
        assert script.methods() == ([DISCOVER] if at == DISCOVER else [DISCOVER, "initialize"])
        assert not script.gets
        await server.until(lambda: server.open_connections == 0)


async def test_an_outage_is_the_error(anyio_backend: Any) -> None:
    """C048"""
    script = StreamableScript()
    async with ScriptedServer(script) as server:
        url = script.url(server)
        script.on(DISCOVER, lambda p, m: p.abort())
        with pytest.raises(ConnectionError):
            await enter_and_leave(url)
        script.on(DISCOVER, lambda p, m: p.respond(200, b"<html>", content_type="text/html"))
        with pytest.raises(UnexpectedContentType):
            await enter_and_leave(url)
        assert set(script.methods()) == {DISCOVER}
    with pytest.raises(ConnectionError, match="cannot connect"):
        await enter_and_leave(url)


async def test_a_get_that_is_refused_too_makes_the_first_refusal_the_news(anyio_backend: Any) -> None:
    script = StreamableScript()
    script.on("initialize", lambda p, m: p.respond(404, b"wrong address", content_type="text/plain"))
    async with ScriptedServer(script) as server:
        with pytest.raises(HTTPStatusError, match="404: wrong address"):
            await enter_and_leave(script.url(server))
        assert len(script.gets) == 1
        script.on("GET", lambda p, m: p.respond(401))
        with pytest.raises(AuthorizationRequired):
            await enter_and_leave(script.url(server))

        def stream(peer: Peer, message: Any) -> None:
            peer.start_stream()
            peer.chunk(b"data: no endpoint\n\n")

        script.on("GET", stream)
        with pytest.raises(EndpointMissing):
            await enter_and_leave(script.url(server))
        await server.until(lambda: server.open_connections == 0)


@pytest.mark.parametrize("code", [-32020, -32022])
async def test_a_modern_error_to_initialize_leads_to_no_get(anyio_backend: Any, code: int) -> None:
    """M26-C-24"""
    script = StreamableScript()
    script.on("initialize", lambda p, m: p.respond(400, error_of(m, code, "no")))
    async with ScriptedServer(script) as server:
        with pytest.raises(RPCError):
            await enter_and_leave(script.url(server))
        assert not script.gets


# What is fixed


async def test_a_fixed_transport_or_version_is_all_that_is_tried(anyio_backend: Any) -> None:
    script = StreamableScript()
    async with ScriptedServer(script) as server:
        url = script.url(server)
        await enter_and_leave(url, None, "2025-06-18")
        assert DISCOVER not in script.methods()
        script.on("initialize", lambda p, m: p.respond(405))
        script.posts.clear()
        script.gets.clear()
        for name in ("streamable-http", "http"):
            with pytest.raises(HTTPStatusError, match="405"):
                await enter_and_leave(url, name)
        assert not script.gets
        script.posts.clear()
        with pytest.raises(RPCError):
            await enter_and_leave(url, None, "2026-07-28")
        assert script.methods() == [DISCOVER]
        script.on(DISCOVER, discovered("2025-11-25"))
        with pytest.raises(ProtocolError, match="does not serve protocol version 2026-07-28"):
            await enter_and_leave(url, None, "2026-07-28")
        script.on(DISCOVER, lambda p, m: p.respond(404, error_of(m, -32601, "no such method")))
        assert await enter_and_leave(url, None, "2026-07-28") == ("2026-07-28", None)


# What is remembered


async def test_what_was_found_out_is_remembered_and_found_out_anew_when_it_fails(anyio_backend: Any) -> None:
    """M26-C-26"""
    script = StreamableScript()
    async with ScriptedServer(script) as server:
        url = script.url(server)
        await enter_and_leave(url)
        await enter_and_leave(url)
        await enter_and_leave(url + "?tenant=1")
        assert script.methods().count(DISCOVER) == 1
        # The server was replaced by one of 2026-07-28.
        script.on("initialize", lambda p, m: p.respond(404, error_of(m, -32601, "no such method")))
        script.on(DISCOVER, discovered("2026-07-28"))
        assert await enter_and_leave(url) == ("2026-07-28", None)
        script.posts.clear()
        assert await enter_and_leave(url) == ("2026-07-28", None)
        assert script.methods() == [DISCOVER]


async def test_another_server_in_the_same_place_is_asked_again(anyio_backend: Any) -> None:
    """M26-C-26: also when it still answers to initialize."""
    script = StreamableScript()
    async with ScriptedServer(script) as server:
        url = script.url(server)
        await enter_and_leave(url)

        def newer(peer: Peer, message: Any) -> None:
            info = {"name": "scripted", "version": "2"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}
            peer.respond(200, body_of(message, result), "mcp-session-id: s2")

        script.on("initialize", newer)
        script.on(DISCOVER, discovered("2026-07-28"))
        assert await enter_and_leave(url) == ("2026-07-28", None)
        assert len(script.deletes) == 2, "the session that was begun in vain is ended"


async def test_an_outage_does_not_make_it_forgotten(anyio_backend: Any) -> None:
    script = StreamableScript()
    async with ScriptedServer(script) as server:
        url = script.url(server)
        await enter_and_leave(url)
        script.on("initialize", lambda p, m: p.respond(503), lambda p, m: script.answer(p, m, None))  # type: ignore[arg-type]
        with pytest.raises(HTTPStatusError, match="503"):
            await enter_and_leave(url)
        await enter_and_leave(url)
        assert script.methods().count(DISCOVER) == 1


async def test_an_old_server_is_remembered_too(anyio_backend: Any) -> None:
    async with ScriptedServer(SSEScript()) as server:
        for _ in range(2):
            await enter_and_leave(server.url)
        at_the_stream = [received.method for received in server.requests if received.target == "/sse"]
        assert at_the_stream == ["POST", "POST", "GET", "GET"]


async def test_how_much_is_remembered_is_bounded(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "MAX_REMEMBERED", 3)
    script = StreamableScript()
    async with ScriptedServer(script) as server:
        for number in range(5):
            await enter_and_leave(f"{server.origin}/{number}")
        assert len(detection._remembered) == 3


async def test_a_probe_that_is_not_answered_is_a_time_out(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script = StreamableScript()
    script.on(DISCOVER, lambda p, m: p.until_left())
    async with ScriptedServer(script) as server:
        with pytest.raises(RequestTimeout):
            async with connect(script.url(server), "http", handshake=False) as client:
                await client.discover(timeout=0.1)
        await server.until(lambda: server.open_connections == 0)


async def test_a_probe_answered_by_a_stream(anyio_backend: Any) -> None:
    script = StreamableScript()

    def stream(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(result_event(message, {"supportedVersions": ["2026-07-28"], "capabilities": {}}))
        peer.end_stream()

    script.on(DISCOVER, stream)
    async with ScriptedServer(script) as server:
        assert await enter_and_leave(script.url(server)) == ("2026-07-28", None)


@pytest.mark.parametrize("result", [None, [], {}, {"supportedVersions": "2026-07-28"}])
async def test_nonsense_from_discover_is_no_answer_of_2026(anyio_backend: Any, result: Any) -> None:
    script = StreamableScript()
    script.on(DISCOVER, lambda p, m: p.respond(200, body_of(m, result)))
    async with ScriptedServer(script) as server:
        assert await enter_and_leave(script.url(server)) == ("2025-11-25", "session-1")


@pytest.mark.parametrize("listed", [[], [1, {}, None], ["2024-01-01"]])
async def test_a_list_without_a_version_of_ours_is_an_error(anyio_backend: Any, listed: Any) -> None:
    script = StreamableScript()
    script.on(DISCOVER, lambda p, m: p.respond(200, body_of(m, {"supportedVersions": listed})))
    async with ScriptedServer(script) as server:
        with pytest.raises(ProtocolError, match="server serves protocol versions"):
            await enter_and_leave(script.url(server))
