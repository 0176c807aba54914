"""StreamableHTTPClientTransport joined to our own server: in memory, and over each HTTP client; both eras."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpfast import serve
from mcpfast.client import StreamableHTTPClientTransport
from mcpfast.jsonrpc import Notification, Request, Response
from mcpfast.server import StreamableHTTPHandler
from tests.server.streamable_peer import make_server, modern_meta
from tests.support.memory_backend import MemoryBackend

pytestmark = pytest.mark.anyio

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}

JOINS = [
    "memory",
    "native",
    "httpx",
    pytest.param(
        "httpx2",
        marks=pytest.mark.skipif(importlib.util.find_spec("httpx2") is None, reason="httpx2 is not installed"),
    ),
]


@pytest.fixture(params=JOINS)
async def transport(request: pytest.FixtureRequest, anyio_backend: Any) -> AsyncIterator[StreamableHTTPClientTransport]:
    server = make_server()
    if request.param == "memory":
        backend = MemoryBackend(StreamableHTTPHandler(lambda request: server, allowed_hosts=["localhost"]))
        yield StreamableHTTPClientTransport("http://localhost/mcp", http_client=backend)
        await backend.aclose()
        return
    async with serve(server) as listener:
        if request.param == "native":
            yield StreamableHTTPClientTransport(listener.url)
        else:
            library = importlib.import_module(request.param)
            async with library.AsyncClient(trust_env=False, verify=False) as http_client:
                yield StreamableHTTPClientTransport(listener.url, http_client=http_client)


async def test_requests_of_2026_answered_by_json_and_by_a_stream(transport: StreamableHTTPClientTransport) -> None:
    """M26-C-01 to M26-C-06: the headers that our server checks against the body are right, both answers are read."""
    async with transport as connection:
        await connection.send(Request(1, "tools/call", {"name": "é", "arguments": {"a": 1}, "_meta": modern_meta()}))
        answer = await connection.recv()
        assert isinstance(answer, Response)
        assert (answer.id, answer.result["echo"], answer.result["name"]) == (1, {"a": 1}, "é")
        await connection.send(Request("two", "say", {"count": 2, "_meta": modern_meta()}))
        for number in range(2):
            assert await connection.recv() == Notification("notifications/said", {"number": number})
        answer = await connection.recv()
        assert isinstance(answer, Response)
        assert (answer.id, answer.result["said"]) == ("two", 2)


async def test_a_session_with_requests_of_the_server(transport: StreamableHTTPClientTransport) -> None:
    """B1, B3, B5, B7, B14; L25-C-01, -03, -09, -12: the server would refuse what lacks session id or version."""
    async with transport as connection:
        await connection.send(Request(1, "initialize", HELLO))
        answer = await connection.recv()
        assert isinstance(answer, Response)
        assert answer.result["protocolVersion"] == "2025-11-25"
        await connection.send(Notification("notifications/initialized"))
        await connection.send(Request(2, "say", {"count": 1}))
        assert await connection.recv() == Notification("notifications/said", {"number": 0})
        assert await connection.recv() == Response(2, {"said": 1})
        await connection.send(Request(3, "ask", {}))
        asked = await connection.recv()
        assert isinstance(asked, Request)
        await connection.send(Response(asked.id, {"role": "assistant"}))
        assert await connection.recv() == Response(3, {"answer": {"role": "assistant"}})
        # What a notification's handler says belongs to no request, so it comes on the GET stream.
        await connection.send(Notification("notifications/tell", {"a": 1}))
        assert await connection.recv() == Notification("notifications/told", {"a": 1})
