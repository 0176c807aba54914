"""``auth=``: Auth objects of httpx and httpx2, over the native client and their own."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpfast import connect
from mcpfast.client import SSEClientTransport
from mcpfast.errors import AuthorizationRequired, HTTPStatusError, ProtocolError
from tests.support.scripted_server import Peer, Received, ScriptedServer
from tests.support.scripted_sse import SSEScript

pytestmark = pytest.mark.anyio

LIBRARIES = [
    "httpx",
    pytest.param(
        "httpx2",
        marks=pytest.mark.skipif(importlib.util.find_spec("httpx2") is None, reason="httpx2 is not installed"),
    ),
]


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


class Guard:
    """Lets through who has the token; a script around another."""

    def __init__(self, inner: SSEScript, token: str) -> None:
        self.inner = inner
        self.token = token
        self.refused = 0
        self.tokens_given = 0

    async def __call__(self, peer: Peer) -> None:
        inner_request = peer.request

        async def request() -> Received:
            while True:
                received = await inner_request()
                if received.target.startswith("/token"):
                    self.tokens_given += 1
                    peer.respond(200, self.token.encode(), content_type="text/plain")
                elif received.header("authorization") != f"Bearer {self.token}":
                    self.refused += 1
                    peer.respond(401, b"who are you", 'WWW-Authenticate: Bearer error="invalid_token"')
                else:
                    return received

        peer.request = request  # type: ignore[method-assign]
        await self.inner(peer)


def refreshing(library: Any, token_url: str, *, give_up_after: int = 1) -> Any:
    """An Auth that asks for a token when it is refused."""

    class Refreshing(library.Auth):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.token = "old"
            self.lock = asyncio.Lock()

        async def async_auth_flow(self, request: Any) -> AsyncIterator[Any]:
            async with self.lock:
                request.headers["Authorization"] = f"Bearer {self.token}"
                response = yield request
                for _ in range(give_up_after):
                    if response.status_code != 401:
                        return
                    assert "invalid_token" in response.headers["www-authenticate"]
                    token = yield library.Request("GET", token_url)
                    self.token = (await token.aread()).decode()
                    request.headers["Authorization"] = f"Bearer {self.token}"
                    response = yield request

    return Refreshing()


async def test_basic_auth_is_put_on_every_request(anyio_backend: Any, library: Any) -> None:
    async with ScriptedServer(SSEScript()) as server:
        async with connect(server.url, "sse", auth=library.BasicAuth("user", "pass")) as client:
            await client.request("x")
        assert {r.header("authorization") for r in server.requests} == {"Basic dXNlcjpwYXNz"}
        assert {r.header("x-other") for r in server.requests} == {None}


async def test_headers_and_header_func_go_along_with_auth(anyio_backend: Any, library: Any) -> None:
    async def header_func() -> dict[str, str]:
        return {"X-Func": "f"}

    async with ScriptedServer(SSEScript()) as server:
        auth = library.BasicAuth("user", "pass")
        async with connect(server.url, "sse", auth=auth, headers={"X-Fixed": "h"}, header_func=header_func) as client:
            await client.request("x", headers={"X-Call": "c"})
        received = server.requests[-1]
        assert [received.header(name) for name in ("x-fixed", "x-func", "x-call")] == ["h", "f", "c"]
        assert received.header("accept-encoding") == "identity"
        assert received.header("content-type") == "application/json"


async def test_a_flow_may_fetch_a_token_and_have_the_request_sent_again(anyio_backend: Any, library: Any) -> None:
    """And its lock is not held while the stream is read, or the first POST would never go out."""
    guard = Guard(SSEScript(), "fresh")
    async with ScriptedServer(guard) as server:
        auth = refreshing(library, f"{server.origin}/token")
        async with connect(server.url, "sse", auth=auth) as client:
            assert await client.request("x") == {"method": "x", "params": None}
            await asyncio.gather(*[client.request("y") for _ in range(5)])
            guard.token = "newer"
            assert await client.request("z") is not None
        assert (guard.refused, guard.tokens_given) == (2, 2)
        await server.until(lambda: server.open_connections == 0)


async def test_a_refusal_in_spite_of_a_new_token_reaches_the_caller(anyio_backend: Any, library: Any) -> None:
    """C064"""
    guard = Guard(SSEScript(), "fresh")
    async with ScriptedServer(guard) as server:
        auth = refreshing(library, f"{server.origin}/nowhere")  # gives 401's body as token

        with pytest.raises(AuthorizationRequired) as caught:
            await connect(server.url, "sse", auth=auth).__aenter__()
        assert caught.value.auth is auth
        assert caught.value.challenge == 'Bearer error="invalid_token"'
        assert caught.value.body == b"who are you"
        assert len(server.requests) + guard.refused < 10
        await server.until(lambda: server.open_connections == 0)


async def test_a_refusal_is_the_news_when_no_token_could_be_had(anyio_backend: Any, library: Any) -> None:
    """C064: the flow ends with its own request; what was refused is ours."""
    guard = Guard(SSEScript(), "never")
    async with ScriptedServer(guard) as server:

        class Failing(library.Auth):  # type: ignore[misc, name-defined]
            def auth_flow(self, request: Any) -> Any:
                yield request
                yield library.Request("GET", f"{server.origin}/token")

        with pytest.raises(AuthorizationRequired) as caught:
            await connect(server.url, "sse", auth=Failing()).__aenter__()
        assert caught.value.challenge == 'Bearer error="invalid_token"'
        assert (guard.refused, guard.tokens_given) == (1, 1)


async def test_a_flow_without_end_is_stopped(anyio_backend: Any, library: Any) -> None:
    """C064: by the refusal itself, as the caller can do something about that."""
    guard = Guard(SSEScript(), "never")
    async with ScriptedServer(guard) as server:

        class Stubborn(library.Auth):  # type: ignore[misc, name-defined]
            def auth_flow(self, request: Any) -> Any:
                while True:
                    yield request

        with pytest.raises(AuthorizationRequired, match="who are you") as caught:
            await connect(server.url, "sse", auth=Stubborn()).__aenter__()
        assert caught.value.challenge == 'Bearer error="invalid_token"'
        assert guard.refused == 3

        guard.token = "let-in"

        class Unsatisfied(library.Auth):  # type: ignore[misc, name-defined]
            def auth_flow(self, request: Any) -> Any:
                request.headers["Authorization"] = "Bearer let-in"
                while True:
                    yield request

        with pytest.raises(ProtocolError, match=r"GET .* 4 times"):
            await connect(server.url, "sse", auth=Unsatisfied()).__aenter__()

        class Chatty(library.Auth):  # type: ignore[misc, name-defined]
            def auth_flow(self, request: Any) -> Any:
                yield request
                while True:
                    yield library.Request("GET", f"{server.origin}/token")

        with pytest.raises(ProtocolError, match="21 requests of its own"):
            await connect(server.url, "sse", auth=Chatty()).__aenter__()

        class Silent(library.Auth):  # type: ignore[misc, name-defined]
            def auth_flow(self, request: Any) -> Any:
                yield library.Request("GET", f"{server.origin}/token")

        with pytest.raises(ProtocolError, match="without sending"):
            await connect(server.url, "sse", auth=Silent()).__aenter__()


async def test_what_a_flow_raises_reaches_the_caller(anyio_backend: Any, library: Any) -> None:
    class Broken(library.Auth):  # type: ignore[misc, name-defined]
        def auth_flow(self, request: Any) -> Any:
            raise LookupError("no login today")
            yield request

    async with ScriptedServer(SSEScript()) as server:
        with pytest.raises(LookupError, match="no login"):
            await connect(server.url, "sse", auth=Broken()).__aenter__()
        assert server.requests == []


async def test_credentials_of_auth_do_not_follow_a_redirect_elsewhere(anyio_backend: Any, library: Any) -> None:
    """C066"""
    async with ScriptedServer(SSEScript()) as other:

        async def script(peer: Peer) -> None:
            await peer.request()
            peer.respond(307, b"", f"location: {other.url}")

        async with ScriptedServer(script) as server:
            with pytest.raises(HTTPStatusError, match="another origin"):
                await connect(server.url, "sse", auth=library.BasicAuth("user", "pass")).__aenter__()
        assert other.requests == []


async def test_auth_works_over_the_users_own_client(anyio_backend: Any, library: Any) -> None:
    async with ScriptedServer(SSEScript()) as server, library.AsyncClient(trust_env=False, verify=False) as http_client:
        auth = library.BasicAuth("user", "pass")
        async with connect(server.url, "sse", auth=auth, http_client=http_client) as client:
            await client.request("x")
        assert {r.header("authorization") for r in server.requests} == {"Basic dXNlcjpwYXNz"}


async def test_a_call_that_is_cancelled_ends_its_flow(anyio_backend: Any, library: Any) -> None:
    ended = asyncio.Event()

    class Watched(library.Auth):  # type: ignore[misc, name-defined]
        async def async_auth_flow(self, request: Any) -> AsyncIterator[Any]:
            try:
                yield request
            finally:
                if b"slow" in request.content:
                    ended.set()

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if message.get("method") == "slow":
            await peer.until_left()
            return True
        return False

    script = SSEScript(on_post=on_post)
    async with ScriptedServer(script) as server, connect(server.url, "sse", auth=Watched()) as client:
        task = asyncio.ensure_future(client.request("slow"))
        await script.until(lambda: "slow" in script.methods())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), 5)
        assert await client.request("x") is not None


async def test_tokens_stay_out_of_messages_and_logs(
    anyio_backend: Any, library: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mcpfast")
    guard = Guard(SSEScript(), "secret")
    async with ScriptedServer(guard) as server:
        auth = refreshing(library, f"{server.origin}/token")
        transport = SSEClientTransport(server.url, auth=auth)
        async with transport as connection:
            shown = repr(transport) + repr(connection) + caplog.text
        assert "secret" not in shown
