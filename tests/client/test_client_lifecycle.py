"""Every way a client can end leaves nothing behind (C075)."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from typing import Any

import pytest

from mcpfast import connect
from mcpfast.client import SSEClientTransport
from mcpfast.errors import TransportClosed
from tests.support.scripted_server import Peer, Received, ScriptedServer
from tests.support.scripted_sse import SSEScript

pytestmark = pytest.mark.anyio


def open_files() -> int:
    """How many descriptors this process has; 0 where that cannot be told."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def cm_of(kind: str, server: ScriptedServer) -> Any:
    return connect(server.url, "sse") if kind == "client" else SSEClientTransport(server.url)


@pytest.mark.parametrize("kind", ["client", "transport"])
async def test_it_may_be_closed_by_another_task(anyio_backend: Any, kind: str) -> None:
    tasks = asyncio.all_tasks()
    async with ScriptedServer(SSEScript()) as server:
        cm = cm_of(kind, server)
        await asyncio.create_task(cm.__aenter__())
        await asyncio.create_task(cm.__aexit__(None, None, None))
        await server.until(lambda: server.open_connections == 0)
    assert asyncio.all_tasks() == tasks


@pytest.mark.parametrize("kind", ["client", "transport"])
async def test_closing_may_be_repeated_and_raced(anyio_backend: Any, kind: str) -> None:
    async with ScriptedServer(SSEScript()) as server, cm_of(kind, server) as it:
        await asyncio.gather(*[it.close() for _ in range(5)])
        await it.close()
        await server.until(lambda: server.open_connections == 0)


@pytest.mark.parametrize("turns", range(4))
async def test_a_close_that_is_cancelled_still_closes(anyio_backend: Any, turns: int) -> None:
    tasks = asyncio.all_tasks()
    async with ScriptedServer(SSEScript()) as server:
        client = await connect(server.url, "sse").__aenter__()
        closing = asyncio.ensure_future(client.close())
        for _ in range(turns + 1):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        with pytest.raises(TransportClosed):
            await client.request("x")
        await server.until(lambda: server.open_connections == 0)
    assert asyncio.all_tasks() == tasks


@pytest.mark.parametrize("kind", ["client", "transport"])
@pytest.mark.parametrize("server_ends_first", [False, True])
async def test_dropping_the_last_reference_closes_it_quietly(
    anyio_backend: Any, kind: str, server_ends_first: bool
) -> None:
    """Warnings are errors here, so a ResourceWarning would fail the test."""
    tasks = asyncio.all_tasks()
    script = SSEScript()
    async with ScriptedServer(script) as server:
        cm = cm_of(kind, server)
        it = await cm.__aenter__()
        if kind == "client":
            await it.request("x")
        if server_ends_first:
            script.streams[0].end_stream()
            await server.until(lambda: server.open_connections == 0)
        del it, cm
        gc.collect()
        await server.until(lambda: server.open_connections == 0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks


async def test_a_client_in_use_by_a_call_is_not_dropped(anyio_backend: Any) -> None:
    script = SSEScript(answers=True)
    async with ScriptedServer(script) as server:
        client = await connect(server.url, "sse").__aenter__()
        asking = asyncio.ensure_future(client.request("x"))
        del client
        gc.collect()
        assert await asking == {"method": "x", "params": None}


async def test_nothing_grows_with_connections_made_and_closed(anyio_backend: Any) -> None:
    async with ScriptedServer(SSEScript()) as server:
        for _ in range(3):
            async with connect(server.url, "sse") as client:
                await client.request("x")
        fds = open_files()
        gc.collect()
        objects = len(gc.get_objects())
        for _ in range(30):
            async with connect(server.url, "sse") as client:
                await client.request("x")
        await server.until(lambda: server.open_connections == 0)
        server.peers.clear()
        server.requests.clear()
        server.script.streams.clear()  # type: ignore[attr-defined]
        server.script.posts.clear()  # type: ignore[attr-defined]
        gc.collect()
        assert len(gc.get_objects()) - objects < 30 * 5
        assert open_files() <= fds + 2


ENDS_OPEN = """
import asyncio, gc, sys
from mcpfast import connect
from mcpfast.client import SSEClientTransport

url, how, loop = sys.argv[1:]
kept = []

async def main():
    client = await connect(url, "sse").__aenter__()
    await client.request("x")
    connection = await SSEClientTransport(url).connect()
    if how == "waiting":
        kept.append(asyncio.ensure_future(client.request("never", timeout=None)))
        kept.append(asyncio.ensure_future(connection.recv()))
        await asyncio.sleep(0.05)
    if how != "dropped":
        kept.extend([client, connection])

if loop == "uvloop":
    import uvloop
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
else:
    asyncio.run(main())
kept.clear()
gc.collect()
print("done")
"""


@pytest.mark.parametrize("how", ["kept", "dropped", "waiting"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["here"])
async def test_the_loop_may_end_with_a_client_open(anyio_backend: Any, how: str, loop: str) -> None:
    if loop == "uvloop" and (sys.version_info < (3, 11) or sys.platform == "win32"):
        pytest.skip("asyncio.Runner is of Python 3.11, uvloop not for Windows")
    if loop == "uvloop":
        pytest.importorskip("uvloop")

    async def on_post(peer: Peer, message: Any, received: Received) -> bool:
        if message.get("method") == "never":
            peer.respond(202)
            return True
        return False

    async with ScriptedServer(SSEScript(on_post=on_post)) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "default", "-c", ENDS_OPEN, server.url, how, loop),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, noise = await asyncio.wait_for(process.communicate(), 30)
        assert (out, noise) == (b"done\n", b"")
        await server.until(lambda: server.open_connections == 0)
