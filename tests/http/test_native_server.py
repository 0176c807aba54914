"""What the native server does with honest clients: connections, answers, sockets, TLS, stopping."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpfast.http._h1_body import IncomingBody
from mcpfast.http._h1_connection import H1Connection
from mcpfast.http._h1_parser import HeadParser
from mcpfast.http._h1_responder import H1Responder
from mcpfast.http.deadlines import Deadlines, MovingDeadline
from mcpfast.http.interface import Handler, Request, Responder
from mcpfast.http.limits import HTTPLimits
from mcpfast.http.native_server import AccessRecord, NativeServer
from tests.support.raw_http import RawClient, Truncated
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio

SSE = ((b"content-type", b"text/event-stream"),)


@asynccontextmanager
async def serving(handler: Handler, **options: Any) -> AsyncIterator[tuple[NativeServer, int]]:
    start = {key: options.pop(key) for key in ("path", "sock", "reuse_port", "host") if key in options}
    server = NativeServer(handler, **options)
    await server.start(**start)
    try:
        name = server.sockets[0].getsockname()
        yield server, name[1] if isinstance(name, tuple) else 0
    finally:
        await server.drain(0.2)


@asynccontextmanager
async def joined(handler: Handler, **options: Any) -> AsyncIterator[tuple[NativeServer, RawClient]]:
    """A server, and a client that is connected to it."""
    async with serving(handler, **options) as (server, port), await RawClient.connect(port) as client:
        yield server, client


def echo(request: Request, responder: Responder) -> Awaitable[None] | None:
    if request.body_nowait is not None:
        responder.respond(200, (), request.body_nowait)
        return None

    async def later() -> None:
        responder.respond(200, (), await request.body())

    return later()


# Connections


async def test_connection_serves_request_after_request() -> None:
    async with joined(echo) as (server, client):
        for i in range(20):
            response = await client.fetch("POST", "/", body=b"%d" % i)
            assert (response.version, response.status, response.body) == (b"HTTP/1.1", 200, b"%d" % i)
            assert response.get(b"connection") is None
        assert server.stats()["connections"] == 1
        assert server.stats()["connections_total"] == 1
        assert server.stats()["requests"] == 20


@pytest.mark.parametrize("value", ["close", "Close", "keep-alive, close", "x,close"])
async def test_connection_closes_after_the_answer_if_the_client_says_so(value: str) -> None:
    async with joined(echo) as (server, client):
        response = await client.fetch("POST", "/", [("Connection", value)], b"x")
        assert response.body == b"x"
        assert response.get(b"connection") == b"close"
        assert await client.is_closed()
        await until(lambda: server.stats()["closed"] == {"done": 1})


async def test_http10_client_gets_no_chunks_and_keeps_the_connection_only_if_it_asks() -> None:
    def handler(request: Request, responder: Responder) -> None:
        if request.path == "/stream":
            responder.start(200, SSE)
            responder.write(b"data: 1\n\n")
            responder.write(b"data: 2\n\n")
            responder.end()
        else:
            responder.respond(200, (), b"x")

    async with serving(handler) as (_, port):
        async with await RawClient.connect(port) as client:
            response = await client.fetch("GET", "/stream", version="1.0")
            assert response.get(b"transfer-encoding") is None
            assert response.get(b"connection") == b"close"
            assert response.body == b"data: 1\n\ndata: 2\n\n"
        async with await RawClient.connect(port) as client:
            assert (await client.fetch("GET", "/", version="1.0")).get(b"connection") == b"close"
            assert await client.is_closed()
        async with await RawClient.connect(port) as client:
            for _ in range(2):
                response = await client.fetch("GET", "/", [("Connection", "keep-alive")], version="1.0")
                assert (response.get(b"connection"), response.body) == (b"keep-alive", b"x")
            # No Host is fine for such a client, and 100 Continue unknown to it.
            client.send(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
            client.send(b"x")
            assert (await client.response()).status == 200


async def test_pipelined_requests_are_answered_in_order_whatever_each_takes() -> None:
    async def handler(request: Request, responder: Responder) -> None:
        for _ in range(int(request.query["turns"][0])):
            await asyncio.sleep(0)
        if request.query["way"] == ["stream"]:
            responder.start(200, SSE)
            responder.write(request.path.encode())
            responder.end()
        else:
            responder.respond(200, (), request.path.encode() + await request.body())

    async with joined(handler) as (_, client):
        for i in range(100):
            way = "stream" if i % 3 else "whole"
            client.request(
                "POST", f"/{i}?turns={(i * 7) % 5}&way={way}", body=b"-" * (i % 4) if way == "whole" else None
            )
        for i in range(100):
            assert (await client.response()).body == b"/%d" % i + (b"-" * (i % 4) if i % 3 == 0 else b"")


async def test_pipelined_requests_wait_while_a_stream_is_open_and_unread_above_the_limit() -> None:
    streams: list[Responder] = []

    def handler(request: Request, responder: Responder) -> None:
        if request.path == "/stream":
            streams.append(responder)
            responder.start(200, SSE)
        else:
            responder.respond(200, (), request.path.encode())

    async with joined(handler, limits=HTTPLimits(pipelined_bytes=10_000)) as (server, client):
        client.request("GET", "/stream")
        await client.head()
        count = 400_000 // 60
        for i in range(count):
            client.request("GET", f"/{i:07}", [("X", "y" * 10)])
        await asyncio.sleep(0.05)
        (connection,) = server.connections
        # One read may pass the limit; then the socket is left alone.
        assert connection.bytes_in < 10_000 + 262_144 + 1000
        assert server.requests == 1
        streams[0].end()
        assert await client.chunk() == b""
        for i in range(count):
            assert (await client.response()).body == b"/%07d" % i


async def test_flood_of_pipelined_requests_leaves_turns_to_others() -> None:
    """Issue 3: no turn of the loop over 50 ms from one connection. 32 small requests are far below."""
    turn = 0
    per_turn: dict[int, int] = {}

    def handler(request: Request, responder: Responder) -> None:
        per_turn[turn] = per_turn.get(turn, 0) + 1
        responder.respond(200)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    counter = asyncio.ensure_future(count_turns())
    async with joined(handler) as (server, client):
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 5000)
        await until(lambda: server.requests == 5000)
        counter.cancel()
        assert max(per_turn.values()) <= 33
        for _ in range(5000):
            assert (await client.response()).status == 200


async def test_end_of_input_counts_as_the_client_leaving() -> None:
    """A half-closed connection looks like a closed one; a request must not outlive its client."""
    cancelled = asyncio.Event()

    async def handler(request: Request, responder: Responder) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with joined(handler) as (server, client):
        client.request("GET", "/")
        await until(lambda: server.requests == 1)
        client.writer.write_eof()
        await asyncio.wait_for(cancelled.wait(), WAIT_S)
        assert await client.is_closed()
        await until(lambda: server.stats()["closed"] == {"client": 1})
        await until(lambda: not server.tasks)


async def test_reset_connection_frees_everything() -> None:
    gone = asyncio.Event()

    def handler(request: Request, responder: Responder) -> None:
        responder.on_disconnect(gone.set)
        responder.start(200, SSE)

    async with serving(handler) as (server, port):
        client = await RawClient.connect(port)
        client.request("GET", "/")
        await client.head()
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.abort()
        await asyncio.wait_for(gone.wait(), WAIT_S)
        await until(lambda: not server.connections)


async def test_connections_over_the_limit_are_closed_as_they_come() -> None:
    async with serving(echo, limits=HTTPLimits(max_connections=3)) as (server, port):
        clients = [await RawClient.connect(port) for _ in range(3)]
        for client in clients:
            assert (await client.fetch("POST", "/", body=b"x")).status == 200
        async with await RawClient.connect(port) as fourth:
            assert await fourth.is_closed()
        assert server.stats()["refused"] == {"connections": 1}
        await clients[0].close()
        await until(lambda: len(server.connections) == 2)
        async with await RawClient.connect(port) as again:
            assert (await again.fetch("POST", "/", body=b"x")).status == 200
        for client in clients[1:]:
            await client.close()


# Bodies


async def test_client_that_expects_it_is_told_to_continue_when_its_body_is_wanted() -> None:
    async def handler(request: Request, responder: Responder) -> None:
        if request.path == "/refuse":
            responder.respond(403)
        else:
            responder.respond(200, (), await request.body())

    async with serving(handler) as (_, port):
        async with await RawClient.connect(port) as client:
            head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n"
            for _ in range(2):
                client.send(head)
                assert (await client.response()).status == 100
                client.send(b"hello")
                assert (await client.response()).body == b"hello"
            client.send(head + b"hello")  # it did not wait
            assert (await client.response()).body == b"hello"
        async with await RawClient.connect(port) as client:
            client.send(head.replace(b"/ ", b"/refuse "))
            response = await client.response()
            # Whether the body still comes is not known, so nothing can follow.
            assert (response.status, response.get(b"connection")) == (403, b"close")
            assert await client.is_closed()


async def test_rest_of_an_unwanted_body_is_dropped_to_keep_the_connection() -> None:
    def handler(request: Request, responder: Responder) -> None:
        responder.respond(401 if request.method == "POST" else 200)

    async with joined(handler) as (_, client):
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n" + b"GET / HTTP/1.1\r\n" * 100)
        assert (await client.response()).status == 401
        client.send(b"GET / HTTP/1.1\r\n" * 3650)
        assert (await client.fetch("GET", "/")).status == 200


async def test_unwanted_body_that_is_large_ends_the_connection() -> None:
    def handler(request: Request, responder: Responder) -> None:
        responder.respond(401)

    async with joined(handler) as (_, client):
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + bytes(1000))
        response = await client.response()
        assert (response.status, response.get(b"connection")) == (401, b"close")
        assert await client.is_closed()


# Answers, as they are written


class Transport:
    """Records writes; everything is sent at once."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, pieces: tuple[bytes, ...]) -> None:
        self.writes.append(b"".join(pieces))

    def close(self) -> None:
        self.is_closed = True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        assert 0 < low < high

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 50000) if name == "peername" else None


