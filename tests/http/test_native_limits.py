"""Bad days of the native server: every wait is limited, every buffer bounded, and nothing is left over."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from mcpfast.http._h1_body import IncomingBody
from mcpfast.http._h1_chunked import ChunkedDecoder
from mcpfast.http.interface import ClientDisconnected, Handler, Request, Responder
from mcpfast.http.limits import HTTPLimits
from mcpfast.http.native_server import NativeServer
from tests.support.raw_http import RawClient
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio

SSE = ((b"content-type", b"text/event-stream"),)
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"


@asynccontextmanager
async def serving(handler: Handler, **limits: Any) -> AsyncIterator[tuple[NativeServer, int]]:
    server = NativeServer(handler, limits=HTTPLimits(**limits))
    await server.start()
    try:
        yield server, server.sockets[0].getsockname()[1]
    finally:
        await server.drain(0.1)


@asynccontextmanager
async def joined(
    handler: Handler, *, receive_buffer: int | None = None, **limits: Any
) -> AsyncIterator[tuple[NativeServer, RawClient]]:
    """A server, and a client that is connected to it."""
    async with (
        serving(handler, **limits) as (server, port),
        await RawClient.connect(port, receive_buffer=receive_buffer) as client,
    ):
        yield server, client


async def read_body(request: Request, responder: Responder) -> None:
    responder.respond(200, (), b"%d" % len(await request.body()))


async def drip(client: RawClient, data: bytes, size: int, seconds: float) -> None:
    """Send ``data`` in pieces until all is sent or the server closes."""
    for i in range(0, len(data), size):
        if client.reader.at_eof() or client.writer.is_closing():
            return
        client.send(data[i : i + size])
        await asyncio.sleep(seconds)


# Time limits


@pytest.mark.parametrize("clients", [1, 100])
async def test_head_that_drips_in_is_cut_off_with_408(clients: int) -> None:
    """Slowloris: bytes that keep coming do not extend the time for a head."""
    async with serving(read_body, head_timeout_s=0.3) as (server, port):

        async def attack() -> None:
            async with await RawClient.connect(port) as client:
                dripping = asyncio.ensure_future(drip(client, HEAD + b"X: y\r\n" * 1000, 1, 0.02))
                response = await client.response()
                assert (response.status, response.get(b"connection")) == (408, b"close")
                assert await client.is_closed()
                dripping.cancel()

        await asyncio.gather(*(attack() for _ in range(clients)))
        assert server.stats()["refused"] == {"head_timeout": clients}
        await until(lambda: not server.connections)


async def test_second_head_on_a_connection_has_the_same_limit() -> None:
    async with joined(read_body, head_timeout_s=0.2) as (_, client):
        assert (await client.fetch("POST", "/", body=b"x")).status == 200
        client.send(b"POST / HT")
        assert (await client.response()).status == 408


async def test_connection_that_never_says_a_word_is_closed_without_one() -> None:
    async with joined(read_body, head_timeout_s=0.1) as (server, client):
        assert await client.is_closed()
        await until(lambda: server.stats()["closed"] == {"idle": 1})
        assert server.stats()["refused"] == {}


async def test_idle_connection_is_closed_without_a_word() -> None:
    async with joined(read_body, idle_timeout_s=0.1) as (server, client):
        assert (await client.fetch("POST", "/", body=b"x")).status == 200
        assert await client.is_closed()
        await until(lambda: server.stats()["closed"] == {"idle": 1})


async def test_handler_and_stream_may_take_longer_than_any_limit_on_input() -> None:
    async def handler(request: Request, responder: Responder) -> None:
        await asyncio.sleep(0.4)
        responder.start(200, SSE)
        await asyncio.sleep(0.4)
        responder.end()

    limits = {"head_timeout_s": 0.1, "body_timeout_s": 0.1, "idle_timeout_s": 0.1}
    async with joined(handler, **limits) as (_, client):
        for _ in range(2):
            assert (await client.fetch("POST", "/", body=b"x")).status == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_body_that_stalls_is_refused_with_408_and_the_handler_told(chunked: bool) -> None:
    told: list[str] = []

    def handler(request: Request, responder: Responder) -> None:
        responder.on_disconnect(lambda: told.append("callback"))
        tasks.append(asyncio.ensure_future(wait(request)))

    async def wait(request: Request) -> None:
        try:
            await request.body()
        except ClientDisconnected:
            told.append("body")

    tasks: list[asyncio.Future[None]] = []
    async with joined(handler, body_timeout_s=0.2) as (server, client):
        client.send(
            HEAD + (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhe" if chunked else b"Content-Length: 5\r\n\r\nhe")
        )
        assert (await client.response()).status == 408
        assert await client.is_closed()
        await tasks[0]
        assert told == ["callback", "body"]
        assert server.stats()["refused"] == {"body_timeout": 1}


async def test_stalled_body_cancels_the_handlers_task() -> None:
    async with joined(read_body, body_timeout_s=0.1) as (server, client):
        client.send(HEAD + b"Content-Length: 5\r\n\r\n")
        assert (await client.response()).status == 408
        await until(lambda: not server.tasks)


async def test_body_that_drips_in_is_refused_with_408() -> None:
    """Slowloris with a body: a byte now and then is no progress (below 50 bytes a second)."""
    async with joined(read_body, body_timeout_s=0.5) as (_, client):
        client.send(HEAD + b"Content-Length: 1000\r\n\r\n")
        dripping = asyncio.ensure_future(drip(client, bytes(1000), 1, 0.05))
        assert (await client.response()).status == 408
        dripping.cancel()


async def test_body_that_is_slow_but_gets_on_is_served() -> None:
    async with joined(read_body, body_timeout_s=0.3) as (_, client):
        client.send(HEAD + b"Content-Length: 4000\r\n\r\n")
        await drip(client, bytes(4000), 100, 0.02)
        assert (await client.response()).body == b"4000"


async def test_client_waiting_to_be_asked_for_its_body_is_not_late() -> None:
    async def handler(request: Request, responder: Responder) -> None:
        await asyncio.sleep(0.4)
        await read_body(request, responder)

    async with joined(handler, body_timeout_s=0.1) as (_, client):
        client.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert (await client.response()).status == 100
        client.send(b"hello")
        assert (await client.response()).body == b"5"


async def test_body_nobody_reads_is_limited_in_time_too() -> None:
    def handler(request: Request, responder: Responder) -> None:
        responder.respond(401)

    async with joined(handler, body_timeout_s=0.1) as (server, client):
        client.send(HEAD + b"Content-Length: 500\r\n\r\nx")
        assert (await client.response()).status == 401
        assert (await client.response()).status == 408
        assert await client.is_closed()
        await until(lambda: not server.connections)


# Slow readers


@pytest.fixture
def flood() -> Any:
    """A handler that writes as drain() lets it, and what became of it."""

    class Flood:
        most_unsent = 0
        error: BaseException | None = None
        gone = 0

        async def __call__(self, request: Request, responder: Responder) -> None:
            responder.on_disconnect(self._gone)
            responder.start(200, SSE)
            try:
                while True:
                    responder.write(b"x" * 65_536)
                    self.most_unsent = max(self.most_unsent, responder.unsent_bytes)
                    await responder.drain()
            except BaseException as error:
                self.error = error
                raise

        def _gone(self) -> None:
            self.gone += 1

    return Flood()


async def test_reader_that_stops_is_dropped_with_its_reason_counted_and_memory_stays_flat(flood: Any) -> None:
    limits = {"max_unsent_bytes": 200_000, "slow_reader_timeout_s": 0.3}
    async with joined(flood, **limits, receive_buffer=4096) as (server, client):
        client.request("GET", "/")
        await client.head()
        await until(lambda: server.stats()["closed"] == {"slow_reader": 1})
        assert flood.gone == 1
        assert isinstance(flood.error, asyncio.CancelledError)
        assert flood.most_unsent < 200_000 + 2 * 65_600
        await until(lambda: not server.tasks)


async def test_other_clients_hardly_notice_a_reader_that_stops(flood: Any) -> None:
    """C070."""

    def handler(request: Request, responder: Responder) -> Awaitable[None] | None:
        if request.method == "GET":
            awaitable: Awaitable[None] = flood(request, responder)
            return awaitable
        responder.respond(200)
        return None

    async with (
        serving(handler, max_unsent_bytes=200_000) as (server, port),
        await RawClient.connect(port, receive_buffer=4096) as slow,
        await RawClient.connect(port) as other,
    ):
        slow.request("GET", "/")
        await slow.head()
        for _ in range(200):
            assert (await other.fetch("POST", "/", body=b"x")).status == 200
        assert len(server.connections) == 2


async def test_reader_that_stops_in_one_large_message_is_dropped_too() -> None:
    def handler(request: Request, responder: Responder) -> None:
        responder.respond(200, (), bytes(30_000_000))

    async with joined(handler, slow_reader_timeout_s=0.2, receive_buffer=4096) as (server, client):
        client.request("GET", "/")
        await client.head()
        await until(lambda: server.stats()["closed"] == {"slow_reader": 1})


async def test_reader_of_one_large_message_that_gets_on_may_take_its_time() -> None:
    """DESIGN: the limit is on what is unsent beyond the message being written."""

    def handler(request: Request, responder: Responder) -> None:
        responder.respond(200, (), bytes(20_000_000))

    async with joined(handler, slow_reader_timeout_s=0.2, receive_buffer=65_536) as (_, client):
        client.request("GET", "/")
        await client.head()
        started = asyncio.get_running_loop().time()
        read = 0
        while read < 20_000_000:
            read += len(await client.reader.readexactly(400_000))
            await asyncio.sleep(0.015)
        assert asyncio.get_running_loop().time() - started > 3 * 0.2


async def test_messages_piling_up_behind_a_crawling_reader_get_it_dropped() -> None:
    responders: list[Responder] = []

    def handler(request: Request, responder: Responder) -> None:
        responders.append(responder)
        responder.start(200, SSE)

    limits = {"max_unsent_bytes": 100_000, "slow_reader_timeout_s": 0.3}
    async with joined(handler, **limits, receive_buffer=4096) as (server, client):
        client.request("GET", "/")
        await client.head()
        while not responders[0].is_disconnected:
            while responders[0].unsent_bytes < 400_000 and not responders[0].is_disconnected:
                responders[0].write(bytes(50_000))
            try:
                await client.reader.read(10_000)
            except ConnectionError:
                break
            await asyncio.sleep(0.01)
        await until(lambda: server.stats()["closed"] == {"slow_reader": 1})


async def test_last_answer_to_a_reader_that_stopped_does_not_hold_the_connection_for_ever() -> None:
    def handler(request: Request, responder: Responder) -> None:
        responder.respond(200, (), bytes(30_000_000))

    async with joined(handler, slow_reader_timeout_s=0.2, max_unsent_bytes=100_000_000, receive_buffer=4096) as (
        server,
        client,
    ):
        client.request("GET", "/", [("Connection", "close")])
        await client.head()
        await until(lambda: not server.connections)


# Nothing is left over


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


async def test_connects_and_drops_by_the_thousand_leave_nothing() -> None:
    gone = 0

    def handler(request: Request, responder: Responder) -> Awaitable[None] | None:
        def count() -> None:
            nonlocal gone
            gone += 1

        responder.on_disconnect(count)
        if request.path == "/stream":
            responder.start(200, SSE)
            return None
        return asyncio.sleep(1000)

    async with serving(handler) as (server, port):
        tasks_before = len(asyncio.all_tasks())
        files_before = open_files()

        async def come_and_go(number: int) -> None:
            client = await RawClient.connect(port)
            if number % 4:
                client.request("GET", "/stream" if number % 2 else "/work")
                if number % 8 == 1:
                    await client.head()
            client.abort()
            await client.close()

        for _ in range(10):
            await asyncio.gather(*(come_and_go(number) for number in range(100)))
        await until(lambda: not server.connections and not server.tasks)
        await until(lambda: len(asyncio.all_tasks()) == tasks_before)
        assert open_files() <= files_before + 2
        assert server.stats()["connections_total"] == 1000
        assert gone == server.requests
        assert server.deadlines._buckets == {} or sum(map(len, server.deadlines._buckets.values())) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
async def test_server_without_descriptors_left_waits_quietly_and_goes_on() -> None:
    """asyncio reports an error for each place in the listen queue, over and over, if it may try that many at once."""
    import resource

    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving(read_body) as (server, port):
        # The system takes these in by itself: the loop has no turn before the limit is set.
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        next_free = os.dup(clients[0].fileno())
        os.close(next_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free + 10, hard))
        try:
            await until(lambda: server.stats()["connections_total"])
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(reports) < 100
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for client in clients:
                client.close()
        async with await RawClient.connect(port) as late:
            assert (await late.fetch("POST", "/", body=b"x")).body == b"1"


async def test_server_with_a_thousand_open_streams_stops_within_its_grace() -> None:
    def handler(request: Request, responder: Responder) -> None:
        responder.start(200, SSE)

    server = NativeServer(handler)
    await server.start()
    port = server.sockets[0].getsockname()[1]
    clients = []
    for _ in range(1000):
        client = await RawClient.connect(port)
        client.request("GET", "/")
        clients.append(client)
    for client in clients:
        await client.head()
    assert server.stats()["connections"] == 1000
    started = asyncio.get_running_loop().time()
    await asyncio.wait_for(server.drain(0.5), WAIT_S)
    assert asyncio.get_running_loop().time() - started < 5  # 0.5 s, and a busy machine's delays
    assert server.stats()["closed"] == {"shutdown": 1000}
    for client in clients:
        await client.close()


# Cost


def cost(work: Any) -> float:
    """CPU seconds, the least of three runs."""
    times = []
    for _ in range(3):
        start = process_time()
        work()
        times.append(process_time() - start)
    return min(times)


def decode(raw: bytes, step: int) -> bytes:
    decoder = ChunkedDecoder(10 << 20)
    rest = b""
    for i in range(0, len(raw), step):
        data = rest + raw[i : i + step]
        pos = 0
        while not decoder.is_complete:
            before, pos = pos, decoder.feed(data, pos)
            if pos == before or pos == len(data):
                break
        rest = data[pos:]
    assert decoder.is_complete
    return bytes(decoder.body)


@pytest.mark.parametrize("step", [7, 65_536])
def test_cost_of_a_body_in_one_byte_chunks_is_linear(step: int) -> None:
    """Issue 3: a 1 MB body in 1-byte chunks."""
    small = b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n"
    large = b"1\r\nx\r\n" * 40_000 + b"0\r\n\r\n"
    assert decode(large, step) == b"x" * 40_000
    assert cost(lambda: decode(large, step)) < 10 * cost(lambda: decode(small, step)) + 0.05


async def test_megabyte_in_one_byte_chunks_is_served_without_holding_up_others() -> None:
    async with joined(read_body) as (server, client):
        client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        client.send(b"1\r\nx\r\n" * 1_000_000 + b"0\r\n\r\n")
        others = 0
        done = asyncio.ensure_future(client.response())
        async with await RawClient.connect(server.sockets[0].getsockname()[1]) as other:
            while not done.done():
                assert (await other.fetch("POST", "/", body=b"x")).body == b"1"
                others += 1
        assert (await done).body == b"1000000"
        assert others > 20  # not held up by more than some milliseconds each


def test_decoder_lets_others_have_a_turn() -> None:
    raw = b"1\r\nx\r\n" * 20_000
    decoder = ChunkedDecoder(10 << 20)
    pos = calls = 0
    while pos < len(raw):
        pos = decoder.feed(raw, pos)
        calls += 1
    assert calls >= 4


@pytest.mark.parametrize("length", [None, 300_000])
def test_cost_of_a_body_in_small_pieces_is_linear(length: int | None) -> None:
    def collect(size: int) -> None:
        body = IncomingBody(None if length is None else size, 10 << 20)
        if length is None:
            body.feed(b"%x\r\n" % size, 0)
        for _ in range(size // 10):
            body.feed(b"x" * 10, 0)
        if length is None:
            body.feed(b"\r\n0\r\n\r\n", 0)
        assert body.is_complete
        assert len(body.data) == size

    assert cost(lambda: collect(1_200_000)) < 10 * cost(lambda: collect(300_000)) + 0.05


async def test_head_that_comes_byte_by_byte_costs_no_more_than_its_size() -> None:
    from tests.http.test_native_server import connected

    def feed(size: int) -> None:
        raw = HEAD + b"X: " + b"y" * size + b"\r\n\r\n"
        for i in range(len(raw)):
            connection.data_received(raw[i : i + 1])

    connection, transport = await connected(lambda request, responder: responder.respond(200))
    small = cost(lambda: feed(15_000))
    assert cost(lambda: feed(60_000)) < 10 * small + 0.05
    assert len(transport.writes) == 6
    connection.connection_lost(None)


# A peer that vanished


def _run(*command: str) -> bool:
    import subprocess

    return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0


@pytest.fixture
def namespace() -> Any:
    """A network namespace joined to ours by a pair of interfaces: (name, our address, its interface)."""
    if sys.platform != "linux" or not Path("/usr/sbin/ip").exists():
        pytest.skip("needs Linux's ip command")
    name = f"mf{os.getpid()}"
    if not _run("ip", "netns", "add", name):
        pytest.skip("network namespaces are not permitted here")
    try:
        if not (
            _run("ip", "link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
            and _run("ip", "addr", "add", "10.213.77.1/30", "dev", f"{name}a")
            and _run("ip", "link", "set", f"{name}a", "up")
            and _run("ip", "-n", name, "addr", "add", "10.213.77.2/30", "dev", f"{name}b")
            and _run("ip", "-n", name, "link", "set", f"{name}b", "up")
        ):
            pytest.skip("virtual network interfaces are not permitted here")
        yield name, "10.213.77.1", f"{name}b"
    finally:
        _run("ip", "link", "del", f"{name}a")
        _run("ip", "netns", "del", name)


@pytest.mark.parametrize("is_quiet", [True, False])
async def test_client_gone_without_a_word_is_found_within_the_user_timeout(namespace: Any, is_quiet: bool) -> None:
    """Its route is dropped, so no FIN and no reset ever come. A stream with nothing to say is probed."""
    name, address, interface = namespace
    gone = asyncio.Event()
    responders: list[Responder] = []

    def handler(request: Request, responder: Responder) -> None:
        responders.append(responder)
        responder.on_disconnect(gone.set)
        responder.start(200, SSE)
        responder.write(b": hello\n\n")

    server = NativeServer(handler, limits=HTTPLimits(tcp_user_timeout_s=1.5))
    await server.start(host=address)
    client = await asyncio.create_subprocess_exec(
        "ip", "netns", "exec", name, sys.executable, "-c",
        "import socket, sys\n"
        f"s = socket.create_connection(({address!r}, {server.sockets[0].getsockname()[1]}))\n"
        "s.sendall(b'GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n')\n"
        "assert s.recv(100)\n"
        "print('connected', flush=True)\n"
        "sys.stdin.read()\n",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert client.stdout is not None
        assert await asyncio.wait_for(client.stdout.readline(), WAIT_S) == b"connected\n"
        assert _run("ip", "-n", name, "link", "set", interface, "down")
        if not is_quiet:
            responders[0].write(b": keep-alive\n\n")
        await asyncio.wait_for(gone.wait(), 8)
        assert server.stats()["connections"] == 0
    finally:
        client.kill()
        await client.communicate()
        await server.drain(0)


@pytest.mark.skipif(sys.platform != "linux", reason="the options are Linux's")
def test_listening_sockets_ask_for_probes_within_the_user_timeout() -> None:
    from mcpfast.http._sockets import bind_tcp, set_peer_options

    for seconds in (0.5, 3, 30):
        (sock,) = bind_tcp("127.0.0.1", 0, reuse_port=False)
        with sock:
            set_peer_options(sock, HTTPLimits(tcp_user_timeout_s=seconds))
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == seconds * 1000
            idle = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            interval = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
            assert idle + interval <= max(seconds, 2)
