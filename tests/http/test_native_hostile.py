"""Requests that no honest client sends, and odd ones that some do, byte by byte on a real socket.

Two readers of one connection must never disagree on where a request ends (RFC 9112 §11.2): whatever
could be read in two ways gets 400 and a closed connection, and what follows is not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpfast.http.interface import Request, Responder
from mcpfast.http.limits import HTTPLimits
from mcpfast.http.native_server import NativeServer
from tests.support.raw_http import RawClient
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


class Served:
    def __init__(self, server: NativeServer, requests: list[Request]) -> None:
        self.server = server
        self.requests = requests
        self.port: int = server.sockets[0].getsockname()[1]

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A server that echoes bodies, awaited or not."""
    requests: list[Request] = []

    def handler(request: Request, responder: Responder) -> Any:
        requests.append(request)
        if request.body_nowait is not None:
            responder.respond(200, (), request.body_nowait)
            return None
        return later(request, responder)

    async def later(request: Request, responder: Responder) -> None:
        responder.respond(200, (), await request.body())

    server = NativeServer(handler, limits=HTTPLimits(max_body_bytes=100_000))
    await server.start()
    yield Served(server, requests)
    await server.drain(0.5)


async def refused(served: Served, raw: bytes) -> int:
    """Send ``raw``; check that one answer came, that it closed the connection; return its status."""
    async with await RawClient.connect(served.port) as client:
        client.send(raw)
        response = await client.response()
        assert response.get(b"connection") == b"close"
        assert await client.is_closed()
    assert "/smuggled" not in served.paths
    return response.status


POST = b"POST /x HTTP/1.1\r\nHost: a\r\n"

SMUGGLING = {
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "two equal lengths": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "length and chunked": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "length with a sign": POST + b"Content-Length: +5\r\n\r\nhello",
    "negative length": POST + b"Content-Length: -5\r\n\r\nhello",
    "length in hex": POST + b"Content-Length: 0x5\r\n\r\nhello",
    "length with an underscore": POST + b"Content-Length: 1_0\r\n\r\nhello",
    "length with a blank inside": POST + b"Content-Length: 5 5\r\n\r\nhello",
    "empty length": POST + b"Content-Length:\r\n\r\nhello",
    "length beyond 64 bits": POST + b"Content-Length: 99999999999999999999\r\n\r\nhello",
    "length of 19 digits": POST + b"Content-Length: 9223372036854775807\r\n\r\nhello",
    "non-ASCII digits": POST + "Content-Length: \u0665\r\n\r\nhello".encode(),
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a coding that only looks chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked after a vertical tab": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "coding in HTTP/1.0": b"POST /x HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bare LF after a field": POST + b"X: 1\nContent-Length: 0\r\n\r\n",
    "bare LF at the end": POST[:-2] + b"\n\n" + SMUGGLED,
    "bare CR in a value": POST + b"X: 1\rY: 2\r\n\r\n",
    "folded field": POST + b"X: 1\r\n 2\r\n\r\n",
    "field folded with a tab": POST + b"X: 1\r\n\t2\r\n\r\n",
    "blank before the first field": b"POST /x HTTP/1.1\r\n Host: a\r\n\r\n",
    "NUL in a value": POST + b"X: a\0b\r\n\r\n",
    "NUL in a name": POST + b"X\0: b\r\n\r\n",
    "control character in a value": POST + b"X: a\x01b\r\n\r\n",
    "blank before the colon": POST + b"Content-Length : 5\r\n\r\nhello",
    "no colon": POST + b"Content-Length 5\r\n\r\nhello",
    "no name": POST + b": 5\r\n\r\nhello",
    "non-ASCII name": POST + b"X\xff: 1\r\n\r\n",
    "chunk size with 0x": POST + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "chunk size with an underscore": POST + b"Transfer-Encoding: chunked\r\n\r\n1_0\r\nhello\r\n0\r\n\r\n",
    "chunk size with a sign": POST + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
    "chunk size with a blank before": POST + b"Transfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n",
    "chunk size with a blank after": POST + b"Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
    "no chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
    "huge chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "chunk longer than its size": POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
    "chunk size ended by LF": POST + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "chunk data ended by LF": POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
    "bare LF in a chunk extension": POST + b"Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
    "bare CR in a chunk extension": POST + b"Transfer-Encoding: chunked\r\n\r\n5;a\rb\r\nhello\r\n0\r\n\r\n",
    "trailers ended by LF": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: 1\n\n" + SMUGGLED,
    "a trailer without colon": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nGET /smuggled HTTP/1.1\r\n\r\n",
    "bare CR before the method": b"\rXGET /x HTTP/1.1\r\nHost: a\r\n\r\n",
    "bare LF before the method": b"\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n",
    "bare LF after an empty line": b"\r\n\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces in the request line": b"GET  /x HTTP/1.1\r\nHost: a\r\n\r\n",
    "tab in the request line": b"GET\t/x\tHTTP/1.1\r\nHost: a\r\n\r\n",
    "blank after the version": b"GET /x HTTP/1.1 \r\nHost: a\r\n\r\n",
    "no version": b"GET /x\r\nHost: a\r\n\r\n",
    "another protocol": b"GET /x RTSP/1.0\r\nHost: a\r\n\r\n",
    "version in lower case": b"GET /x http/1.1\r\nHost: a\r\n\r\n",
    "method in lower case": b"get /x HTTP/1.1\r\nHost: a\r\n\r\n",
    "no request at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no host": b"GET /x HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "two equal hosts": b"GET /x HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
    "host with user information": b"GET /x HTTP/1.1\r\nHost: a@b\r\n\r\n",
    "host with a path": b"GET /x HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "host that is a list": b"GET /x HTTP/1.1\r\nHost: a b\r\n\r\n",
    "host with a word for port": b"GET /x HTTP/1.1\r\nHost: a:http\r\n\r\n",
    "target without slash": b"GET x HTTP/1.1\r\nHost: a\r\n\r\n",
    "target with a fragment": b"GET /x#y HTTP/1.1\r\nHost: a\r\n\r\n",
    "target with a raw non-ASCII byte": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
    "query with a raw non-ASCII byte": b"GET /x?\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "target with a control character": b"GET /a\x7fb HTTP/1.1\r\nHost: a\r\n\r\n",
    "absolute target with user information": b"GET http://u@a/x HTTP/1.1\r\nHost: a\r\n\r\n",
    "absolute target without authority": b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n",
    "asterisk for another method": b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in SMUGGLING.items()])
async def test_ambiguous_request_gets_400_and_a_closed_connection(served: Served, raw: bytes) -> None:
    assert await refused(served, raw + SMUGGLED) == 400
    assert served.server.stats()["refused"] == {"bad_request": 1}
    await until(lambda: served.server.stats()["closed"] == {"bad_request": 1})


@pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in list(SMUGGLING.items())[::4]])
async def test_ambiguous_request_is_seen_through_however_it_is_cut(served: Served, raw: bytes) -> None:
    async with await RawClient.connect(served.port) as client:
        for i in range(len(raw)):
            client.send(raw[i : i + 1])
            await asyncio.sleep(0)
        client.send(SMUGGLED)
        assert (await client.response()).status == 400
        assert await client.is_closed()
    assert "/smuggled" not in served.paths


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        pytest.param(501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="a coding not known here"),
        pytest.param(501, b"BREW /x HTTP/1.1\r\nHost: a\r\n\r\n", id="a method nobody knows"),
        pytest.param(501, b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", id="CONNECT"),
        pytest.param(505, b"GET /x HTTP/2.0\r\nHost: a\r\n\r\n", id="HTTP/2.0"),
        pytest.param(505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2 with prior knowledge"),
        pytest.param(505, b"GET /x HTTP/0.9\r\nHost: a\r\n\r\n", id="HTTP/0.9"),
        pytest.param(505, b"GET /x HTTP/1.2\r\nHost: a\r\n\r\n", id="HTTP/1.2"),
        pytest.param(417, POST + b"Expect: magic\r\nContent-Length: 1\r\n\r\nx", id="an expectation not known"),
        pytest.param(414, b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", id="a target over the limit"),
        pytest.param(414, b"G" * 70_000, id="a method over the limit"),
        pytest.param(431, POST + b"X: " + b"x" * 70_000 + b"\r\n\r\n", id="a value over the limit"),
        pytest.param(431, POST + b"X: " + b"x" * 70_000, id="a value without end"),
        pytest.param(431, POST + b"X" * 70_000, id="a name without end"),
        pytest.param(431, POST + b"X: 1\r\n" * 100 + b"\r\n", id="101 fields"),
    ],
)
async def test_what_is_not_served_has_a_status_of_its_own(served: Served, status: int, raw: bytes) -> None:
    assert await refused(served, raw) == status
    assert served.requests == []


async def test_hundred_fields_and_a_head_of_the_full_size_are_served(served: Served) -> None:
    async with await RawClient.connect(served.port) as client:
        fields = [*((f"X-{i}", "v") for i in range(98)), ("X-Big", "x" * 60_000)]
        assert (await client.fetch("GET", "/x", fields)).status == 200
    assert len(served.requests[0].headers.raw) == 100


async def test_white_space_around_values_is_removed(served: Served) -> None:
    """httptools leaves what follows a value: sdk-seams 4.5, conformance `http-header-validation` (M26-S-37)."""
    async with await RawClient.connect(served.port) as client:
        client.send(b"GET /x HTTP/1.1\r\nHost: a \r\nMcp-Name: \t echo \t \r\nX-Blank: \t\r\nX-In:  a  b \r\n\r\n")
        assert (await client.response()).status == 200
    headers = served.requests[0].headers
    assert list(headers.raw) == [(b"host", b"a"), (b"mcp-name", b"echo"), (b"x-blank", b""), (b"x-in", b"a  b")]


async def test_trailers_are_dropped(served: Served) -> None:
    """They would come out of httptools as header fields after the body."""
    async with await RawClient.connect(served.port) as client:
        client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Late: 1\r\nHost: evil\r\n\r\n")
        assert (await client.response()).body == b"hello"
        assert (await client.fetch("GET", "/next")).status == 200
    assert all("x-late" not in request.headers for request in served.requests)
    assert served.requests[0].headers.getall("host") == ["a"]


async def test_chunk_extensions_are_ignored(served: Served) -> None:
    async with await RawClient.connect(served.port) as client:
        client.send(POST + b'Transfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n1 ; c="d"\r\n!\r\n000;x\r\n\r\n')
        assert (await client.response()).body == b"hello!"


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(b"1;" + b"x" * 5000, id="one without end"),
        pytest.param(b"1;" + b"x" * 4000 + b"\r\na\r\n", id="large ones on small chunks"),
        pytest.param(b"0\r\n" + b"X: " + b"x" * 20_000, id="a trailer without end"),
        pytest.param(b"0\r\n" + b"X: y\r\n" * 4000, id="trailers without end"),
    ],
)
async def test_endless_chunk_framing_is_refused(served: Served, flood: bytes) -> None:
    assert await refused(served, POST + b"Transfer-Encoding: chunked\r\n\r\n" + flood * 10) == 400