async def connected(handler: Handler) -> tuple[H1Connection, Transport]:
    server = NativeServer(handler)
    server.loop = asyncio.get_running_loop()
    server.deadlines = Deadlines.for_loop()
    connection = H1Connection(server)
    transport = Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("size", [0, 1, 1000, 200_000])
async def test_complete_answer_is_one_write(size: int) -> None:
    connection, transport = await connected(lambda request, responder: responder.respond(200, SSE, b"x" * size))
    connection.data_received(GET)
    (written,) = transport.writes
    head, _, body = written.partition(b"\r\n\r\n")
    assert body == b"x" * size
    assert b"\r\ncontent-length: %d\r\n" % size in head
    assert b"\r\ndate: " in head
    connection.connection_lost(None)


async def test_first_piece_goes_out_with_the_head_and_each_with_its_framing() -> None:
    responders: list[Responder] = []

    def handler(request: Request, responder: Responder) -> None:
        responders.append(responder)
        responder.start(200, SSE)
        responder.write(b"data: 1\n\n")

    connection, transport = await connected(handler)
    connection.data_received(GET)
    assert len(transport.writes) == 1
    assert transport.writes[0].endswith(b"\r\n\r\n9\r\ndata: 1\n\n\r\n")
    await asyncio.sleep(0)
    responders[0].write(b"data: 23\n\n")
    responders[0].end()
    assert transport.writes[1:] == [b"a\r\ndata: 23\n\n\r\n", b"0\r\n\r\n"]
    connection.connection_lost(None)


