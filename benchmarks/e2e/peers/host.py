"""What every peer needs: to say where it listens, to obey its parent, to run an application under uvicorn."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import uvloop

from benchmarks.e2e.accounting import raise_file_limit

__all__ = ["Command", "host", "longest_turn", "main", "serve_asgi"]

Command = Callable[..., Any]
"""Takes the words that follow the command's name; may be a coroutine function. The result must be JSON-ready."""

_KEEP_ALIVE_S = 600
"""uvicorn drops a connection idle for 5 s by default; between two turns of one peer the others run."""


def main(program: Coroutine[Any, Any, None]) -> None:
    """Run a peer on uvloop, with as many files as allowed and only warnings logged."""
    raise_file_limit()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, force=True)
    uvloop.run(program)


async def host(port: int, commands: Mapping[str, Command]) -> None:
    """Announce ``port``, then answer commands until stdin closes: a peer never outlives its parent.

    Each answer is a line of JSON: the command's ``result``, and the seconds it took on the clock and the CPU.
    """
    lines = await _stdin()
    _say({"port": port})
    while line := await lines.readline():
        name, *words = line.decode().split()
        wall, cpu = time.perf_counter(), time.process_time()
        result = commands[name](*words)
        if inspect.isawaitable(result):
            result = await result
        _say({"result": result, "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu})


async def serve_asgi(app: Any, commands: Mapping[str, Command]) -> None:
    """Serve an ASGI application as a careful user would: uvicorn, uvloop, httptools, no access log."""
    import uvicorn

    with socket.create_server(("127.0.0.1", 0), backlog=2048) as sock:
        config = uvicorn.Config(
            app,
            loop="none",
            http="httptools",
            ws="none",
            access_log=False,
            log_level="warning",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[sock]))
        while not server.started:
            if serving.done():
                await serving
            await asyncio.sleep(0.01)
        await host(sock.getsockname()[1], commands)
        server.should_exit = True
        await serving


async def longest_turn(seconds: str) -> dict[str, float]:
    """Watch the loop for ``seconds`` and return its longest turn, on the clock and in CPU time.

    A callback that calls itself each turn keeps the loop spinning meanwhile, so that the distance between
    two of its calls is one turn. On a busy machine the clock also counts what others ran; CPU time does not.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    longest_wall = longest_cpu = 0.0
    last_wall, last_cpu = time.perf_counter(), time.thread_time()
    end = last_wall + float(seconds)

    def turn() -> None:
        nonlocal longest_wall, longest_cpu, last_wall, last_cpu
        wall, cpu = time.perf_counter(), time.thread_time()
        longest_wall = max(longest_wall, wall - last_wall)
        longest_cpu = max(longest_cpu, cpu - last_cpu)
        last_wall, last_cpu = wall, cpu
        if wall < end:
            loop.call_soon(turn)
        else:
            done.set_result(None)

    loop.call_soon(turn)
    await done
    return {"wall_s": longest_wall, "cpu_s": longest_cpu}


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


async def _stdin() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader
