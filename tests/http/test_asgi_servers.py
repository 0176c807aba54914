"""The ASGI shell under real servers, each as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.raw_http import RawClient, Truncated
from tests.support.waiting import WAIT_S

# Our side of these tests is a client; one loop is enough for it.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

ROOT = Path(__file__).parents[2]
START_S = 30.0

SERVERS = {
    "uvicorn-httptools-uvloop": ["uvicorn", "--http", "httptools", "--loop", "uvloop"],
    "uvicorn-h11-asyncio": ["uvicorn", "--http", "h11", "--loop", "asyncio"],
    "hypercorn": ["hypercorn"],
    "granian": ["granian"],
}


def command(name: str, port: int) -> list[str]:
    module, *options = SERVERS[name]
    app = "tests.support.asgi_app:app"
    if module == "uvicorn":
        options += ["--port", str(port), "--timeout-graceful-shutdown", "1", "--log-level", "warning"]
    elif module == "hypercorn":
        options += ["--bind", f"127.0.0.1:{port}", "--graceful-timeout", "1"]
    else:
        options += ["--interface", "asgi", "--port", str(port), "--workers-kill-timeout", "2"]
    return [sys.executable, "-m", module, *options, app]


class Process:
    def __init__(self, name: str, port: int, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.port = port
        self.process = process

    async def client(self) -> RawClient:
        return await RawClient.connect(self.port)

    async def told(self) -> bytes:
        async with await self.client() as client:
            return (await client.fetch("GET", "/told")).body

    async def until_told(self, count: int) -> None:
        end = asyncio.get_running_loop().time() + WAIT_S
        while await self.told() != b"%d" % count:
            assert asyncio.get_running_loop().time() < end, "the handler was not told"
            await asyncio.sleep(0.02)


@pytest.fixture(params=SERVERS)
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Process]:
    module = SERVERS[request.param][0]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *command(request.param, port),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # some serve from processes of their own, which must not survive
    )
    try:
        end = asyncio.get_running_loop().time() + START_S
        while True:
            try:
                async with await RawClient.connect(port):
                    break
            except ConnectionError:
                assert process.returncode is None, (await process.communicate())[0].decode()
                assert asyncio.get_running_loop().time() < end
                await asyncio.sleep(0.05)
        yield Process(request.param, port, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait_for(process.communicate(), WAIT_S)


async def test_everything_once(served: Process) -> None:
    """One process, all that a client can do: starting a server costs more than the rest."""
    async with await served.client() as client:
        response = await client.fetch("GET", "/state")
        assert (response.status, response.body) == (200, b"from the lifespan")
        assert response.get(b"x-path") == b"/state"
        assert (await client.fetch("POST", "/echo", body=b"small")).body == b"small"
        large = bytes(range(256)) * 4000
        assert (await client.fetch("POST", "/echo", body=large)).body == large
        assert (await client.fetch("HEAD", "/state")).status == 200
        assert (await client.fetch("GET", "/nowhere")).status == 404

    async with await served.client() as client:
        client.request("POST", "/echo", [("Transfer-Encoding", "chunked")])
        client.send(b"3\r\none\r\n")
        await asyncio.sleep(0.05)
        client.send(b"3\r\ntwo\r\n0\r\n\r\n")
        assert (await client.response()).body == b"onetwo"

    async with await served.client() as client:
        client.request("POST", "/echo", [("Content-Length", str((4 << 20) + 1))])
        assert (await client.response()).status == 413

    # A stream's pieces arrive when they are written, and its client's leaving is seen.
    client = await served.client()
    client.request("GET", "/stream")
    response = await client.head()
    assert response.get(b"content-type") == b"text/event-stream"
    assert await client.chunk() == b"data: 1\n\n"
    assert await client.chunk() == b"data: 2\n\n"
    await client.close()
    await served.until_told(1)

    # The same for a call that takes its time.
    client = await served.client()
    client.request("POST", "/work", body=b"{}")
    await asyncio.sleep(0.3)
    await client.close()
    await served.until_told(2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_server_with_open_streams_stops_within_its_grace(served: Process, number: int) -> None:
    """C074: nothing but the stream's clients keep it, and the grace was set to 1 s."""
    if number == signal.SIGINT and served.name != "uvicorn-httptools-uvloop":
        pytest.skip("one server for the second signal will do")
    async with await served.client() as stream, await served.client() as call:
        stream.request("GET", "/stream")
        await stream.head()
        assert await stream.chunk() == b"data: 1\n\n"
        call.request("POST", "/work", body=b"{}")
        await asyncio.sleep(0.2)
        served.process.send_signal(number)
        output, _ = await asyncio.wait_for(served.process.communicate(), 40)
        if served.name.startswith("uvicorn"):
            assert await stream.chunk() == b"data: 2\n\n"
            assert await stream.chunk() == b""  # a clean end
            assert (await call.response()).status == 503
            assert served.process.returncode in (0, -number, 128 + number)
            assert b"Traceback" not in output, output.decode()
            assert b"returned without" not in output, output.decode()
        else:
            # What these do with the connections of cancelled applications is theirs.
            try:
                await stream.rest()
            except (Truncated, ConnectionError):
                pass