async def test_head_alone_goes_out_at_the_end_of_the_turn() -> None:
    connection, transport = await connected(lambda request, responder: responder.start(200, SSE))
    connection.data_received(GET)
    assert transport.writes == []
    await asyncio.sleep(0)
    assert len(transport.writes) == 1
    assert transport.writes[0].endswith(b"\r\n\r\n")
    connection.connection_lost(None)


async def test_stream_needs_no_task() -> None:
    async with serving(lambda request, responder: responder.start(200, SSE)) as (server, port):
        before = len(asyncio.all_tasks())
        clients = [await RawClient.connect(port) for _ in range(20)]
        for client in clients:
            client.request("GET", "/")
            await client.head()
        assert len(server.connections) == 20
        assert not server.tasks
        assert len(asyncio.all_tasks()) == before
        for client in clients:
            await client.close()


async def test_date_is_that_of_rfc_9110() -> None:
    async with joined(echo) as (_, client):
        date = ((await client.fetch("POST", "/", body=b"")).get(b"date") or b"").decode()
    from email.utils import formatdate, parsedate_to_datetime

    moment = parsedate_to_datetime(date)
    assert formatdate(moment.timestamp(), usegmt=True) == date


async def test_the_date_of_like_answers_is_each_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads are kept, but no longer than their date is right."""
    async with joined(echo) as (_, client):
        for second in (0, 1, 1, 2):
            monkeypatch.setattr("mcpfast.http._h1_head.time", lambda second=second: 946_684_800.5 + second)
            for body in (b"a", b"b", b"three"):
                response = await client.fetch("POST", "/", body=body)
                assert response.get(b"date") == b"Sat, 01 Jan 2000 00:00:0%d GMT" % second
                assert response.body == body


async def test_requests_and_connections_leave_nothing_to_the_garbage_collector() -> None:
    """Cycles would be freed late, and the collector's runs cost more than the requests."""

    async def handler(request: Request, responder: Responder) -> None:
        if request.path == "/stream":
            responder.start(200, SSE)
            responder.write(b"data: 1\n\n")
        responder.on_disconnect(lambda: None)
        body = await request.body()
        if request.path == "/stream":
            responder.end()
        else:
            responder.respond(200, (), body)

    async with serving(handler) as (server, port):
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                async with await RawClient.connect(port) as client:
                    await client.fetch("POST", "/", body=b"x")
                    await client.fetch("GET", "/stream")
                    client.request("POST", "/", [("Transfer-Encoding", "chunked")])
                    client.send(b"1\r\n")
                    await asyncio.sleep(0.01)
                    client.send(b"x\r\n0\r\n\r\n")
                    await client.response()
            await until(lambda: not server.connections)
            ours = (H1Connection, H1Responder, HeadParser, IncomingBody, MovingDeadline, Request)
            left = [thing for thing in gc.get_objects() if isinstance(thing, ours)]
        finally:
            gc.enable()
    assert left == []


