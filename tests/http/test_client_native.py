"""The native client against servers that err or mean harm, and the life of its connections."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from mcpfast.errors import ProtocolError, RequestTimeout
from mcpfast.http import native_client
from mcpfast.http.client_interface import ClientResponse, fetch
from mcpfast.http.client_request import URL, RequestTemplate
from mcpfast.http.native_client import NativeClient
from tests.support.scripted_server import Peer, ScriptedServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(anyio_backend: Any) -> AsyncIterator[NativeClient]:
    made = NativeClient()
    yield made
    await made.aclose()


def template(server: ScriptedServer, method: str = "POST") -> RequestTemplate:
    return RequestTemplate(method, URL(server.url))


async def get(client: NativeClient, server: ScriptedServer, method: str = "GET") -> bytes:
    return await (await fetch(client, template(server, method))).read(1 << 20)


def plays(*answers: bytes, stay: bool = True) -> Any:
    """A script that gives each request of a connection the next answer."""

    async def script(peer: Peer) -> None:
        for answer in answers:
            await peer.request()
            peer.write(answer)
        if stay:
            await peer.until_left()

    return script


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


# What a server may not send


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok", id="two equal lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 5\r\n\r\nok", id="two lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok", id="a list of lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok", id="signed length"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nok", id="overflowing length"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            id="length and chunked",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            id="chunked and length",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", id="gzip, chunked"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nok", id="other transfer-encoding"),
        pytest.param(
            b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", id="chunked on HTTP/1.0"
        ),
        pytest.param(b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok", id="bare LF"),
        pytest.param(b"HTTP/1.1 200 OK\r\na: b\r\n c\r\ncontent-length: 2\r\n\r\nok", id="obs-fold"),
        pytest.param(b"HTTP/1.1 200 OK\r\na: b\0c\r\ncontent-length: 2\r\n\r\nok", id="NUL in a value"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nok", id="space before the colon"),
        pytest.param(b"HTTP/1.1 99 X\r\ncontent-length: 2\r\n\r\nok", id="status of two digits"),
        pytest.param(b"HTTP/1.1 099 X\r\ncontent-length: 2\r\n\r\nok", id="status under 100"),
        pytest.param(b"HTTP/1.1 600 X\r\ncontent-length: 2\r\n\r\nok", id="status over 599"),
        pytest.param(b"HTTP/3.1 200 OK\r\ncontent-length: 2\r\n\r\nok", id="other version"),
        pytest.param(b"HTTP/2.0 200 OK\r\ncontent-length: 2\r\n\r\nok", id="HTTP/2 in HTTP/1's form"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n", id="bad chunk size"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\nok\n0\n\n", id="bare LF in chunks"),
        pytest.param(b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", id="switched protocols"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 101 + b"content-length: 2\r\n\r\nok", id="102 fields"),
        pytest.param(b"HTTP/1.1 200 OK\r\na: " + b"b" * 70_000 + b"\r\ncontent-length: 2\r\n\r\nok", id="70 KB field"),
        pytest.param(b"HTTP/1.1 200 " + b"b" * 70_000 + b"\r\ncontent-length: 2\r\n\r\nok", id="70 KB reason"),
        pytest.param(b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" * 17 + OK, id="17 interim answers"),
        pytest.param(b"<html>Bad gateway</html>", id="no HTTP"),
    ],
)
async def test_an_answer_that_could_be_read_in_two_ways_or_has_no_end_is_refused(
    client: NativeClient, answer: bytes
) -> None:
    async with ScriptedServer(plays(answer)) as server:
        with pytest.raises(ProtocolError, match=r"http://127\.0\.0\.1"):
            await get(client, server)
        await server.until(lambda: server.open_connections == 0)


async def test_a_head_that_never_ends_is_given_up_at_its_limit(client: NativeClient) -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        peer.write(b"HTTP/1.1 200 OK\r\nx: ")
        while True:
            peer.write(bytes(b"y" * 1000))
            await peer.drain()
            sent += 1000
            await asyncio.sleep(0)

    async with ScriptedServer(script) as server:
        with pytest.raises(ProtocolError, match="over the limit of 65536 bytes"):
            await get(client, server)
        await server.until(lambda: server.open_connections == 0)


async def test_chunk_extensions_without_end_are_given_up(client: NativeClient) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;")
        while True:
            peer.write(b"x=y;" * 1000)
            await peer.drain()
            await asyncio.sleep(0)

    async with ScriptedServer(script) as server:
        response = await fetch(client, template(server))
        with pytest.raises(ProtocolError, match="framing without content"):
            await response.read(1 << 20)
        await server.until(lambda: server.open_connections == 0)


async def test_small_chunks_with_an_extension_each_are_fine(client: NativeClient) -> None:
    body = b"".join(b"1;name=value\r\nx\r\n" for _ in range(20_000))
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"
    async with ScriptedServer(plays(answer)) as server:
        assert await get(client, server) == b"x" * 20_000


async def test_trailers_are_dropped(client: NativeClient) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-late\r\n\r\n"
        b"2\r\nok\r\n0\r\nx-late: 1\r\nset-cookie: a=b\r\n\r\n"
    )
    async with ScriptedServer(plays(answer, answer)) as server:
        for _ in range(2):
            response = await fetch(client, template(server))
            assert await response.read(10) == b"ok"
            assert "x-late" not in response.headers
            assert "set-cookie" not in response.headers
        assert len(server.peers) == 1


async def test_interim_answers_are_skipped(client: NativeClient) -> None:
    answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + OK
    async with ScriptedServer(plays(answer, answer)) as server:
        for _ in range(2):
            response = await fetch(client, template(server))
            assert (response.status, "link" in response.headers) == (200, False)
            assert await response.read(10) == b"ok"
        assert len(server.peers) == 1


@pytest.mark.parametrize("cut", [1, 2, 7, 20])
async def test_an_answer_cut_anywhere_is_the_same(client: NativeClient, cut: int) -> None:
    answer = (
        b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nX-Long-Name:  some value \t\r\ntransfer-encoding: chunked\r\n\r\n"
        b"5;e=1\r\nhello\r\n6\r\n world\r\n0\r\nt: 1\r\n\r\n"
    )

    async def script(peer: Peer) -> None:
        await peer.request()
        for start in range(0, len(answer), cut):
            peer.write(answer[start : start + cut])
            await peer.drain()
            await asyncio.sleep(0)
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(client, template(server))
        assert response.headers.find(b"x-long-name") == b"some value"
        assert await response.read(100) == b"hello world"


@pytest.mark.parametrize(
    "excess",
    [
        pytest.param(b"x", id="a byte"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\npoisoned", id="another answer"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="an interim answer"),
    ],
)
async def test_bytes_after_an_answer_never_reach_the_next_request(client: NativeClient, excess: bytes) -> None:
    async with ScriptedServer(plays(OK + excess, OK)) as server:
        assert await get(client, server) == b"ok"
        assert await get(client, server) == b"ok"
        assert len(server.peers) == 2


async def test_what_a_server_sends_unasked_closes_the_connection(client: NativeClient) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.write(OK)
        if peer.number == 0:
            await peer.server.until(lambda: done)
            peer.write(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
        await peer.until_left()

    done: list[bytes] = []
    async with ScriptedServer(script) as server:
        done.append(await get(client, server))
        server._changed.set()
        await server.until(lambda: server.open_connections == 0)
        assert await get(client, server) == b"ok"
        assert len(server.peers) == 2


async def test_an_answer_to_head_has_no_body_whatever_it_says(client: NativeClient) -> None:
    async with ScriptedServer(plays(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n")) as server:
        response = await fetch(client, template(server, "HEAD"))
        assert response.headers["content-length"] == "500"
        assert await response.read(1000) == b""


# The life of connections


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", id="close"),
        pytest.param(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", id="HTTP/1.0"),
    ],
)
async def test_a_connection_the_server_will_close_is_not_used_again(client: NativeClient, answer: bytes) -> None:
    async with ScriptedServer(plays(answer)) as server:
        assert await get(client, server) == b"ok"
        assert await get(client, server) == b"ok"
        assert len(server.peers) == 2


async def test_a_kept_connection_that_was_closed_is_replaced(client: NativeClient) -> None:
    async with ScriptedServer(plays(OK, stay=False)) as server:
        for _ in range(3):
            assert await get(client, server, "POST") == b"ok"
            await server.until(lambda: server.open_connections == 0)
            await asyncio.sleep(0.06)  # longer than a connection is trusted unseen, so the system is asked
        assert len(server.peers) == 3


class Trap:
    """A server that takes a second request on a kept connection and closes it without a word."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, peer: Peer) -> None:
        self.seen.append((await peer.request()).method)
        peer.write(OK)
        if peer.number == 0:
            self.seen.append((await peer.request()).method)
        else:
            await peer.until_left()


async def test_a_get_on_a_kept_connection_that_goes_is_asked_again_once(client: NativeClient) -> None:
    async with ScriptedServer(Trap()) as server:
        assert await get(client, server) == b"ok"
        assert await get(client, server) == b"ok"
        assert len(server.peers) == 2


async def test_a_post_on_a_kept_connection_that_goes_is_never_sent_again(client: NativeClient) -> None:
    trap = Trap()
    async with ScriptedServer(trap) as server:
        assert await get(client, server, "POST") == b"ok"
        with pytest.raises(ConnectionError, match="lost before its answer"):
            await get(client, server, "POST")
        assert trap.seen == ["POST", "POST"]


async def test_an_answer_that_comes_before_the_request_is_out_ends_the_connection(client: NativeClient) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await peer.until_left()

    async with ScriptedServer(script) as server:
        response = await fetch(client, template(server), bytes(32 << 20))
        assert response.status == 413
        assert await response.read(10) == b"no"


async def test_quiet_connections_are_closed_after_a_while(
    client: NativeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_client, "IDLE_S", 0.1)
    monkeypatch.setattr(native_client, "SWEEP_S", 0.1)
    async with ScriptedServer(plays(OK)) as server:
        await get(client, server)
        assert server.open_connections == 1
        await server.until(lambda: server.open_connections == 0)


