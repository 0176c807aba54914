"""One suite over every backend of the client: what a transport may rely on, whoever carries its requests."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mcpfast.errors import ProtocolError, ResponseTooLarge, TransportClosed
from mcpfast.http import client_interface
from mcpfast.http.backends import choose_backend
from mcpfast.http.client_interface import READ_AHEAD_BYTES, Backend, ClientResponse, fetch
from mcpfast.http.client_request import URL, RequestTemplate
from mcpfast.http.httpx_backend import HTTPXBackend
from mcpfast.http.interface import Request, Responder
from mcpfast.http.native_client import NativeClient
from tests.support.memory_backend import MemoryBackend
from tests.support.scripted_server import Peer, ScriptedServer

pytestmark = pytest.mark.anyio

WAIT_S = 5.0

BACKENDS = [
    "native",
    "httpx",
    pytest.param(
        "httpx2",
        marks=pytest.mark.skipif(importlib.util.find_spec("httpx2") is None, reason="httpx2 is not installed"),
    ),
]


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, anyio_backend: Any) -> AsyncIterator[Backend]:
    if request.param == "native":
        made: Backend = NativeClient()
    else:
        library = importlib.import_module(request.param)
        # verify=False only because loading the system's CAs is slow; no test here uses TLS.
        made = HTTPXBackend(library.AsyncClient(trust_env=False, verify=False), owned=True)
    yield made
    await made.aclose()


def template(server: ScriptedServer, method: str = "POST", headers: dict[str, str] | None = None) -> RequestTemplate:
    return RequestTemplate(method, URL(server.url), headers)


class Pieces:
    """Collects what ``deliver`` brings."""

    def __init__(self, response: ClientResponse) -> None:
        self.data = b""
        self.count = 0
        self.ends: list[Exception | None] = []
        self._changed = asyncio.Event()
        response.deliver(self._on_data, self._on_end)

    def _on_data(self, data: bytes) -> None:
        assert not self.ends
        self.data += data
        self.count += 1
        self._changed.set()

    def _on_end(self, error: Exception | None) -> None:
        self.ends.append(error)
        self._changed.set()

    async def until(self, condition: Any) -> None:
        async def wait() -> None:
            while not condition():
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(wait(), WAIT_S)


async def settled(value: Callable[[], object]) -> None:
    """Wait until nothing moves any more: there is no event for what does not happen."""
    last, same = object(), 0
    while same < 5:
        await asyncio.sleep(0.02)
        last, same = (last, same + 1) if value() == last else (value(), 0)


async def echo(peer: Peer) -> None:
    while True:
        received = await peer.request()
        peer.respond(200, received.body or b"none", "X-Odd:  padded \t")


async def test_a_post_brings_status_headers_and_body(backend: Backend) -> None:
    async with ScriptedServer(echo) as server:
        response = await fetch(backend, template(server), b'{"a":1}')
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        assert response.headers.find(b"x-odd") == b"padded"
        assert await response.read(100) == b'{"a":1}'
        assert response.is_ended


async def test_the_request_asks_for_no_compression_and_carries_fixed_and_own_headers(backend: Backend) -> None:
    async with ScriptedServer(echo) as server:
        fixed = template(server, headers={"X-Fixed": "1", "X-Both": "fixed", "Accept": "text/event-stream"})
        await (await fetch(backend, fixed, b"{}", [(b"x-own", b"2"), (b"x-both", b"own")])).read(100)
        received = server.requests[0]
        assert received.header("accept-encoding") == "identity"
        assert received.header("x-fixed") == "1"
        assert received.header("x-own") == "2"
        assert received.header("x-both") == "own"
        assert received.header("accept") == "text/event-stream"
        assert received.header("host") == f"127.0.0.1:{server.port}"
        assert received.header("content-length") == "2"


async def test_a_header_value_outside_ascii_is_sent_as_its_bytes(backend: Backend) -> None:
    """C045: an event id of other letters goes into Last-Event-ID as UTF-8."""
    async with ScriptedServer(echo) as server:
        extra = [(b"last-event-id", "café-…".encode())]
        await (await fetch(backend, template(server, "GET"), b"", extra)).read(100)
        assert server.requests[0].header("last-event-id") == "café-…"
        assert "café-…".encode() in server.requests[0].raw_head


async def test_a_connection_is_used_again(backend: Backend) -> None:
    async with ScriptedServer(echo) as server:
        for number in range(5):
            body = b"%d" % number
            assert await (await fetch(backend, template(server), body)).read(100) == body
        assert len(server.peers) == 1


async def test_a_stream_is_delivered_piece_by_piece_as_it_comes(backend: Backend) -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        peer.chunk(b"one")
        await go_on.wait()
        peer.chunk(b"two")
        peer.end_stream()
        await peer.until_left()

    async with ScriptedServer(script) as server:
        pieces = Pieces(await fetch(backend, template(server, "GET")))
        await pieces.until(lambda: pieces.data)
        assert pieces.data == b"one"
        assert pieces.ends == []
        go_on.set()
        await pieces.until(lambda: pieces.ends)
        assert pieces.data == b"onetwo"
        assert pieces.ends == [None]


async def test_a_body_that_ends_with_the_connection_is_complete(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nuntil the end")

    async with ScriptedServer(script) as server:
        assert await (await fetch(backend, template(server))).read(100) == b"until the end"


@pytest.mark.parametrize("status", [204, 304])
async def test_some_statuses_have_no_body(backend: Backend, status: int) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            peer.write(b"HTTP/1.1 %d X\r\n\r\n" % status)

    async with ScriptedServer(script) as server:
        for _ in range(2):
            response = await fetch(backend, template(server))
            assert response.status == status
            assert await response.read(100) == b""
        assert len(server.peers) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_left_to_the_transport(backend: Backend, status: int) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            peer.respond(status, b"", "location: /elsewhere")

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server, "GET"))
        assert response.status == status
        response.discard()
        assert len(server.requests) == 1


async def test_a_body_over_the_limit_is_refused_and_its_connection_closed(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        for _ in range(200):
            peer.chunk(bytes(1000))
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server))
        with pytest.raises(ResponseTooLarge, match="limit is 1500"):
            await response.read(1500)
        await server.until(lambda: server.open_connections == 0)


async def test_an_announced_length_over_the_limit_is_refused_before_it_comes(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n")
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server))
        with pytest.raises(ResponseTooLarge, match="holds 1000000000000 bytes"):
            await response.read(1 << 20)
        await server.until(lambda: server.open_connections == 0)


async def test_the_start_of_a_body_can_be_read_without_the_rest(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        peer.chunk(b"x" * 600)
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server))
        assert await response.read(512, truncate=True) == b"x" * 512
        await server.until(lambda: server.open_connections == 0)


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip", "GZIP"])
async def test_a_compressed_answer_nobody_asked_for_is_refused(backend: Backend, coding: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.respond(200, b"\x1f\x8b\x08\x00", f"content-encoding: {coding}")
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server))
        with pytest.raises(ProtocolError, match="content-encoding"):
            await response.read(100)


async def test_identity_is_no_compression(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.respond(200, b"plain", "content-encoding: Identity")

    async with ScriptedServer(script) as server:
        assert await (await fetch(backend, template(server))).read(100) == b"plain"


async def test_a_server_that_is_not_there_is_a_connection_error_that_names_it(backend: Backend) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"127.0.0.1:{port}") as caught:
        await fetch(backend, RequestTemplate("POST", URL(f"http://127.0.0.1:{port}/")), b"{}")
    assert caught.value.__cause__ is not None


async def test_a_name_that_is_none_is_a_connection_error(backend: Backend) -> None:
    with pytest.raises(ConnectionError, match=r"no-such-host\.invalid"):
        await fetch(backend, RequestTemplate("GET", URL("http://no-such-host.invalid/")))


async def test_a_post_whose_connection_is_lost_before_the_answer_is_not_sent_again(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()

    async with ScriptedServer(script) as server:
        with pytest.raises(ConnectionError, match=f"127.0.0.1:{server.port}"):
            await fetch(backend, template(server), b"{}")
        assert len(server.requests) == 1


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_body_that_is_cut_off_is_an_error(backend: Backend, ending: str) -> None:
    cut = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        peer.chunk(b"begun")
        await cut.wait()
        if ending == "reset":
            peer.abort()

    async with ScriptedServer(script) as server:
        pieces = Pieces(await fetch(backend, template(server, "GET")))
        await pieces.until(lambda: pieces.data)
        cut.set()
        await pieces.until(lambda: pieces.ends)
        assert pieces.data == b"begun"
        assert isinstance(pieces.ends[0], ConnectionError)
        assert len(pieces.ends) == 1


async def test_an_answer_that_is_no_http_is_an_error(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        await peer.until_left()

    async with ScriptedServer(script) as server:
        with pytest.raises(ProtocolError, match="no valid HTTP"):
            await fetch(backend, template(server))
        await server.until(lambda: server.open_connections == 0)


async def test_being_cancelled_before_the_answer_closes_the_connection(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.until_left()

    async with ScriptedServer(script) as server:
        task = asyncio.ensure_future(fetch(backend, template(server)))
        await server.until(lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.open_connections == 0)


async def test_being_cancelled_in_mid_body_closes_the_connection(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        peer.chunk(b"x")
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server))
        task = asyncio.ensure_future(response.read(100))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.open_connections == 0)


async def test_closing_in_mid_body_frees_the_connection_and_brings_nothing_more(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        peer.chunk(b"x")
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server, "GET"))
        pieces = Pieces(response)
        await pieces.until(lambda: pieces.data)
        response.close()
        response.close()
        await server.until(lambda: server.open_connections == 0)
        assert pieces.ends == []


async def test_closing_from_within_a_piece_is_fine(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        peer.chunk(b"x")
        peer.chunk(b"y")
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server, "GET"))
        got: list[bytes] = []

        def on_data(data: bytes) -> None:
            got.append(data)
            response.close()

        def on_end(error: Exception | None) -> None:
            raise AssertionError("called after close")

        response.deliver(on_data, on_end)
        await server.until(lambda: server.open_connections == 0)
        assert len(got) == 1


async def test_a_reader_that_pauses_holds_the_server_back(backend: Backend) -> None:
    written = 0

    async def script(peer: Peer) -> None:
        nonlocal written
        peer.writer.transport.set_write_buffer_limits(high=65536)
        await peer.request()
        peer.start_stream()
        for _ in range(400):
            peer.chunk(bytes(65536))
            await peer.drain()
            written += 65536
        peer.end_stream()
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server, "GET"))
        pieces = Pieces(response)
        await pieces.until(lambda: pieces.data)
        response.pause()
        await settled(lambda: written)
        assert written < 20 << 20
        pieces.data = b""
        size = 0

        def on_data(data: bytes) -> None:
            nonlocal size
            size += len(data)

        pieces._on_data = on_data  # type: ignore[method-assign]
        response._on_data = on_data
        response.resume()
        await pieces.until(lambda: pieces.ends)
        assert written == 400 * 65536
        assert pieces.ends == [None]


async def test_a_body_nobody_reads_is_held_only_up_to_a_limit(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        for _ in range(400):
            peer.chunk(bytes(65536))
            await peer.drain()
        peer.end_stream()
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server, "GET"))
        await settled(lambda: response._buffered)
        assert response._buffered <= READ_AHEAD_BYTES + (1 << 20)
        assert len(await response.read(1 << 30)) == 400 * 65536


async def test_posts_pass_while_a_stream_is_open(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        received = await peer.request()
        if received.method == "GET":
            peer.start_stream()
            peer.chunk(b"x")
            await peer.until_left()
            return
        while True:
            peer.respond(200, received.body)
            received = await peer.request()

    async with ScriptedServer(script) as server:
        stream = await fetch(backend, template(server, "GET"))
        for number in range(3):
            body = b"%d" % number
            assert await (await fetch(backend, template(server), body)).read(10) == body
        assert len(server.peers) == 2
        stream.close()


async def test_a_short_body_nobody_wants_costs_no_connection(backend: Backend) -> None:
    async with ScriptedServer(echo) as server:
        for _ in range(3):
            response = await fetch(backend, template(server), b"x" * 1000)
            response.discard()
            await settled(lambda response=response: response.is_ended)
            assert response.is_ended
        assert len(server.peers) == 1


async def test_a_long_body_nobody_wants_is_given_up(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        while True:
            peer.chunk(bytes(10000))
            await peer.drain()

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server))
        response.discard()
        await server.until(lambda: server.open_connections == 0)


async def test_closing_the_backend_tells_everyone_who_waits(backend: Backend) -> None:
    async def script(peer: Peer) -> None:
        received = await peer.request()
        if received.method == "GET":
            peer.start_stream()
            peer.chunk(b"x")
        await peer.until_left()

    async with ScriptedServer(script) as server:
        pieces = Pieces(await fetch(backend, template(server, "GET")))
        waiting = asyncio.ensure_future(fetch(backend, template(server)))
        await server.until(lambda: len(server.requests) == 2)
        await backend.aclose()
        await backend.aclose()
        with pytest.raises(TransportClosed):
            await waiting
        assert isinstance(pieces.ends[0], TransportClosed)
        await server.until(lambda: server.open_connections == 0)
        with pytest.raises(TransportClosed):
            backend.start(template(server), lambda response, error: None)


async def test_nothing_is_called_back_before_start_returns_nor_after_cancel(backend: Backend) -> None:
    async with ScriptedServer(echo) as server:
        await (await fetch(backend, template(server))).read(100)
        called: list[object] = []
        exchange = backend.start(template(server), lambda response, error: called.append(response or error))
        assert called == []
        exchange.cancel()
        exchange.cancel()
        await (await fetch(backend, template(server))).read(100)
        assert called == []


async def test_many_requests_at_once_get_each_its_own_answer(backend: Backend) -> None:
    async with ScriptedServer(echo) as server:

        async def one(number: int) -> bytes:
            return await (await fetch(backend, template(server), b"%d" % number)).read(100)

        answers = await asyncio.gather(*[one(number) for number in range(150)])
        assert answers == [b"%d" % number for number in range(150)]


async def test_the_memory_backend_joins_a_client_to_a_handler(anyio_backend: Any) -> None:
    def handler(request: Request, responder: Responder) -> None:
        if request.path == "/gone":
            responder.abort("test")
            return
        responder.start(200, [(b"content-type", b"text/plain")])
        responder.write(b"hello ")
        responder.write(request.body_nowait or b"")
        responder.end()

    backend = MemoryBackend(handler)
    response = await fetch(backend, RequestTemplate("POST", URL("http://test/x?y=1"), {"a": "b"}), b"world")
    assert response.status == 200
    assert await response.read(100) == b"hello world"
    with pytest.raises(ConnectionError):
        await fetch(backend, RequestTemplate("POST", URL("http://test/gone")))
    await backend.aclose()


async def test_the_backend_is_chosen_by_what_is_given(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    import httpx

    url = URL("http://example.test/mcp")
    native, owned = choose_backend(url)
    assert isinstance(native, NativeClient)
    assert owned
    assert choose_backend(url, native) == (native, False)
    async with httpx.AsyncClient() as client:
        assert isinstance(choose_backend(url, client)[0], HTTPXBackend)
    for wrong in ("http://proxy", object(), httpx.Client):
        with pytest.raises(TypeError, match="AsyncClient"):
            choose_backend(url, wrong)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    proxied, owned = choose_backend(url)
    assert isinstance(proxied, HTTPXBackend)
    assert owned
    await proxied.aclose()
    monkeypatch.setenv("NO_PROXY", "example.test")
    assert isinstance(choose_backend(url)[0], NativeClient)


async def test_a_proxy_of_the_environment_gets_the_request(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedServer(echo) as server:
        monkeypatch.setenv("http_proxy", server.origin)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        url = URL("http://example.test/mcp")
        backend, _ = choose_backend(url)
        assert await (await fetch(backend, RequestTemplate("POST", url), b"hi")).read(10) == b"hi"
        assert server.requests[0].target == "http://example.test/mcp"
        await backend.aclose()


async def test_a_users_client_keeps_its_own_headers_and_is_not_closed(anyio_backend: Any) -> None:
    import httpx

    async with ScriptedServer(echo) as server, httpx.AsyncClient(headers={"X-Theirs": "1"}, trust_env=False) as client:
        backend, _ = choose_backend(URL(server.url), client)
        await (await fetch(backend, template(server), b"{}")).read(10)
        assert server.requests[0].header("x-theirs") == "1"
        await backend.aclose()
        assert not client.is_closed


async def test_a_body_nobody_wants_that_never_ends_is_given_up(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers 202 and goes on for ever must not use up the connections."""
    monkeypatch.setattr(client_interface, "DISCARD_S", 0.1)

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.start_stream()
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(backend, template(server))
        response.discard()
        await server.until(lambda: server.open_connections == 0)