# Logs and counts


async def test_access_log_has_no_query_and_no_header() -> None:
    records: list[AccessRecord] = []

    def handler(request: Request, responder: Responder) -> None:
        responder.respond(200, (), b"12345")

    async with joined(handler, access_log=records.append) as (_, client):
        await client.fetch("POST", "/m?session_id=secret", [("Authorization", "Bearer secret")], b"secret")
    (record,) = records
    assert (record.method, record.path, record.status, record.bytes_sent) == ("POST", "/m", 200, 5)
    assert record.client is not None
    assert 0 <= record.seconds < WAIT_S
    assert "secret" not in repr(record)


async def test_failing_access_log_does_not_harm_the_answer() -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    async with joined(echo, access_log=lambda record: 1 / 0) as (_, client):
        for _ in range(2):
            assert (await client.fetch("POST", "/", body=b"x")).body == b"x"
    asyncio.get_running_loop().set_exception_handler(None)
    assert len(failures) == 2


async def test_stats_count_bytes_of_open_and_closed_connections() -> None:
    async with serving(echo) as (server, port):
        sent = received = 0
        for _ in range(2):
            async with await RawClient.connect(port) as client:
                request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
                client.send(request)
                head = await client.reader.readuntil(b"\r\n\r\n")
                await client.reader.readexactly(3)
                sent += len(request)
                received += len(head) + 3
                stats = server.stats()
                assert (stats["bytes_in"], stats["bytes_out"]) == (sent, received)


# Sockets


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets here")
async def test_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "mcp.sock")
    left_over = socket.socket(socket.AF_UNIX)
    left_over.bind(path)  # of a process that died
    left_over.close()
    clients: list[Any] = []

    def handler(request: Request, responder: Responder) -> None:
        clients.append(request.client)
        responder.respond(200)

    async with serving(handler, path=path), await RawClient.connect(path=path) as client:
        assert (await client.fetch("GET", "/")).status == 200
    assert clients == [None]
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240  # it is at the end of the test


async def test_unix_socket_does_not_take_the_place_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        await NativeServer(echo).start(path=str(path))
    assert path.read_text() == "mine"


async def test_socket_given_by_the_caller_is_served() -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    async with serving(echo, sock=sock), await RawClient.connect(port) as client:
        assert (await client.fetch("POST", "/", body=b"x")).body == b"x"


async def test_port_in_use_is_an_error_unless_it_is_shared() -> None:
    async with serving(echo) as (_, port):
        with pytest.raises(OSError, match="in use"):
            await NativeServer(echo).start(port=port)
    async with serving(echo, reuse_port=True) as (_, port):
        second = NativeServer(echo)
        await second.start(port=port, reuse_port=True)
        await second.drain(0)


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_USER_TIMEOUT is Linux's")
async def test_accepted_connections_are_watched_for_dead_peers_and_send_at_once() -> None:
    """Set on the listening socket, inherited by each connection."""
    async with joined(echo, limits=HTTPLimits(tcp_user_timeout_s=30)) as (server, client):
        await client.fetch("POST", "/", body=b"")
        (connection,) = server.connections
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 20
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 10
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_localhost_is_served_on_every_address_it_has() -> None:
    async with serving(echo, host="localhost") as (server, port):
        assert {sock.getsockname()[1] for sock in server.sockets} == {port}
        async with await RawClient.connect(port) as client:
            assert (await client.fetch("POST", "/", body=b"x")).status == 200


