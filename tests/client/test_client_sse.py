"""HTTP+SSE, client side: raw connections against scripted servers (rows A13 to A17, H24-C-01 to -03)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import mcpfast
from mcpfast.client import SSEClientTransport
from mcpfast.errors import (
    AuthorizationRequired,
    EndpointMissing,
    EventTooLarge,
    HTTPStatusError,
    MethodNotAllowed,
    ProtocolError,
    RequestTimeout,
    RPCError,
    TransportClosed,
    UnexpectedContentType,
)
from mcpfast.http.native_client import NativeClient
from mcpfast.jsonrpc import Notification, Request, Response
from tests.support.scripted_server import Peer, Received, ScriptedServer
from tests.support.scripted_sse import ENDPOINT, SSEScript

pytestmark = pytest.mark.anyio

WAIT_S = 5.0


async def connect(server: ScriptedServer, **options: Any) -> mcpfast.Connection:
    return await asyncio.wait_for(SSEClientTransport(server.url, **options).connect(), WAIT_S)


async def until(condition: Callable[[], object]) -> None:
    """Wait turn by turn until ``condition()`` is true, so that nothing else happens after it."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise TimeoutError


def plays(head: str, body: bytes = b"", *, stay: bool = False) -> Callable[[Peer], Awaitable[None]]:
    """A script that gives every request one answer."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.write(f"HTTP/1.1 {head}\r\n\r\n".encode() + body)
        if stay:
            await peer.until_left()

    return script


def streams(first: bytes, *, stay: bool = True) -> Callable[[Peer], Awaitable[None]]:
    """A script that begins an event stream with ``first``."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        peer.chunk(first)
        if stay:
            await peer.until_left()
        else:
            peer.end_stream()

    return script


# Connecting


@pytest.mark.parametrize("url", ["", "localhost:8000/sse", "ftp://a.test/sse", "http://a.test/\r\nx: y", "http://"])
def test_the_address_is_checked_when_the_transport_is_made(url: str) -> None:
    """A13"""
    with pytest.raises(ValueError, match="url"):
        SSEClientTransport(url)


def test_options_are_checked_when_the_transport_is_made() -> None:
    wrong: Any
    for wrong in ({"headers": {"X-A": "a\nb"}}, {"connect_timeout": 0}, {"idle_timeout": -1}, {"max_event_bytes": 0}):
        with pytest.raises(ValueError, match=r"."):
            SSEClientTransport("http://a.test/sse", **wrong)
    for wrong in ({"http_client": "http://proxy"}, {"auth": ("user", "password")}):
        with pytest.raises(TypeError, match="httpx"):
            SSEClientTransport("http://a.test/sse", **wrong)


async def test_connecting_asks_for_an_event_stream_at_the_address_as_given(anyio_backend: Any) -> None:
    """A13, C079"""
    script = SSEScript()
    async with ScriptedServer(script) as server:
        async with SSEClientTransport(f"{server.origin}/mcp/sse/?key=1", headers={"X-Key": "k"}) as connection:
            assert isinstance(connection, mcpfast.Connection)
        asked = server.requests[0]
        assert (asked.method, asked.target) == ("GET", "/mcp/sse/?key=1")
        assert asked.header("accept") == "text/event-stream"
        assert asked.header("x-key") == "k"
        await server.until(lambda: server.open_connections == 0)


