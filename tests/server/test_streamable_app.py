"""Streamable HTTP and HTTP+SSE in one application: paths, sockets, ASGI, the end."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any

import pytest

from mcpfast.http.asgi import ASGIApp
from mcpfast.server import MemoryEventStore, serve
from mcpfast.server.app import App
from mcpfast.server.options import ServerOptions
from tests.server.sse_peer import SSEPeer
from tests.server.streamable_peer import Gates, Peer, initialize, make_server, modern_meta

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]


def make_app(**options: Any) -> App:
    return App(make_server(), ServerOptions(**options))


async def test_one_server_speaks_every_revision_side_by_side() -> None:
    """L25-S-25, M26-S-63: the two old endpoints stand next to the one new one."""
    app = make_app()
    old = await SSEPeer(app).start()
    session = await Peer(app).initialize()
    assert (await session.request("who").ended()).json()["result"]["version"] == "2025-11-25"
    assert (await session.modern("who").ended()).json()["result"]["version"] == "2026-07-28"
    assert (await old.call("who"))["result"]["version"] == "2024-11-05"
    stream = await session.send("GET").started()
    listen = await session.modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}).started()
    await listen.next_message()
    app.server.publish("notifications/tools/list_changed")
    for message in (await old.next_message(), await stream.next_message(), await listen.next_message()):
        assert message["method"] == "notifications/tools/list_changed"
    await app.drain(1)
    assert app.shared.stats.sessions == app.shared.stats.streams == 0


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_the_path_is_served_with_and_without_a_slash_and_never_redirected(path: str, method: str) -> None:
    """C079, M26-S-01, L25-S-01."""
    client = Peer(make_app())
    await client.initialize()
    client.path = path
    answer = await client.send(method, client.call("ping") if method == "POST" else b"").started()
    assert answer.status == 200
    await client.shell.handler.drain(0)  # type: ignore[attr-defined]


async def test_paths_can_be_chosen_and_left_out() -> None:
    client = Peer(make_app(path="/v1/tools"), "/v1/tools")
    await client.initialize()
    assert (await Peer(client.shell, "/mcp").fetch("POST", initialize())).status == 404
    only_sse = Peer(make_app(path=None))
    assert (await only_sse.fetch("POST", initialize())).status == 404
    only_mcp = make_app(sse_path=None)
    assert (await Peer(only_mcp, "/sse").fetch("GET")).status == 404
    await Peer(only_mcp).initialize()
    await only_mcp.drain(0)
    await client.shell.handler.drain(0)  # type: ignore[attr-defined]


def test_servers_are_bound_to_this_machine_unless_told_otherwise() -> None:
    """M26-S-04, L25-S-03."""
    assert inspect.signature(serve).parameters["host"].default == "127.0.0.1"


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await writer.wait_closed()
    except ConnectionError:
        pass  # the server was quicker, or it was aborted


async def ask(port: int, body: Any, headers: dict[str, str], target: str = "/mcp") -> tuple[int, dict[str, str], bytes]:
    """Make one request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    fields = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "content-length": str(len(data)),
        "connection": "close",
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"POST {target} HTTP/1.1\r\n{head}\r\n".encode() + data)
    answer = await asyncio.wait_for(reader.read(), 10)
    await closed(writer)
    head_, _, rest = answer.partition(b"\r\n\r\n")
    lines = head_.decode().split("\r\n")
    return int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:]), rest


