"""Servers that are broken or mean harm: each ends in bounded time and memory, with an error that names the cause.

Each case is tried on both eras with the native client, and on sessions with httpx.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from mcpfast import connect
from mcpfast.client import RetryPolicy
from mcpfast.errors import (
    EventTooLarge,
    HTTPStatusError,
    ProtocolError,
    RequestTimeout,
    ResponseTooLarge,
    RPCError,
    UnexpectedContentType,
)
from tests.support.scripted_server import Peer, ScriptedServer
from tests.support.scripted_streamable import StreamableScript, body_of, error_of, event, note, result_event

pytestmark = pytest.mark.anyio

WAIT_S = 8.0
LIMIT = 100_000
SECRETS = {"authorization": "Bearer secret", "x-api-key": "secret"}


class World:
    """A hostile server and a client of it that has shaken hands."""

    def __init__(self, script: StreamableScript, server: ScriptedServer, client: Any, is_native: bool) -> None:
        self.is_native = is_native
        self.script = script
        self.server = server
        self.client = client

    def answers(self, action: Callable[[Peer, Any], Any]) -> None:
        self.script.on("x", action)

    async def fails(self, *errors: type[Exception], match: str, timeout: float = 60.0) -> Exception:
        with pytest.raises(errors, match=match) as caught:
            await asyncio.wait_for(self.client.request("x", timeout=timeout), WAIT_S)
        return caught.value


@pytest.fixture(params=["modern-native", "session-native", "session-httpx"])
async def world(request: pytest.FixtureRequest, anyio_backend: Any) -> AsyncIterator[World]:
    era, backend = request.param.split("-")
    script = StreamableScript(modern=era == "modern")
    options: Any = {
        "max_event_bytes": LIMIT,
        "max_response_bytes": LIMIT,
        "headers": SECRETS,
        "retry": RetryPolicy(first_s=0.01, longest_s=0.02, max_attempts=3),
        "continuous_listening": False,
    }
    http_client = None if backend == "native" else httpx.AsyncClient(trust_env=False)
    async with ScriptedServer(script) as server:
        async with connect(script.url(server), "http", http_client=http_client, **options) as client:
            yield World(script, server, client, http_client is None)
            script.on("y", lambda p, m: p.respond(200, body_of(m, {"still": "well"})))
            assert await client.request("y") == {"still": "well"}
        if http_client is not None:
            await http_client.aclose()
        await server.until(lambda: server.open_connections == 0)
    await asyncio.sleep(0)
    # Not all that is there: the fixture's own runner has tasks too.
    codes = [getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()]
    left = [code for code in codes if code is not None and "/mcpfast/" in code.co_filename]
    assert not left


def stream(*pieces: bytes, ends: bool = True) -> Callable[[Peer, Any], Any]:
    async def action(peer: Peer, message: Any) -> None:
        peer.start_stream()
        for piece in pieces:
            peer.chunk(piece)
        if ends:
            peer.end_stream()
        else:
            await peer.until_left()

    return action


async def test_no_answer(world: World) -> None:
    world.answers(lambda p, m: p.until_left())
    await world.fails(RequestTimeout, match="not answered within 0.2 s", timeout=0.2)


async def test_half_a_body(world: World) -> None:
    def half(peer: Peer, message: Any) -> None:
        peer.write(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"jsonrpc"')
        peer.writer.close()

    world.answers(half)
    await world.fails(ConnectionError, match="lost")


async def test_half_a_head(world: World) -> None:
    def half(peer: Peer, message: Any) -> None:
        peer.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
        peer.writer.close()

    world.answers(half)
    await world.fails(ConnectionError, match="lost")


async def test_half_an_event_at_the_end_of_a_stream(world: World) -> None:
    world.answers(lambda p, m: stream(result_event(m, {})[:-5])(p, m))
    await world.fails(ProtocolError, match="stream ended without the answer")


@pytest.mark.parametrize("content_type", ["text/html", "text/plain; charset=utf-8", "application/jsonp", "x" * 300])
async def test_a_wrong_content_type(world: World, content_type: str) -> None:
    world.answers(lambda p, m: p.respond(200, b"<html>" * 1000, content_type=content_type))
    error = await world.fails(UnexpectedContentType, match="expected application/json or text/event-stream")
    assert len(str(error)) < 500


async def test_an_error_page(world: World) -> None:
    page = b"<html><body>" + b"all is lost " * 100_000
    world.answers(lambda p, m: p.respond(502, page, content_type="text/html"))
    error = await world.fails(HTTPStatusError, match="502: <html><body>all is lost")
    assert len(str(error)) < 500


@pytest.mark.parametrize("body", [b"", b"{", b"nul", b"[" * 100_000, b'"x"', b"[]", b"5", b"\xff\xfe", b"{}"])
async def test_a_json_answer_that_is_none(world: World, body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    world.answers(lambda p, m: p.write(head + body))
    await world.fails(ProtocolError, match=r".")


async def test_a_json_answer_over_the_limit_announced_or_not(world: World) -> None:
    world.answers(lambda p, m: p.respond(200, b" " * (LIMIT + 1)))
    await world.fails(ResponseTooLarge, match=f"limit is {LIMIT}")

    async def endless(peer: Peer, message: Any) -> None:
        peer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(10_000):
            peer.chunk(b" " * 10_000)
            await peer.drain()

    world.answers(endless)
    await world.fails(ResponseTooLarge, match=f"limit is {LIMIT}")


async def test_an_endless_stream_without_the_answer(world: World) -> None:
    async def endless(peer: Peer, message: Any) -> None:
        peer.start_stream()
        while True:
            peer.chunk(event(note(1)) + b": ping\n\n")
            await peer.drain()
            await asyncio.sleep(0.001)

    world.answers(endless)
    await world.fails(RequestTimeout, match="not answered within 0.3 s", timeout=0.3)


@pytest.mark.parametrize("line", [b"data: ", b"id: ", b"event: ", b": ", b"unknown"])
async def test_a_gigantic_event(world: World, line: bytes) -> None:
    async def gigantic(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(line)
        for _ in range(10_000):
            peer.chunk(b"x" * 10_000)
            await peer.drain()

    world.answers(gigantic)
    await world.fails(EventTooLarge, match=f"limit is {LIMIT}")


async def test_compression_nobody_asked_for(world: World) -> None:
    bomb = gzip.compress(b" " * (1 << 24))
    world.answers(lambda p, m: p.respond(200, bomb, "content-encoding: gzip"))
    await world.fails(ProtocolError, match="content-encoding 'gzip'")

    def packed(peer: Peer, message: Any) -> None:
        peer.start_stream("content-encoding: gzip")
        peer.chunk(gzip.compress(result_event(message, {})))
        peer.end_stream()

    world.answers(packed)
    await world.fails(ProtocolError, match="content-encoding 'gzip'")
    assert all(received.header("accept-encoding") == "identity" for received in world.server.requests)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_origin_never_carries_anything(world: World, status: int) -> None:
    """C066"""
    thief = StreamableScript()
    async with ScriptedServer(thief) as other:
        for target in (f"{other.origin}/mcp", f"//127.0.0.1:{other.port}/mcp", f"http://localhost:{other.port}/"):
            world.answers(lambda p, m, target=target: p.respond(status, b"", f"location: {target}"))
            await world.fails(HTTPStatusError, match=str(status))
        assert not other.requests


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_origin_keeps_method_body_and_headers(world: World, status: int) -> None:
    """C066"""
    world.answers(lambda p, m: p.respond(status, b"moved", "location: /mcp2"))
    moved: list[Any] = []

    def second(peer: Peer, message: Any) -> None:
        moved.append(world.script.posts[-1])
        peer.respond(200, body_of(message, {"moved": 1}))

    world.script.on("x", lambda p, m: p.respond(status, b"moved", "location: /mcp2"), second)
    assert await world.client.request("x", {"a": 1}) == {"moved": 1}
    ((message, received),) = moved
    assert (received.method, received.target) == ("POST", "/mcp2")
    assert message == world.script.posts[-2][0]
    assert received.headers == [(name, value) for name, value in world.script.posts[-2][1].headers], "the very same"
    world.script.on("x", lambda p, m: p.respond(status, b"", "location: /mcp"))
    await world.fails(HTTPStatusError, match="redirect 6 in a row")


@pytest.mark.parametrize("location", ["", "location: http://[", "location: mailto:a@b"])
async def test_a_redirect_to_nowhere(world: World, location: str) -> None:
    world.answers(lambda p, m: p.respond(307, b"", *([location] if location else [])))
    await world.fails(HTTPStatusError, ProtocolError, match="without a valid location")


@pytest.mark.parametrize("status", [200, 202, 204])
async def test_a_request_that_is_only_accepted(world: World, status: int) -> None:
    world.answers(lambda p, m: p.respond(status))
    await world.fails(ProtocolError, match=f"accepted with status {status}, but a request is owed an answer")


@pytest.mark.parametrize("id", ["7", 10_000, "x", 1.0, True, None])
async def test_an_answer_with_another_id(world: World, id: Any) -> None:
    """C054: as JSON at once, on a stream when it ends."""
    body = json.dumps({"jsonrpc": "2.0", "id": id, "result": {}}).encode()
    world.answers(lambda p, m: p.respond(200, body))
    await world.fails(ProtocolError, match=r"holds no response to the request|id is")
    world.answers(stream(b"data: " + body + b"\n\n"))
    await world.fails(ProtocolError, match="stream ended without the answer")


async def test_an_answer_whose_id_has_another_type(world: World) -> None:
    def answer(peer: Peer, message: Any) -> None:
        peer.respond(200, body_of({"id": str(message["id"])}, {}))

    world.answers(answer)
    await world.fails(ProtocolError, match="its id is another one, of type str")


async def test_two_answers_to_one_request(world: World) -> None:
    def twice(peer: Peer, message: Any) -> Any:
        return stream(result_event(message, {"n": 1}), result_event(message, {"n": 2}), event(note(1)))(peer, message)

    world.answers(twice)
    for _ in range(3):
        assert await world.client.request("x") == {"n": 1}

    def both(peer: Peer, message: Any) -> None:
        error = event(json.loads(error_of(message, 1, "changed my mind")))
        peer.start_stream()
        peer.chunk(result_event(message, {"n": 1}) + error)
        peer.end_stream()

    world.answers(both)
    assert await world.client.request("x") == {"n": 1}


async def test_a_stream_that_goes_on_after_the_answer_is_given_up_in_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcpfast.client import exchange

    monkeypatch.setattr(exchange, "_LINGER_S", 0.1)
    left = asyncio.Event()

    async def endless(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(result_event(message, {"n": 1}))
        await peer.until_left()
        left.set()

    world.answers(endless)
    assert await world.client.request("x") == {"n": 1}
    await asyncio.wait_for(left.wait(), WAIT_S)


async def test_bytes_after_the_answer(world: World) -> None:
    """They are no answer to the next request. (Of httpx nothing is asked here: it takes them for one.)"""
    if not world.is_native:
        return

    def more(peer: Peer, message: Any) -> None:
        peer.respond(200, body_of(message, {"n": 1}))
        peer.respond(200, body_of({"id": message["id"] + 1}, {"forged": True}))

    world.answers(more)
    assert await world.client.request("x") == {"n": 1}
    assert await world.client.request("y") != {"forged": True}


async def test_interim_answers(world: World) -> None:
    def interim(peer: Peer, message: Any) -> None:
        peer.write(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n")
        peer.respond(200, body_of(message, {"n": 1}))

    world.answers(interim)
    assert await world.client.request("x") == {"n": 1}


@pytest.mark.parametrize("retry", [b"0", b"9" * 5000, b"-1", b"x", b"1_0"])
async def test_a_retry_that_makes_no_sense_and_streams_that_end_at_once(world: World, retry: bytes) -> None:
    """The storm is bounded: on sessions the call gives up after a few tries, or at its time."""
    world.answers(stream(b"id: 1\nretry: " + retry + b"\ndata: \n\n"))
    world.script.on("GET", stream())
    await world.fails(RequestTimeout, ProtocolError, ConnectionError, match=r".", timeout=1.0)
    assert len(world.script.gets) <= 4


@pytest.mark.parametrize("event_id", [b"a\x07b", b"a\x1b[31m", b"\x7f", b"x" * 50_000])
async def test_event_ids_that_must_not_be_sent_back(world: World, event_id: bytes) -> None:
    world.answers(stream(b"id: " + event_id + b"\nretry: 1\ndata: \n\n"))
    await world.fails(ProtocolError, match="stream ended without the answer")
    assert not world.script.gets


async def test_an_event_id_of_sixteen_mebibytes(anyio_backend: Any) -> None:
    script = StreamableScript()

    async def huge(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(b"id: ")
        for _ in range(15):
            peer.chunk(b"x" * (1 << 20))
            await peer.drain()
        peer.chunk(b"\nretry: 1\ndata: \n\n")
        peer.end_stream()

    script.on("x", huge)
    options: Any = {"continuous_listening": False}
    async with ScriptedServer(script) as server, connect(script.url(server), "http", "2025-11-25", **options) as client:
        with pytest.raises(ProtocolError, match=r"last event id \(15728640 bytes\) cannot be sent back"):
            await client.request("x")


async def test_a_head_without_end(world: World) -> None:
    async def endless(peer: Peer, message: Any) -> None:
        peer.write(b"HTTP/1.1 200 OK\r\n")
        for number in range(100_000):
            peer.write(b"x-%d: y\r\n" % number)
            await peer.drain()

    world.answers(endless)
    await world.fails(ProtocolError, ConnectionError, match=r".")


async def test_an_error_that_is_no_error(world: World) -> None:
    for error in ("x", None, {}, {"code": "x", "message": "y"}, {"code": 1}):
        body = {"jsonrpc": "2.0", "error": error}
        world.answers(lambda p, m, body=body: p.respond(200, json.dumps({**body, "id": m["id"]}).encode()))
        await world.fails(ProtocolError, match=r"error")
        world.answers(lambda p, m, body=body: p.respond(400, json.dumps({**body, "id": m["id"]}).encode()))
        await world.fails(HTTPStatusError, match="400")


async def test_a_flood_of_notifications_before_the_answer(world: World) -> None:
    """Nobody listens to them: they are dropped, and the answer comes."""

    async def flood(peer: Peer, message: Any) -> None:
        peer.start_stream()
        for _ in range(200):
            peer.chunk(event(note(1)) * 50)
            await peer.drain()
        peer.chunk(result_event(message, {"n": 1}))
        peer.end_stream()

    world.answers(flood)
    assert await world.client.request("x", timeout=20) == {"n": 1}


async def test_an_error_message_of_the_server_is_the_callers(world: World) -> None:
    world.answers(lambda p, m: p.respond(200, error_of(m, -32000, "x" * 10_000)))
    with pytest.raises(RPCError):
        await world.client.request("x")