async def test_the_server_may_say_how_long_it_keeps_a_quiet_connection(
    client: NativeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_client, "IDLE_S", 0.0)
    monkeypatch.setattr(native_client, "SWEEP_S", 0.05)
    answer = b"HTTP/1.1 200 OK\r\nkeep-alive: max=100, Timeout=60\r\ncontent-length: 2\r\n\r\nok"
    async with ScriptedServer(plays(answer, answer)) as server:
        await get(client, server)
        await asyncio.sleep(0.2)  # several sweeps
        await get(client, server)
        assert len(server.peers) == 1


async def test_connections_are_bounded_and_urgent_requests_are_not_held_up(anyio_backend: Any) -> None:
    go_on = asyncio.Event()
    most = 0

    async def script(peer: Peer) -> None:
        nonlocal most
        while True:
            received = await peer.request()
            most = max(most, peer.server.open_connections)
            if received.body == b"wait":
                await go_on.wait()
            peer.write(OK)

    client = NativeClient(max_connections=4)
    async with ScriptedServer(script) as server:
        waiting = [asyncio.ensure_future(fetch(client, template(server), b"wait")) for _ in range(20)]
        await server.until(lambda: len(server.requests) == 4)
        urgent = await fetch(client, template(server), b"now", urgent=True)
        assert await urgent.read(10) == b"ok"
        more = [asyncio.ensure_future(fetch(client, template(server), b"wait", urgent=True)) for _ in range(20)]
        await server.until(lambda: server.open_connections == 8)
        waiting[10].cancel()
        more[10].cancel()
        go_on.set()
        del more[10]
        for task in more:
            assert await (await task).read(10) == b"ok"
        for number, task in enumerate(waiting):
            if number != 10:
                assert await (await task).read(10) == b"ok"
        assert most == 8
        assert len(server.requests) == 20 + 19
        await client.aclose()


async def test_a_request_that_waited_for_a_connection_gets_one_when_another_breaks(anyio_backend: Any) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number:
            peer.write(OK)
            await peer.until_left()

    client = NativeClient(max_connections=1)
    async with ScriptedServer(script) as server:
        first = asyncio.ensure_future(fetch(client, template(server)))
        second = asyncio.ensure_future(fetch(client, template(server)))
        with pytest.raises(ConnectionError):
            await first
        assert await (await second).read(10) == b"ok"
        await client.aclose()


async def test_cancelling_while_connecting_leaves_nothing(client: NativeClient) -> None:
    async with ScriptedServer(plays(OK)) as server:
        for turns in range(12):
            task = asyncio.ensure_future(get(client, server))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
        await client.aclose()
        await server.until(lambda: server.open_connections == 0)
    assert [task for task in asyncio.all_tasks() if "_connect" in repr(task)] == []