def modern(method: str, id: Any = 1, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": modern_meta(), **params}}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    return body, headers | ({"mcp-name": params["name"]} if "name" in params else {})


async def test_requests_over_sockets() -> None:
    """M26-S-11, M26-S-15, M26-S-16, M26-S-37: white space around a header's value is no part of it."""
    async with serve(make_server()) as listener:
        body, headers = modern("tools/call", name="echo", arguments={"a": 1})
        padded = {name: f" \t{value} \t " for name, value in headers.items()}
        for fields in (headers, padded):
            status, got, rest = await ask(listener.port, body, fields)
            assert (status, got["content-type"]) == (200, "application/json")
            assert json.loads(rest)["result"]["echo"] == {"a": 1}
        status, got, rest = await ask(listener.port, *modern("say", count=2))
        assert (status, got["content-type"], got["x-accel-buffering"]) == (200, "text/event-stream", "no")
        assert rest.count(b"data: ") == 3
        assert rest.endswith(b"0\r\n\r\n")
        assert (await ask(listener.port, *modern("no/such")))[0] == 404
        assert listener.stats()["messages_in"] == 4


async def test_a_dropped_connection_cancels_on_2026_07_28_only() -> None:
    """M26-S-22, M26-S-23, L25-S-12."""
    gates = Gates()
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    async with serve(make_server(gates)) as listener:
        _, got, _ = await ask(listener.port, initialize(), {})
        legacy = {"jsonrpc": "2.0", "id": 1, "method": "wait", "params": {"gate": "legacy"}}
        for name, (body, headers) in {
            "legacy": (legacy, {"mcp-session-id": got["mcp-session-id"]}),
            "json": modern("wait", gate="json"),
            "either": modern("wait", gate="either"),
        }.items():
            if name == "json":
                headers["accept"] = "application/json"
            connections.append(await asyncio.open_connection("127.0.0.1", listener.port))
            writer = connections[-1][1]
            data = json.dumps(body).encode()
            fields = {"host": "localhost", "content-type": "application/json", "content-length": len(data), **headers}
            head = "".join(f"{field}: {value}\r\n" for field, value in fields.items())
            writer.write(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + data)
            await gates.until("entered " + name)
            writer.transport.abort()
        await gates.until("cancelled json")
        await gates.until("cancelled either")
        assert gates.cancelled == ["json", "either"]
        gates.open("legacy")
    for _, writer in connections:
        await closed(writer)


async def test_stopping_ends_every_kind_of_stream_within_the_grace() -> None:
    """C074, M26-S-58."""
    async with serve(make_server(), shutdown_grace_s=30) as listener:
        body, headers = modern("subscriptions/listen", 7, notifications={"toolsListChanged": True})
        listening = asyncio.ensure_future(ask(listener.port, body, headers))
        _, got, _ = await ask(listener.port, initialize(), {})
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(
            f"GET /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {got['mcp-session-id']}\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(500):
            if listener.stats()["streams"] == 2:
                break
            await asyncio.sleep(0.01)
        await asyncio.wait_for(listener.close(), 5)
        assert (await reader.read()).endswith(b"0\r\n\r\n")
        _, _, rest = await listening
        assert b'"id":7,"result":{' in rest
        await closed(writer)
    assert listener.stats()["ended"] == {"shutdown": 1}


class ASGICall:
    """One HTTP request to an ASGI application."""

    def __init__(
        self, app: Any, method: str, path: str, body: Any, headers: dict[str, str], root_path: str = ""
    ) -> None:
        self.sent: list[dict[str, Any]] = []
        data = json.dumps(body).encode() if body is not None else b""
        fields = {"host": "testserver", "content-type": "application/json", "content-length": str(len(data)), **headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": root_path,
            "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
            "client": ("127.0.0.1", 1),
            "server": ("testserver", 80),
        }
        incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        incoming.put_nowait({"type": "http.request", "body": data})
        self.leave = lambda: incoming.put_nowait({"type": "http.disconnect"})

        async def send(message: dict[str, Any]) -> None:
            self.sent.append(message)

        self.task = asyncio.ensure_future(app(scope, incoming.get, send))

    async def ended(self) -> tuple[int, dict[bytes, bytes], bytes]:
        await asyncio.wait_for(asyncio.shield(self.task), 5)
        body = b"".join(m.get("body", b"") for m in self.sent[1:])
        return self.sent[0]["status"], dict(self.sent[0]["headers"]), body


@pytest.mark.parametrize("root_path", ["", "/api"])
async def test_as_an_asgi_application_mounted_or_not(root_path: str) -> None:
    """C079."""
    gates = Gates()
    app: ASGIApp = make_server(gates).asgi(event_store=MemoryEventStore())

    async def call(body: Any, headers: dict[str, str], method: str = "POST") -> Any:
        return await ASGICall(app, method, root_path + "/mcp", body, headers, root_path).ended()

    status, headers, body = await call(initialize(), {})
    assert status == 200
    session = {"mcp-session-id": headers[b"mcp-session-id"].decode()}
    status, headers, body = await call({"jsonrpc": "2.0", "id": 1, "method": "say", "params": {"count": 1}}, session)
    assert (status, headers[b"content-type"], body.count(b"data: {")) == (200, b"text/event-stream", 2)
    status, _, body = await call(*modern("tools/call", name="echo", arguments=1))
    assert (status, json.loads(body)["result"]["echo"]) == (200, 1)
    waiting = ASGICall(app, "POST", root_path + "/mcp", *modern("wait"), root_path)
    await gates.until("entered gate")
    waiting.leave()
    await gates.until("cancelled gate")
    assert (await call(None, session, "DELETE"))[0] == 200
