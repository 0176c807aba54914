"""The official Python SDK's OAuth provider as our ``auth=``: the whole flow, from the challenge to the token."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from mcpfast import connect
from tests.support.scripted_server import Peer, Received, ScriptedServer
from tests.support.scripted_streamable import StreamableScript

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.fixture(autouse=True)
def sdk() -> None:
    """Skip without the SDK, unless it was said to be there."""
    if importlib.util.find_spec("mcp") is None:
        reason = "mcp not installed (the SDK needs Python 3.11)"
        if os.environ.get("MCPFAST_REQUIRE_INTEROP") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


class Protected:
    """A server that wants a token, and the authorization server that gives it, at one origin."""

    def __init__(self, script: StreamableScript) -> None:
        self.script = script
        self.origin = ""
        self.paths: list[str] = []
        self.unauthorized = 0
        self.tokens_seen: set[str | None] = set()

    async def __call__(self, peer: Peer) -> None:
        outer = self

        class Guarded:
            def __getattr__(self, name: str) -> Any:
                return getattr(peer, name)

            async def request(self) -> Received:
                while True:
                    received = await peer.request()
                    if not outer.serve(peer, received):
                        return received

        await self.script(Guarded())  # type: ignore[arg-type]

    def serve(self, peer: Peer, received: Received) -> bool:
        """Answer what is not for the protected server; tell whether it was that."""
        path = received.target.partition("?")[0]
        self.paths.append(path)
        origin = self.origin
        if path == "/mcp":
            token = received.header("authorization")
            self.tokens_seen.add(token)
            if token == "Bearer good":
                return False
            self.unauthorized += 1
            metadata = f"{origin}/elsewhere/metadata"
            peer.respond(401, b"", f'www-authenticate: Bearer resource_metadata="{metadata}"')
        elif path == "/elsewhere/metadata":
            self.reply(peer, {"resource": f"{origin}/mcp", "authorization_servers": [origin]})
        elif path == "/.well-known/oauth-authorization-server":
            endpoints = {f"{name}_endpoint": f"{origin}/{name}" for name in ("authorization", "token", "registration")}
            methods = {"code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"]}
            self.reply(peer, {"issuer": origin, **endpoints, **methods})
        elif path == "/registration":
            self.reply(peer, {**json.loads(received.body), "client_id": "client"}, 201)
        elif path == "/token":
            form = parse_qs(received.body.decode())
            assert form["code"] == ["the-code"]
            assert form["resource"] == [f"{origin}/mcp"]
            self.reply(peer, {"access_token": "good", "token_type": "Bearer", "expires_in": 3600})
        else:
            peer.respond(404)
        return True

    def reply(self, peer: Peer, value: Any, status: int = 200) -> None:
        peer.respond(status, json.dumps(value).encode())


class Storage:
    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


@pytest.mark.parametrize("modern", [True, False])
async def test_the_whole_flow_runs_over_the_native_client(anyio_backend: Any, modern: bool) -> None:
    """M26-C-27, M26-C-28; B12: the authorization server is found through the resource's metadata."""
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    asked: list[str] = []

    async def redirect(url: str) -> None:
        asked.append(url)

    async def callback() -> Any:
        state = parse_qs(urlsplit(asked[-1]).query)["state"][0]
        return AuthorizationCodeResult(code="the-code", state=state)

    protected = Protected(StreamableScript(modern=modern))
    async with ScriptedServer(protected) as server:
        protected.origin = server.origin
        metadata = OAuthClientMetadata(redirect_uris=["http://127.0.0.1:1/callback"], client_name="test")  # type: ignore[list-item]
        provider = OAuthClientProvider(f"{server.origin}/mcp", metadata, Storage(), redirect, callback)
        async with connect(f"{server.origin}/mcp", auth=provider) as client:
            assert client.protocol_version == ("2026-07-28" if modern else "2025-11-25")
            answers = await asyncio.gather(*[client.request("x", {"n": n}) for n in range(5)])
            assert [answer["params"]["n"] for answer in answers] == list(range(5))
    assert len(asked) == 1
    assert protected.unauthorized == 1
    assert "/elsewhere/metadata" in protected.paths
    assert protected.tokens_seen == {None, "Bearer good"}