@pytest.mark.parametrize("target", [b"http://b.test:80/x?y=1", b"HTTP://b.test:80/x?y=1", b"https://b.test:80/x?y=1"])
async def test_absolute_form_target_is_taken_apart_and_its_authority_is_the_host(served: Served, target: bytes) -> None:
    """RFC 9112 §3.2.2: an origin server must take it, and ignore the Host field then."""
    async with await RawClient.connect(served.port) as client:
        client.send(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await client.response()).status == 200
    request = served.requests[0]
    assert (request.path, request.query_string, request.headers["host"]) == ("/x", "y=1", "b.test:80")


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/a%20b%2Fc%C3%A9", "/a b/cé", ""),
        (b"/%ff", "/\ufffd", ""),
        (b"//evil.test/x", "//evil.test/x", ""),
        (b"/a/../b/./c", "/a/../b/./c", ""),
        (b"/%2e%2e/b", "/../b", ""),
        (b"/x?a=%20&b=c?d", "/x", "a=%20&b=c?d"),
        (b"/x?", "/x", ""),
        (b"/?/../..", "/", "/../.."),
        (b"http://b.test", "/", ""),
        (b"http://b.test?q", "/", "q"),
        (b'/|\\^`{}"<>', '/|\\^`{}"<>', ""),
        (b"/%00", "/\0", ""),
    ],
)
async def test_target_is_read_without_being_tidied(served: Served, target: bytes, path: str, query: str) -> None:
    async with await RawClient.connect(served.port) as client:
        client.send(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await client.response()).status == 200
    assert (served.requests[0].path, served.requests[0].query_string) == (path, query)


async def test_options_for_the_server_as_such_is_answered_without_the_handler(served: Served) -> None:
    """RFC 9110 §9.3.7: ``OPTIONS *`` is about no resource."""
    async with await RawClient.connect(served.port) as client:
        client.send(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await client.response()).status == 204
        assert (await client.fetch("OPTIONS", "/x")).status == 200
    assert served.paths == ["/x"]


