"""Our client joined to our server: in memory, and over real sockets with each HTTP client."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpfast import Server, connect, serve
from mcpfast.client import Client, SSEClientTransport
from mcpfast.errors import HTTPStatusError, MethodNotAllowed, RPCError, TransportClosed
from mcpfast.jsonrpc import Notification, Request, Response
from mcpfast.server import Context, SSEHandler
from tests.support.memory_backend import MemoryBackend

pytestmark = pytest.mark.anyio

WAIT_S = 10.0


def make_server() -> Server:
    server = Server("joined", "1", instructions="none")

    @server.method("tools/call")
    async def call(ctx: Context, params: Any) -> Any:
        name = params["name"]
        if name == "echo":
            return {"text": params["arguments"]["text"]}
        if name == "progress":
            for done in range(3):
                await ctx.progress(done, 3, f"step {done}")
            return {}
        if name == "ask":
            return {"answer": await ctx.request("roots/list", {"a": 1})}
        if name == "notify":
            await ctx.notify("notifications/x", {"n": 1})
            return {}
        if name == "wait":
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
        raise RPCError(-32602, "no such tool")

    started, cancelled = asyncio.Event(), asyncio.Event()
    server.started, server.cancelled = started, cancelled  # type: ignore[attr-defined]
    return server


JOINS = [
    "memory",
    "native",
    "httpx",
    pytest.param(
        "httpx2",
        marks=pytest.mark.skipif(importlib.util.find_spec("httpx2") is None, reason="httpx2 is not installed"),
    ),
]


class Joined:
    """A server, and a way to connect to it."""

    def __init__(self, server: Server, url: str, http_client: Any) -> None:
        self.server = server
        self.url = url
        self.http_client = http_client

    def connect(self, **options: Any) -> Any:
        return connect(self.url, "sse", http_client=self.http_client, **options)


@pytest.fixture(params=JOINS)
async def joined(request: pytest.FixtureRequest, anyio_backend: Any) -> AsyncIterator[Joined]:
    server = make_server()
    if request.param == "memory":
        backend = MemoryBackend(SSEHandler(lambda request: server, allowed_hosts=["localhost"]))
        yield Joined(server, "http://localhost/sse", backend)
        await backend.aclose()
        return
    async with serve(server) as listener:
        if request.param == "native":
            yield Joined(server, listener.sse_url, None)
        else:
            library = importlib.import_module(request.param)
            async with library.AsyncClient(trust_env=False, verify=False) as http_client:
                yield Joined(server, listener.sse_url, http_client)


async def test_a_session_from_handshake_to_close(joined: Joined) -> None:
    """A13 to A17 and H24-C-01 to -03 with our own server on the other side."""
    seen: list[Notification] = []
    asked: list[Request] = []

    def on_request(request: Request) -> Any:
        asked.append(request)
        return {"roots": []}

    options: Any = {"on_notification": seen.append, "on_request": on_request, "capabilities": {"roots": {}}}
    async with joined.connect(**options) as client:
        assert isinstance(client, Client)
        assert client.server_info["name"] == "joined"
        assert client.instructions == "none"
        assert await client.request("ping") == {}
        echo = {"name": "echo", "arguments": {"text": "é\u2028\n" * 10}}
        assert (await client.request("tools/call", echo))["text"] == "é\u2028\n" * 10

        progress: list[Any] = []
        call = client.request("tools/call", {"name": "progress"}, on_progress=lambda *p: progress.append(p))
        await call
        assert progress == [(n, 3, f"step {n}") for n in range(3)]

        assert (await client.request("tools/call", {"name": "ask"}))["answer"] == {"roots": []}
        assert asked[0].params == {"a": 1}
        await client.request("tools/call", {"name": "notify"})
        assert seen == [Notification("notifications/x", {"n": 1})]
        with pytest.raises(RPCError, match="no such tool"):
            await client.request("tools/call", {"name": "other"})
        with pytest.raises(RPCError) as caught:
            await client.request("no/such")
        assert caught.value.code == -32601
    with pytest.raises(TransportClosed):
        await client.request("ping")


async def test_many_calls_at_once(joined: Joined) -> None:
    async with joined.connect() as client:

        async def one(number: int) -> Any:
            return await client.request("tools/call", {"name": "echo", "arguments": {"text": str(number)}})

        answers = await asyncio.gather(*[one(number) for number in range(100)])
        assert [answer["text"] for answer in answers] == [str(number) for number in range(100)]


async def test_results_of_eight_mebibytes(joined: Joined) -> None:
    """The server takes 4 MiB per request, so each sends half and gets both back."""
    server = joined.server

    @server.method("twice")
    async def twice(ctx: Context, params: Any) -> Any:
        return {"text": params["text"] * 2}

    text = "x" * ((4 << 20) - 200)
    async with joined.connect() as client:
        assert (await client.request("twice", {"text": text}))["text"] == text * 2


async def test_a_cancelled_call_is_cancelled_on_the_server(joined: Joined) -> None:
    server: Any = joined.server
    async with joined.connect() as client:
        task = asyncio.ensure_future(client.request("tools/call", {"name": "wait"}))
        await asyncio.wait_for(server.started.wait(), WAIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.cancelled.wait(), WAIT_S)
        assert await client.request("ping") == {}


async def test_closing_the_client_ends_the_session_and_its_work(joined: Joined) -> None:
    server: Any = joined.server
    async with joined.connect() as client:
        task = asyncio.ensure_future(client.request("tools/call", {"name": "wait"}))
        await asyncio.wait_for(server.started.wait(), WAIT_S)
    with pytest.raises(TransportClosed):
        await task
    await asyncio.wait_for(server.cancelled.wait(), WAIT_S)


async def test_raw_messages_over_a_connection(joined: Joined) -> None:
    transport = SSEClientTransport(joined.url, http_client=joined.http_client)
    async with transport as connection:
        hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        await connection.send(Request("one", "initialize", hello))
        answer = await connection.recv()
        assert isinstance(answer, Response)
        assert (answer.id, answer.result["protocolVersion"]) == ("one", "2024-11-05")
        await connection.send(Notification("notifications/initialized"))
        await connection.send(Request(2, "ping"))
        assert await connection.recv() == Response(2, {})


async def test_a_server_that_stops_ends_the_client_with_a_cause_or_clean(anyio_backend: Any) -> None:
    async with serve(make_server()) as listener, connect(listener.sse_url, "sse") as client:
        await listener.close()
        with pytest.raises(TransportClosed):
            await client.request("ping")


async def test_a_path_that_is_no_sse_is_refused_by_status(anyio_backend: Any) -> None:
    async with serve(make_server()) as listener:
        with pytest.raises(HTTPStatusError, match="404"):
            await connect(listener.sse_url + "/nowhere", "sse").__aenter__()
        if listener.url != listener.sse_url:
            with pytest.raises((HTTPStatusError, MethodNotAllowed)):
                await connect(listener.url, "sse").__aenter__()


async def test_published_messages_reach_every_client(anyio_backend: Any) -> None:
    server = make_server()
    async with serve(server) as listener:
        got: list[asyncio.Event] = []
        clients = []
        for _ in range(5):
            event = asyncio.Event()
            got.append(event)
            cm = connect(listener.sse_url, "sse", on_notification=lambda n, event=event: event.set())
            clients.append(cm)
            await cm.__aenter__()
        server.publish("notifications/tools/list_changed", None)
        for event in got:
            await asyncio.wait_for(event.wait(), WAIT_S)
        for cm in clients:
            await cm.__aexit__(None, None, None)