async def test_cost_of_giving_up_requests_that_wait_is_linear() -> None:
    """Four times as many may take ten times as long; they were searched for from the front, which took sixteen."""
    client = NativeClient(max_connections=1)
    least = {2_000: float("inf"), 8_000: float("inf")}
    async with ScriptedServer(plays()) as server:
        for number in range(30):
            for count in least:
                waiting = [client.start(template(server), lambda _response, _error: None) for _ in range(count)]
                start = process_time()
                for exchange in reversed(waiting):
                    exchange.cancel()
                least[count] = min(least[count], process_time() - start)
                await asyncio.sleep(0)
            if number >= 2 and least[8_000] < 10 * least[2_000]:
                break
        await client.aclose()
    assert least[8_000] < 10 * least[2_000]


async def test_connecting_has_its_own_time_limit(client: NativeClient) -> None:
    async def script(peer: Peer) -> None:
        await peer.until_left()  # never shakes hands

    async with ScriptedServer(script) as server:
        silent = RequestTemplate("GET", URL(f"https://127.0.0.1:{server.port}/"))
        with pytest.raises(RequestTimeout, match=r"connecting to 127\.0\.0\.1:\d+ took longer than 0\.2 s") as caught:
            await fetch(client, silent, connect_timeout=0.2)
        assert caught.value.seconds == 0.2
        await server.until(lambda: server.open_connections == 0)


async def test_a_dead_peer_is_watched_for(client: NativeClient) -> None:
    async with ScriptedServer(plays(OK)) as server:
        await get(client, server)
        (pool,) = client._pools.values()
        sock = pool._idle[0].transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


async def test_a_request_is_one_write(client: NativeClient) -> None:
    """Head and body in one piece: two would cost a packet, and with Nagle's rule a delay."""
    reads: list[bytes] = []

    async def script(peer: Peer) -> None:
        reads.append(await peer.reader.read(65536))
        peer.write(OK)
        await peer.until_left()

    async with ScriptedServer(script) as server:
        await (await fetch(client, template(server), b"body")).read(10)
    assert reads[0].endswith(b"content-length: 4\r\n\r\nbody")


# Where to connect


async def test_an_ipv6_address_works(client: NativeClient) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    heads: list[bytes] = []
    try:
        server = await asyncio.start_server(serve, "::1", 0)
    except OSError:
        pytest.skip("no IPv6 here")
    port = server.sockets[0].getsockname()[1]
    response = await fetch(client, RequestTemplate("GET", URL(f"http://[::1]:{port}/x")))
    assert await response.read(10) == b"ok"
    assert f"host: [::1]:{port}\r\n".encode() in heads[0]
    server.close()


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets here")
async def test_a_unix_socket_works(anyio_backend: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    heads: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        server = await asyncio.start_unix_server(serve, path)
        client = NativeClient(uds=path)
        response = await fetch(client, RequestTemplate("GET", URL("http://some.host/x")))
        assert await response.read(10) == b"ok"
        assert b"host: some.host\r\n" in heads[0]
        with pytest.raises(ConnectionError, match=r"some\.host"):
            await fetch(NativeClient(uds=path + "-not"), RequestTemplate("GET", URL("http://some.host/x")))
        await client.aclose()
        server.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and self-signed certificate for 127.0.0.1."""
    path = tmp_path_factory.mktemp("tls") / "pair.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    try:
        subprocess.run([*command, *names, "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl cannot make a certificate here")
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


async def test_tls_trusts_what_the_context_trusts_and_nothing_else(
    client: NativeClient, certificate: Path, anyio_backend: Any
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    asked = RequestTemplate("GET", URL(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"))
    with pytest.raises(ConnectionError, match="certificate"):
        await fetch(client, asked)
    trusting = NativeClient(ssl_context=ssl.create_default_context(cafile=f"{certificate}.crt"))
    for _ in range(2):
        assert await (await fetch(trusting, asked)).read(10) == b"ok"
    await trusting.aclose()
    server.close()
    await asyncio.sleep(0.05)  # TLS says goodbye


async def test_a_response_says_little_about_itself(client: NativeClient) -> None:
    async with ScriptedServer(plays(OK)) as server:
        response: ClientResponse = await fetch(client, template(server))
        assert repr(response) == "<ClientResponse 200>"
        await response.read(10)