@pytest.mark.parametrize(
    "offer",
    [
        b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        b"Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n",
        b"Upgrade: TLS/1.0\r\nConnection: Upgrade\r\n",
    ],
)
@pytest.mark.parametrize("body", [b"", b"hello"])
async def test_offer_to_upgrade_is_ignored_and_the_request_served(served: Served, offer: bytes, body: bytes) -> None:
    """RFC 9110 §7.8. httptools takes such a head for the end of HTTP, and loses the body."""
    raw = POST + offer + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with await RawClient.connect(served.port) as client:
        for _ in range(2):
            client.send(raw)
            response = await client.response()
            assert (response.status, response.body) == (200, body)
        client.send(raw[: -len(body) or None])  # the body in a read of its own
        await asyncio.sleep(0.02)
        client.send(body)
        assert (await client.response()).body == body
        assert (await client.fetch("GET", "/next")).status == 200
    assert served.paths == ["/x", "/x", "/x", "/next"]


async def test_empty_lines_before_a_request_are_forgiven(served: Served) -> None:
    """RFC 9112 §2.2: old clients send one after a body."""
    async with await RawClient.connect(served.port) as client:
        client.send(b"\r\n" + POST + b"Content-Length: 5\r\n\r\nhello\r\n\r\n" + POST + b"\r\n")
        assert (await client.response()).body == b"hello"
        assert (await client.response()).status == 200
    assert len(served.requests) == 2


@pytest.mark.parametrize("end", [b"\n\n", b"\n\r\n", b"\r\n\n"])
async def test_head_that_ends_in_bare_line_feeds_is_refused_at_once(served: Served, end: bytes) -> None:
    """Its client waits for an answer, and would for the whole of the time limit on heads."""
    head = b"GET /x HTTP/1.1\r\nHost: a" + end
    assert await refused(served, head) == 400
    async with await RawClient.connect(served.port) as client:
        for i in range(len(head)):
            client.send(head[i : i + 1])
            await asyncio.sleep(0)
        assert (await client.response()).status == 400


async def test_early_refusal_reaches_a_client_that_is_still_sending(served: Served) -> None:
    """Closing with unread input would make the system send a reset, which can overtake the answer."""
    async with await RawClient.connect(served.port) as client:
        client.send(POST + b"Content-Length: 50000000\r\n\r\n")
        for _ in range(50):
            client.send(bytes(20_000))
        response = await client.response()
        assert response.status == 413
        assert response.get(b"connection") == b"close"
        assert await client.is_closed()
    assert served.server.stats()["refused"] == {"body_too_large": 1}


@pytest.mark.parametrize("same", [True, False])
async def test_repeated_head_is_read_anew_where_it_differs(served: Served, same: bool) -> None:
    """A head like the last one is not parsed again, but each request has its own length and fields."""
    sizes = [5, 5, 1000, 0, 7, 99_999, 5, 123_456, 5]
    async with await RawClient.connect(served.port) as client:
        for number, size in enumerate(sizes):
            name = b"x" if same else b"%d" % number
            client.send(b"POST /%b HTTP/1.1\r\nHost: a\r\nX-Length: %d\r\n" % (name, 5 if same else size))
            client.send(b"CONTENT-LENGTH:  %d \r\nX: y\r\n\r\n" % size)
            if size > 100_000:
                assert (await client.response()).status == 413
                assert await client.is_closed()
                break
            client.send(b"z" * size)
            response = await client.response()
            assert (response.status, len(response.body)) == (200, size)
    for request, size in zip(served.requests, sizes, strict=False):
        assert request.headers["content-length"] == str(size)
        assert request.headers.getall("x") == ["y"]
        assert request.headers.raw.count((b"content-length", b"%d" % size)) == 1


@pytest.mark.parametrize("tampered", [b"Content-Length: 5\r\n", b"Content-Length: +5", b"Content-Length: 5, 5"])
async def test_repeated_head_with_a_tampered_length_is_refused_like_any_other(served: Served, tampered: bytes) -> None:
    async with await RawClient.connect(served.port) as client:
        client.send(POST + b"Content-Length: 5\r\n\r\nhello")
        assert (await client.response()).status == 200
        client.send(POST + tampered + (b"Content-Length: 6" if tampered.endswith(b"\n") else b"") + b"\r\n\r\nhello")
        assert (await client.response()).status == 400
        assert await client.is_closed()