@pytest.mark.parametrize(
    ("data", "target"),
    [
        ("/messages/?session_id=1", "/messages/?session_id=1"),
        ("messages/?session_id=1", "/mcp/messages/?session_id=1"),
        ("?session_id=1", "/mcp/sse?session_id=1"),
        ("{origin}/x/messages?s=1", "/x/messages?s=1"),
    ],
)
async def test_the_endpoint_is_resolved_against_the_stream(anyio_backend: Any, data: str, target: str) -> None:
    """A14, C023, H24-C-01"""
    script = SSEScript(b"")
    async with ScriptedServer(script) as server:
        script.first = f"event: endpoint\ndata: {data.format(origin=server.origin)}\n\n".encode()
        async with SSEClientTransport(f"{server.origin}/mcp/sse") as connection:
            await connection.send(Notification("notifications/x"))
        assert server.requests[-1].target == target
        assert server.requests[-1].method == "POST"


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://localhost:9/messages?s=1",
        "https://127.0.0.1:{port}/messages",
        "//evil.test/messages",
        "http://127.0.0.1:{port}@evil.test/x",
        "http://user:pass@127.0.0.1:{port}/x",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "\\\\evil.test\\x",
        "/x\ty",
        "",
    ],
)
async def test_an_endpoint_elsewhere_or_none_is_refused_at_once(anyio_backend: Any, endpoint: str) -> None:
    """C024, H24-C-02: nothing is posted to another origin, and nothing is left open."""
    tasks = asyncio.all_tasks()
    script = SSEScript(b"")
    async with ScriptedServer(script) as server:
        script.first = f"event: endpoint\ndata: {endpoint.format(port=server.port)}\n\n".encode()
        with pytest.raises(EndpointMissing, match="endpoint"):
            await connect(server)
        await server.until(lambda: server.open_connections == 0)
        assert len(server.requests) == 1
    assert asyncio.all_tasks() == tasks


async def test_both_origins_are_named_when_the_endpoint_is_elsewhere(anyio_backend: Any) -> None:
    """C024"""
    async with ScriptedServer(streams(b"event: endpoint\ndata: http://localhost:9/messages?s=secret\n\n")) as server:
        with pytest.raises(EndpointMissing, match=r"http://localhost:9.*http://127\.0\.0\.1:") as caught:
            await connect(server)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("first", "shown"),
    [
        (b"event: message\ndata: {}\n\n", "began with event 'message'"),
        (b"data: /messages\n\n", "began with event 'message'"),
        (b"event: Endpoint\ndata: /messages\n\n", "began with event 'Endpoint'"),
        (b"event: hello\ndata: x\n\n" + ENDPOINT, "began with event 'hello'"),
    ],
)
async def test_the_first_event_must_be_the_endpoint(anyio_backend: Any, first: bytes, shown: str) -> None:
    """A14"""
    async with ScriptedServer(streams(first)) as server:
        with pytest.raises(EndpointMissing, match=shown):
            await connect(server)
        await server.until(lambda: server.open_connections == 0)


@pytest.mark.parametrize("begun", [b": hello\n\n", b"event: endpoint\ndata: /mess"])
async def test_a_stream_that_ends_before_its_endpoint_says_so(anyio_backend: Any, begun: bytes) -> None:
    async with ScriptedServer(streams(begun, stay=False)) as server:
        with pytest.raises(EndpointMissing, match="ended before its endpoint"):
            await connect(server)


async def test_a_stream_that_is_lost_before_its_endpoint_says_so_with_its_cause(anyio_backend: Any) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        peer.chunk(b": hello\n\n")

    async with ScriptedServer(script) as server:
        with pytest.raises(EndpointMissing, match="ended before its endpoint") as caught:
            await connect(server)
        assert isinstance(caught.value.__cause__, ConnectionError)


async def test_pings_do_not_extend_the_wait_for_the_endpoint(anyio_backend: Any) -> None:
    """C030"""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        while True:
            peer.chunk(b": ping\n\n")
            await peer.drain()
            await asyncio.sleep(0.02)

    async with ScriptedServer(script) as server:
        with pytest.raises(EndpointMissing, match=r"no endpoint event within 0\.3 s"):
            await connect(server, connect_timeout=0.3)
        await server.until(lambda: server.open_connections == 0)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-type: text/eve"])