# Stopping


async def test_drain_closes_idle_connections_and_lets_answers_be_completed() -> None:
    go = asyncio.Event()

    async def handler(request: Request, responder: Responder) -> None:
        await go.wait()
        responder.respond(200, (), b"in time")

    server = NativeServer(handler)
    await server.start()
    port = server.sockets[0].getsockname()[1]
    async with await RawClient.connect(port) as idle, await RawClient.connect(port) as busy:
        busy.request("GET", "/")
        await until(lambda: server.requests == 1 and len(server.connections) == 2)
        draining = asyncio.ensure_future(server.drain(WAIT_S))
        assert await idle.is_closed()
        with pytest.raises(ConnectionError):
            await RawClient.connect(port)
        go.set()
        response = await busy.response()
        assert response.body == b"in time"
        assert response.get(b"connection") == b"close"
        assert await busy.is_closed()
        await asyncio.wait_for(draining, WAIT_S)
    assert server.stats()["connections"] == 0
    assert server.stats()["closed"] == {"shutdown": 1, "done": 1}


async def test_drain_ends_a_stream_whose_handler_ends_it_and_closes_behind_it() -> None:
    responders: list[Responder] = []

    def handler(request: Request, responder: Responder) -> None:
        responders.append(responder)
        responder.start(200, SSE)

    server = NativeServer(handler)
    await server.start()
    async with await RawClient.connect(server.sockets[0].getsockname()[1]) as client:
        client.request("GET", "/")
        await client.head()
        draining = asyncio.ensure_future(server.drain(WAIT_S))
        await asyncio.sleep(0)
        responders[0].end()
        assert await client.chunk() == b""
        assert await client.is_closed()
        await asyncio.wait_for(draining, WAIT_S)


async def test_after_the_grace_handlers_are_cancelled_and_streams_cut() -> None:
    cancelled = asyncio.Event()

    def handler(request: Request, responder: Responder) -> Awaitable[None] | None:
        responder.start(200, SSE)
        return work() if request.path == "/work" else None

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    server = NativeServer(handler)
    await server.start()
    port = server.sockets[0].getsockname()[1]
    async with await RawClient.connect(port) as stream, await RawClient.connect(port) as worker:
        stream.request("GET", "/")
        worker.request("GET", "/work")
        await stream.head()
        await worker.head()
        await asyncio.wait_for(server.drain(0.05), WAIT_S)
        assert cancelled.is_set()
        for client in (stream, worker):
            with pytest.raises((Truncated, ConnectionError)):
                await client.chunk()
    assert not server.tasks
    assert server.stats()["closed"] == {"shutdown": 2}


async def test_drain_of_a_server_that_never_started_or_has_nothing_to_do() -> None:
    server = NativeServer(echo)
    await server.start()
    await server.drain(WAIT_S)
    await server.drain(WAIT_S)


# TLS


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's context, for a certificate made up for localhost."""
    pytest.importorskip("cryptography")
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cafile=str(path))


async def test_tls(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    schemes: list[str] = []
    gone = asyncio.Event()

    def handler(request: Request, responder: Responder) -> Awaitable[None] | None:
        schemes.append(request.scheme)
        if request.path == "/stream":
            responder.on_disconnect(gone.set)
            responder.start(200, SSE)
            responder.write(b"data: 1\n\n")
            return None
        return echo(request, responder)

    async with serving(handler, ssl=contexts[0]) as (server, port):
        async with await RawClient.connect(port, ssl=contexts[1]) as client:
            assert (await client.fetch("POST", "/", body=b"x" * 300_000)).body == b"x" * 300_000
            client.request("GET", "/stream")
            await client.head()
            assert await client.chunk() == b"data: 1\n\n"
        await asyncio.wait_for(gone.wait(), WAIT_S)
        async with await RawClient.connect(port, ssl=contexts[1]) as client:
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            assert (await client.response()).status == 400
            assert await client.is_closed()
        await until(lambda: not server.connections)
    assert schemes == ["https", "https"]
