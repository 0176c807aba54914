"""Authorization over Streamable HTTP: whose token goes where, and what happens when it is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from mcpfast import connect
from mcpfast.errors import AuthorizationRequired
from tests.support.scripted_server import Peer, Received, ScriptedServer
from tests.support.scripted_streamable import StreamableScript, body_of, event, note, result_event
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

LEGACY = "2025-11-25"


class Token(httpx.Auth):
    """A token that is refreshed, with a request of its own, when it is refused."""

    def __init__(self, token_url: str) -> None:
        self.token_url = token_url
        self.token = "old"
        self.refreshed = 0
        self.lock = asyncio.Lock()

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        async with self.lock:  # as the SDK's OAuth provider does
            request.headers["authorization"] = f"Bearer {self.token}"
            response = yield request
            if response.status_code == 401:
                self.refreshed += 1
                answer = yield httpx.Request("POST", self.token_url)
                self.token = answer.json()["token"]
                request.headers["authorization"] = f"Bearer {self.token}"
                yield request


class Guarded:
    """A server that wants the token "new", and a token endpoint beside it."""

    def __init__(self, inner: StreamableScript, *, wants: str = "new") -> None:
        self.inner = inner
        self.wants = wants
        self.seen: list[tuple[str, str | None]] = []
        self.targets: list[str] = []

    async def __call__(self, peer: Peer) -> None:
        outer = self

        class Watched:
            def __getattr__(self, name: str) -> Any:
                return getattr(peer, name)

            async def request(self) -> Received:
                while True:
                    received = await peer.request()
                    outer.targets.append(received.target)
                    if received.target == "/token":
                        peer.respond(200, json.dumps({"token": "new"}).encode())
                        continue
                    token = received.header("authorization")
                    outer.seen.append((received.method, token))
                    if token == f"Bearer {outer.wants}":
                        return received
                    challenge = 'Bearer realm="x", error="invalid_token"'
                    peer.respond(401, b"who?", f"www-authenticate: {challenge}", content_type="text/plain")

        await self.inner(Watched())  # type: ignore[arg-type]


async def test_the_token_is_on_every_request_and_never_in_the_address(anyio_backend: Any) -> None:
    """M26-C-27; B12: POST, GET and DELETE, refreshed once."""
    script = StreamableScript()

    async def listen(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(event(note(1)))
        await peer.until_left()

    script.on("GET", listen)
    guarded = Guarded(script)
    seen: list[Any] = []
    async with ScriptedServer(guarded) as server:
        auth = Token(f"{server.origin}/token")
        async with connect(script.url(server), None, LEGACY, auth=auth, on_notification=seen.append) as client:
            await until(lambda: seen)
            await asyncio.gather(*[client.request("x") for _ in range(5)])
        assert auth.refreshed == 1
    assert guarded.seen[0] == ("POST", "Bearer old")
    assert set(guarded.seen[1:]) == {("POST", "Bearer new"), ("GET", "Bearer new"), ("DELETE", "Bearer new")}
    assert set(guarded.targets) == {"/mcp", "/token"}


async def test_a_flow_that_holds_a_lock_does_not_hold_it_over_a_stream(anyio_backend: Any) -> None:
    """The standing stream and a slow answer are open; other calls go on."""
    script = StreamableScript()
    gate = asyncio.Event()

    async def slow(peer: Peer, message: Any) -> None:
        peer.start_stream()
        await gate.wait()
        peer.chunk(result_event(message, {"slow": 1}))
        peer.end_stream()

    script.on("slow", slow)
    async with (
        ScriptedServer(Guarded(script, wants="old")) as server,
        connect(script.url(server), "http", LEGACY, auth=Token("http://127.0.0.1:9/")) as client,
    ):
        call = asyncio.ensure_future(client.request("slow"))
        await until(lambda: "slow" in script.methods())
        assert (await client.request("x", timeout=5))["method"] == "x"
        gate.set()
        assert await call == {"slow": 1}


async def test_a_server_that_refuses_every_token_is_asked_a_few_times(anyio_backend: Any) -> None:
    """C064: the error carries auth object and challenge, so that the application can run its flow (B12)."""
    guarded = Guarded(StreamableScript(), wants="never")
    async with ScriptedServer(guarded) as server:
        auth = Token(f"{server.origin}/token")
        with pytest.raises(AuthorizationRequired) as caught:
            await connect(f"{server.origin}/mcp", auth=auth).__aenter__()
        assert caught.value.auth is auth
        assert caught.value.challenge == 'Bearer realm="x", error="invalid_token"'
        assert len(guarded.seen) == 2
        assert all(method == "POST" for method, _ in guarded.seen)


async def test_a_403_is_not_tried_again(anyio_backend: Any) -> None:
    """C064"""
    script = StreamableScript(modern=True)
    script.on("x", lambda p, m: p.respond(403, b"", "www-authenticate: Bearer"))
    async with (
        ScriptedServer(Guarded(script, wants="old")) as server,
        connect(script.url(server), auth=Token("http://127.0.0.1:9/")) as client,
    ):
        with pytest.raises(AuthorizationRequired) as caught:
            await client.request("x")
        assert caught.value.status == 403
        assert script.methods().count("x") == 1


async def test_a_token_goes_nowhere_with_a_redirect_or_a_resumed_stream_elsewhere(anyio_backend: Any) -> None:
    """M26-C-27, C066"""
    script = StreamableScript()
    thief = StreamableScript()
    async with ScriptedServer(thief) as other, ScriptedServer(Guarded(script, wants="old")) as server:
        location = f"location: {other.origin}/mcp"
        script.on("x", lambda p, m: p.respond(307, b"", location))

        def broken(peer: Peer, message: Any) -> None:
            peer.start_stream()
            peer.chunk(b"id: 1\nretry: 1\ndata: \n\n")
            peer.end_stream()

        script.on("y", broken)
        script.on("GET", lambda p, m: p.respond(302, b"", location))
        script.on("DELETE", lambda p, m: p.respond(308, b"", location))
        script.on("z", lambda p, m: p.respond(200, body_of(m, {})))
        async with connect(script.url(server), "http", LEGACY, auth=Token("http://127.0.0.1:9/")) as client:
            for method in ("x", "y"):
                with pytest.raises(Exception, match="redirect to another origin"):
                    await client.request(method)
            assert await client.request("z") == {}
        assert not other.requests