async def test_a_server_that_does_not_answer_is_given_up(anyio_backend: Any, answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.write(answer)
        await peer.until_left()

    async with ScriptedServer(script) as server:
        with pytest.raises(RequestTimeout, match=r"not answered within 0\.3 s"):
            await connect(server, connect_timeout=0.3)
        await server.until(lambda: server.open_connections == 0)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("400 X", HTTPStatusError),
        ("404 X", HTTPStatusError),
        ("405 X", MethodNotAllowed),
        ("500 X", HTTPStatusError),
        ("503 X", HTTPStatusError),
        ("401 X\r\nWWW-Authenticate: Bearer realm=x", AuthorizationRequired),
        ("403 X", AuthorizationRequired),
        ("202 X", HTTPStatusError),
        ("204 X", HTTPStatusError),
    ],
)
async def test_a_refused_get_tells_its_status_and_the_start_of_the_body(
    anyio_backend: Any, head: str, kind: type[HTTPStatusError]
) -> None:
    """A13"""
    body = b"" if head.startswith("204") else b"because" + b"x" * 5000
    length = "" if head.startswith("204") else f"\r\ncontent-length: {len(body)}"
    async with ScriptedServer(plays(head + length, body)) as server:
        with pytest.raises(kind) as caught:
            await connect(server)
        assert type(caught.value) is kind
        assert caught.value.status == int(head[:3])
        assert caught.value.body == body[:512]
        assert f"GET {server.url}" in str(caught.value)
        if isinstance(caught.value, AuthorizationRequired):
            assert caught.value.challenge == ("Bearer realm=x" if head.startswith("401") else None)


async def test_a_refusal_whose_body_never_ends_is_still_reported(anyio_backend: Any) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.write(b"HTTP/1.1 500 X\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            peer.chunk(b"x" * 1000)
            await peer.drain()

    async with ScriptedServer(script) as server:
        with pytest.raises(HTTPStatusError, match="500"):
            await connect(server)
        await server.until(lambda: server.open_connections == 0)


async def test_a_refusal_whose_body_is_compressed_is_still_reported(anyio_backend: Any) -> None:
    answer = plays("500 X\r\ncontent-encoding: gzip\r\ncontent-length: 4", b"\x1f\x8b\0\0")
    async with ScriptedServer(answer) as server:
        with pytest.raises(HTTPStatusError, match="500"):
            await connect(server)


@pytest.mark.parametrize("content_type", ["text/html", "application/json", "text/event-streams", None])
async def test_another_content_type_is_refused_by_name(anyio_backend: Any, content_type: str | None) -> None:
    """A13"""
    field = f"\r\ncontent-type: {content_type}" if content_type else ""
    async with ScriptedServer(plays(f"200 OK{field}", b"<html>")) as server:
        with pytest.raises(UnexpectedContentType, match="expected text/event-stream") as caught:
            await connect(server)
        assert caught.value.content_type == content_type


async def test_the_content_type_may_have_parameters_and_any_case(anyio_backend: Any) -> None:
    head = "200 OK\r\ncontent-type: Text/Event-Stream; charset=utf-8"
    async with ScriptedServer(plays(head, ENDPOINT, stay=True)) as server:
        await (await connect(server)).close()


async def test_a_stream_that_is_compressed_is_refused(anyio_backend: Any) -> None:
    head = "200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip"
    async with ScriptedServer(plays(head, ENDPOINT, stay=True)) as server:
        with pytest.raises(ProtocolError, match="content-encoding 'gzip'"):
            await connect(server)
        await server.until(lambda: server.open_connections == 0)


async def test_a_server_that_is_not_there_is_a_connection_error(anyio_backend: Any) -> None:
    async with ScriptedServer(SSEScript()) as server:
        pass
    with pytest.raises(ConnectionError, match=f"127.0.0.1:{server.port}"):
        await connect(server)


@pytest.mark.parametrize("turns", range(12))
async def test_cancelling_at_any_await_of_connect_leaves_nothing(anyio_backend: Any, turns: int) -> None:
    tasks = asyncio.all_tasks()
    async with ScriptedServer(SSEScript()) as server:
        task = asyncio.ensure_future(SSEClientTransport(server.url).connect())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await (await task).close()
        except asyncio.CancelledError:
            pass
        # Connections are accepted in order: once this one is served, what was given up before it is too.
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        address = writer.get_extra_info("sockname")
        writer.close()
        await server.until(
            lambda: (
                any(peer.writer.get_extra_info("peername") == address for peer in server.peers)
                and server.open_connections == 0
            )
        )
    assert asyncio.all_tasks() == tasks


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_within_the_origin_is_followed_and_is_the_new_base(anyio_backend: Any, status: int) -> None:
    """A13, C066"""
    stream = SSEScript(b"event: endpoint\ndata: messages?s=1\n\n")

    async def script(peer: Peer) -> None:
        if peer.number == 0:
            await peer.request()
            peer.respond(status, b"", "location: /deep/er/sse")
        else:
            await stream(peer)

    async with ScriptedServer(script) as server:
        async with SSEClientTransport(
            server.url, headers={"Authorization": "Bearer t", "X-Api-Key": "k"}
        ) as connection:
            await connection.send(Notification("notifications/x"))
        assert [r.target for r in server.requests] == ["/sse", "/deep/er/sse", "/deep/er/messages?s=1"]
        for received in server.requests:
            assert received.header("authorization") == "Bearer t"
            assert received.header("x-api-key") == "k"


async def test_a_redirect_to_another_origin_is_refused_and_gets_nothing(anyio_backend: Any) -> None:
    """C066"""
    async with ScriptedServer(SSEScript()) as other:

        async def script(peer: Peer) -> None:
            await peer.request()
            peer.respond(302, b"", f"location: {other.url}?leak=1")

        async with ScriptedServer(script) as server:
            with pytest.raises(HTTPStatusError, match=f"another origin, {other.origin}") as caught:
                await connect(server, headers={"Authorization": "Bearer t", "X-Api-Key": "k"})
            assert caught.value.status == 302
        assert other.requests == []


@pytest.mark.parametrize("location", [None, "ftp://a.test/", "http://a b/", "\\\\evil.test\\x"])
async def test_a_redirect_to_nowhere_is_refused(anyio_backend: Any, location: str | None) -> None:
    fields = [] if location is None else [f"location: {location}"]

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.respond(307, b"", *fields)

    async with ScriptedServer(script) as server:
        with pytest.raises(HTTPStatusError, match="without a valid location"):
            await connect(server)


async def test_redirects_in_a_circle_end(anyio_backend: Any) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            peer.respond(307, b"", "location: /sse")

    async with ScriptedServer(script) as server:
        with pytest.raises(HTTPStatusError, match="redirect 6 in a row"):
            await connect(server)
        assert len(server.requests) == 6


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirected_post_keeps_method_body_and_headers(anyio_backend: Any, status: int) -> None:
    """C066"""

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if received.target == "/elsewhere":
            return False
        peer.respond(status, b"", "location: /elsewhere")
        return True

    async with ScriptedServer(SSEScript(on_post=on_post)) as server:
        async with SSEClientTransport(server.url, headers={"X-Api-Key": "k"}) as connection:
            await connection.send(Notification("notifications/x"))
        first, second = server.requests[1:]
        assert (second.method, second.target, second.body) == ("POST", "/elsewhere", first.body)
        assert second.header("x-api-key") == "k"


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_post_is_not_turned_into_a_get(anyio_backend: Any, status: int) -> None:
    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        peer.respond(status, b"", "location: /elsewhere")
        return True

    async with ScriptedServer(SSEScript(on_post=on_post)) as server, SSEClientTransport(server.url) as connection:
        with pytest.raises(HTTPStatusError, match=str(status)):
            await connection.send(Notification("notifications/x"))
        assert len(server.requests) == 2


# Reading


async def test_messages_are_read_in_order_and_the_end_ends_the_connection(anyio_backend: Any) -> None:
    """A15, H24-C-03"""
    script = SSEScript()
    async with ScriptedServer(script) as server:
        connection = await connect(server)
        for number in range(3):
            script.send({"jsonrpc": "2.0", "method": f"notifications/{number}"})
        script.streams[0].end_stream()
        assert [message async for message in connection] == [Notification(f"notifications/{n}") for n in range(3)]
        for _ in range(2):
            with pytest.raises(TransportClosed):
                await connection.recv()
            with pytest.raises(TransportClosed):
                await connection.send(Notification("notifications/x"))
        await connection.close()
        assert len(server.requests) == 1


async def test_a_lost_stream_is_reported_with_its_cause(anyio_backend: Any) -> None:
    script = SSEScript()
    async with ScriptedServer(script) as server:
        connection = await connect(server)
        script.send({"jsonrpc": "2.0", "method": "notifications/x"})
        script.send_raw(b'event: message\ndata: {"jsonrpc": "2.0", "meth')
        await script.streams[0].drain()
        assert await connection.recv() == Notification("notifications/x")
        script.streams[0].abort()
        with pytest.raises(TransportClosed, match=r"connection ended: .*lost") as caught:
            await asyncio.wait_for(connection.recv(), WAIT_S)
        assert isinstance(caught.value.__cause__, ConnectionError)
        with pytest.raises(TransportClosed):
            async for _ in connection:
                pass
        await connection.close()


async def test_events_of_other_names_are_skipped_unread(anyio_backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A15, C027"""
    caplog.set_level(logging.INFO)
    script = SSEScript()
    async with ScriptedServer(script) as server:
        connection = await connect(server)
        script.send_raw(
            b"event: keepalive\ndata: {}\n\nevent: heartbeat\ndata: not json\n\nevent: endpoint\ndata: http://evil/\n\n"
            b": comment\n\nretry: 0\n\ndata:\n\n"
            b'event: message\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
        )
        assert await connection.recv() == Response(1, {})
        assert caplog.records == []
        await connection.close()


@pytest.mark.parametrize("bad", [b"garbage", b"{", b"[]", b"5", b'{"jsonrpc":"2.0"}', b"\xff", b"[" * 100_000])
async def test_a_bad_message_is_raised_once_and_the_stream_goes_on(anyio_backend: Any, bad: bytes) -> None:
    """A15"""
    script = SSEScript()
    async with ScriptedServer(script) as server:
        connection = await connect(server)
        script.send_raw(b"data: " + bad + b"\n\n")
        script.send({"jsonrpc": "2.0", "method": "notifications/x"})
        with pytest.raises(ProtocolError):
            await connection.recv()
        assert await connection.recv() == Notification("notifications/x")
        await connection.close()


async def test_values_arrive_exactly(anyio_backend: Any) -> None:
    """C055, C001"""
    script = SSEScript()
    exact = {
        "id": 9007199254740993,
        "big": 123456789012345678901234567890,
        "neg": -9223372036854775809,
        "t": "a\u2028b",
    }
    async with ScriptedServer(script) as server:
        connection = await connect(server)
        text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": exact}, ensure_ascii=False)
        script.send_raw(f"data: {text}\n\n".encode())
        assert await connection.recv() == Response(1, exact)
        await connection.close()


async def test_an_event_over_the_limit_ends_the_stream_after_those_before_it(anyio_backend: Any) -> None:
    script = SSEScript()
    async with ScriptedServer(script) as server:
        connection = await connect(server, max_event_bytes=1000)
        script.send_raw(b'data: {"jsonrpc":"2.0","method":"m"}\n\ndata: ' + b"x" * 2000)
        assert await connection.recv() == Notification("m")
        with pytest.raises(TransportClosed, match="limit is 1000") as caught:
            await connection.recv()
        assert isinstance(caught.value.__cause__, EventTooLarge)
        await server.until(lambda: server.open_connections == 0)
        await connection.close()


async def test_an_endpoint_event_over_the_limit_fails_the_connect(anyio_backend: Any) -> None:
    async with ScriptedServer(streams(b"event: endpoint\ndata: /" + b"x" * 5000)) as server:
        with pytest.raises(EventTooLarge):
            await connect(server, max_event_bytes=1000)


async def test_an_unread_queue_holds_the_server_back(anyio_backend: Any) -> None:
    """A15: the queue is bounded, nothing is lost, and memory stays within bounds."""
    written = 0
    message = json.dumps({"jsonrpc": "2.0", "method": "notifications/x", "params": {"text": "x" * 60_000}}).encode()

    async def script(peer: Peer) -> None:
        nonlocal written
        peer.writer.transport.set_write_buffer_limits(high=65536)
        await peer.request()
        peer.start_stream()
        peer.chunk(ENDPOINT)
        for _ in range(600):
            peer.chunk(b"data: " + message + b"\n\n")
            await peer.drain()
            written += 1
        peer.end_stream()
        await peer.until_left()

    async with ScriptedServer(script) as server:
        connection = await connect(server)
        last, same = -1, 0
        while same < 5:  # until nothing moves any more
            await asyncio.sleep(0.02)
            last, same = (written, same + 1) if written == last else (written, 0)
        assert written < 450
        assert len(connection._inbox._items) < 150  # type: ignore[attr-defined]
        assert len([message async for message in connection]) == 600
        await connection.close()


async def test_readers_that_are_cancelled_lose_no_message(anyio_backend: Any) -> None:
    script = SSEScript()
    async with ScriptedServer(script) as server:
        connection = await connect(server)
        first, second = (asyncio.ensure_future(connection.recv()) for _ in range(2))
        await asyncio.sleep(0)
        script.send({"jsonrpc": "2.0", "method": "notifications/x"})
        await until(lambda: connection._inbox._items)  # type: ignore[attr-defined]  # woken, but not yet run
        first.cancel()
        assert await asyncio.wait_for(second, WAIT_S) == Notification("notifications/x")
        with pytest.raises(asyncio.CancelledError):
            await first
        await connection.close()


# A silent stream


async def test_comments_keep_a_stream_alive_and_silence_ends_it(anyio_backend: Any) -> None:
    """C033"""
    go_silent = asyncio.Event()
    stream = SSEScript(answers=False)

    async def script(peer: Peer) -> None:
        if peer.number:
            await stream(peer)
            return
        await peer.request()
        peer.start_stream()
        peer.chunk(ENDPOINT)
        while not go_silent.is_set():
            peer.chunk(b": ping\n\n")
            await peer.drain()
            await asyncio.sleep(0.05)
        await peer.until_left()

    async with ScriptedServer(script) as server:
        connection = await connect(server, connect_timeout=0.5, idle_timeout=0.5)
        reading = asyncio.ensure_future(connection.recv())
        done, _ = await asyncio.wait({reading}, timeout=1.5)
        assert not done
        assert stream.posts == []
        go_silent.set()
        with pytest.raises(TransportClosed, match=r"silent for 0\.5 s") as caught:
            await asyncio.wait_for(reading, WAIT_S)
        assert isinstance(caught.value.__cause__, RequestTimeout)
        assert stream.methods() == ["ping"]
        await server.until(lambda: server.open_connections == 0)
        await connection.close()


async def test_a_server_that_answers_pings_may_be_silent_for_ever(anyio_backend: Any) -> None:
    script = SSEScript()
    async with ScriptedServer(script) as server:
        connection = await connect(server, idle_timeout=0.2)
        reading = asyncio.ensure_future(connection.recv())
        await script.until(lambda: len(script.posts) >= 4)
        assert set(script.methods()) == {"ping"}
        assert len({message["id"] for message in script.posts}) == len(script.posts)
        assert not reading.done()  # the answers are not for it
        script.send({"jsonrpc": "2.0", "method": "notifications/x"})
        assert await asyncio.wait_for(reading, WAIT_S) == Notification("notifications/x")
        await connection.close()


# Writing


async def test_a_message_is_posted_as_json_with_the_same_client(anyio_backend: Any) -> None:
    """A16"""
    httpx = pytest.importorskip("httpx")
    script = SSEScript()
    async with (
        ScriptedServer(script) as server,
        httpx.AsyncClient(headers={"X-Theirs": "1"}, trust_env=False) as client,
    ):
        async with SSEClientTransport(server.url, http_client=client) as connection:
            await connection.send(Request("a", "x/y", {"k": "é"}))
            assert await connection.recv() == Response("a", {"method": "x/y", "params": {"k": "é"}})
        assert not client.is_closed
        assert [r.header("x-theirs") for r in server.requests] == ["1", "1"]
        assert server.requests[1].header("content-type") == "application/json"
        assert json.loads(server.requests[1].body) == {
            "jsonrpc": "2.0",
            "id": "a",
            "method": "x/y",
            "params": {"k": "é"},
        }


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (202, b"", ""),
        (202, b"Accepted", "text/plain"),
        (204, b"", ""),
        (200, b"", ""),
        (200, b"{}", "application/json"),
    ],
)
async def test_any_success_is_fine(anyio_backend: Any, status: int, body: bytes, content_type: str) -> None:
    """A16, C047"""

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if status == 204:
            peer.write(b"HTTP/1.1 204 X\r\n\r\n")
        else:
            peer.respond(status, body, content_type=content_type)
        return True

    async with ScriptedServer(SSEScript(on_post=on_post)) as server, SSEClientTransport(server.url) as connection:
        for _ in range(3):
            await connection.send(Notification("notifications/x"))
        assert len(server.peers) == 2  # the stream's connection, and one for all the POSTs


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 429, 500, 503])
async def test_a_refused_post_tells_status_and_body_and_the_stream_goes_on(anyio_backend: Any, status: int) -> None:
    """A16"""

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if message["method"] == "bad":
            peer.respond(status, b"because", content_type="text/plain")
            return True
        return False

    async with ScriptedServer(SSEScript(on_post=on_post)) as server, SSEClientTransport(server.url) as connection:
        with pytest.raises(HTTPStatusError) as caught:
            await connection.send(Request(1, "bad"))
        assert (caught.value.status, caught.value.body) == (status, b"because")
        assert isinstance(caught.value, AuthorizationRequired) == (status in (401, 403))
        assert "sessionid" not in str(caught.value)
        await connection.send(Request(2, "good"))
        assert await connection.recv() == Response(2, {"method": "good", "params": None})


async def test_a_json_rpc_error_in_a_refusal_is_raised_as_such(anyio_backend: Any) -> None:
    """C031"""

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        answer = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "no", "data": [1]}}
        peer.respond(400, json.dumps(answer).encode())
        return True

    async with ScriptedServer(SSEScript(on_post=on_post)) as server, SSEClientTransport(server.url) as connection:
        with pytest.raises(RPCError) as caught:
            await connection.send(Request(1, "bad"))
        assert (caught.value.code, caught.value.message, caught.value.data) == (-32602, "no", [1])
        assert isinstance(caught.value.__cause__, HTTPStatusError)


async def test_a_post_that_is_not_answered_is_given_up(anyio_backend: Any) -> None:
    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        await peer.until_left()
        return True

    async with ScriptedServer(SSEScript(on_post=on_post)) as server:
        connection = await connect(server, timeout=0.2)
        with pytest.raises(RequestTimeout, match=r"POST .* not answered within 0\.2 s"):
            await connection.send(Notification("notifications/x"))
        await server.until(lambda: server.open_connections == 1)
        await connection.close()


async def test_a_post_whose_connection_goes_is_an_error_and_not_sent_again(anyio_backend: Any) -> None:
    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        peer.abort()
        return True

    script = SSEScript(on_post=on_post)
    async with ScriptedServer(script) as server, SSEClientTransport(server.url) as connection:
        with pytest.raises(ConnectionError):
            await connection.send(Notification("notifications/x"))
        assert len(script.posts) == 1


async def test_a_message_that_cannot_be_json_is_refused_unsent(anyio_backend: Any) -> None:
    script = SSEScript()
    async with ScriptedServer(script) as server, SSEClientTransport(server.url) as connection:
        with pytest.raises(ProtocolError):
            await connection.send(Notification("x", {"a": object()}))
        with pytest.raises(ProtocolError):
            await connection.send(Notification("x", {"a": float("nan")}))
        assert script.posts == []


async def test_messages_of_many_tasks_all_arrive(anyio_backend: Any) -> None:
    script = SSEScript()
    async with ScriptedServer(script) as server, SSEClientTransport(server.url) as connection:
        await asyncio.gather(*[connection.send(Request(n, "x")) for n in range(150)])
        got = [await connection.recv() for _ in range(150)]
        assert {message.id for message in got if isinstance(message, Response)} == set(range(150))


# Headers of the user


async def test_header_func_is_asked_for_every_request(anyio_backend: Any) -> None:
    count = 0

    def plain() -> dict[str, str]:
        nonlocal count
        count += 1
        return {"X-Count": str(count), "X-Fixed": "func"}

    async def slow() -> dict[str, str]:
        await asyncio.sleep(0)
        return plain()

    for header_func in (plain, slow):
        count = 0
        async with ScriptedServer(SSEScript()) as server:
            async with SSEClientTransport(server.url, headers={"X-Fixed": "1"}, header_func=header_func) as connection:
                await connection.send(Notification("notifications/x"))
            assert [r.header("x-count") for r in server.requests] == ["1", "2"]
            assert [r.header("x-fixed") for r in server.requests] == ["func", "func"]


async def test_what_header_func_raises_reaches_the_caller(anyio_backend: Any) -> None:
    fail = False

    def plain() -> dict[str, str] | None:
        if fail:
            raise LookupError("no token today")
        return None

    async def slow() -> dict[str, str] | None:
        return plain()

    for header_func in (plain, slow):
        fail = False
        async with ScriptedServer(SSEScript()) as server:
            async with SSEClientTransport(server.url, header_func=header_func) as connection:
                fail = True
                with pytest.raises(LookupError, match="no token"):
                    await connection.send(Notification("notifications/x"))
            with pytest.raises(LookupError, match="no token"):
                await SSEClientTransport(server.url, header_func=header_func).connect()


async def test_a_password_in_the_address_becomes_authorization_for_get_and_post(anyio_backend: Any) -> None:
    async with ScriptedServer(SSEScript()) as server:
        url = server.url.replace("http://", "http://user:pass@")
        transport = SSEClientTransport(url)
        assert "pass" not in repr(transport)
        async with transport as connection:
            await connection.send(Notification("notifications/x"))
        assert [r.header("authorization") for r in server.requests] == ["Basic dXNlcjpwYXNz"] * 2


async def test_secrets_stay_out_of_the_log(anyio_backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    script = SSEScript(ENDPOINT.replace(b"s1", b"secret-session"))
    async with ScriptedServer(script) as server:
        transport = SSEClientTransport(server.url + "?key=secret-key", headers={"Authorization": "Bearer secret-token"})
        async with transport as connection:
            script.send_raw(b"event: odd\ndata: secret-data\n\n")
            await connection.send(Request(1, "x"))
            await connection.recv()
        with pytest.raises(TransportClosed) as caught:
            await connection.send(Request(1, "x"))
    assert "secret" not in caplog.text + repr(transport) + repr(connection) + str(caught.value)


# Closing (A17); C075 in full is in test_client_lifecycle.py


async def test_close_wakes_readers_and_writers_and_may_be_repeated(anyio_backend: Any) -> None:
    """A17"""

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        await peer.until_left()
        return True

    async with ScriptedServer(SSEScript(on_post=on_post)) as server:
        connection = await connect(server)
        reading = asyncio.ensure_future(connection.recv())
        writing = asyncio.ensure_future(connection.send(Notification("notifications/x")))
        await server.until(lambda: len(server.requests) == 2)
        await asyncio.gather(connection.close(), connection.close())
        await connection.close()
        for task in (reading, writing):
            with pytest.raises(TransportClosed):
                await asyncio.wait_for(task, WAIT_S)
        assert [message async for message in connection] == []
        await server.until(lambda: server.open_connections == 0)


async def test_a_client_that_was_given_is_left_open(anyio_backend: Any) -> None:
    client = NativeClient()
    async with ScriptedServer(SSEScript()) as server:
        for _ in range(2):
            async with SSEClientTransport(server.url, http_client=client) as connection:
                await connection.send(Request(1, "x"))
                await connection.recv()
        assert len(server.peers) == 3  # two streams, and one connection for the POSTs of both
        await client.aclose()
