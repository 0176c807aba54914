"""The contenders: each a process of its own on a free port of loopback, stopped by its own handle."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.e2e.accounting import Process, part_cpus
from benchmarks.e2e.load import HTTPSSESession, JSONSession, Session
from benchmarks.e2e.wire import LoadError, Target

__all__ = [
    "BARE",
    "BARE_ASGI",
    "BARE_JSON",
    "OURS",
    "OURS_ASGI",
    "SDK",
    "SDK_MCPSERVER",
    "Contender",
    "Server",
    "start",
]

_START_TIMEOUT_S = 60
_COMMAND_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 15


@dataclass(frozen=True)
class Contender:
    """A way to serve the echo tool.

    Attributes:
        name: as the tables print it.
        peer: its program in `benchmarks.e2e.peers`, and that program's arguments.
        session: how it is called.
    """

    name: str
    peer: tuple[str, ...]
    session: type[Session] = HTTPSSESession


OURS = Contender("mcpfast", ("ours", "native"))
OURS_ASGI = Contender("mcpfast, ASGI on uvicorn", ("ours", "asgi"))
SDK = Contender("SDK lowlevel", ("sdk", "lowlevel"))
SDK_MCPSERVER = Contender("SDK MCPServer", ("sdk", "mcpserver"))
BARE = Contender("bare", ("bare", "sse"))
BARE_JSON = Contender("bare, one POST", ("bare", "json"), JSONSession)
BARE_ASGI = Contender("bare ASGI on uvicorn", ("bare_asgi",))


@dataclass(frozen=True)
class Done:
    """How a command of a peer ended.

    Attributes:
        result: what it returned.
        wall_s: seconds it took on the peer's clock.
        cpu_s: CPU seconds of the peer meanwhile.
    """

    result: Any
    wall_s: float
    cpu_s: float


class Server:
    """A contender that runs."""

    def __init__(self, contender: Contender, child: asyncio.subprocess.Process, port: int) -> None:
        self.name = contender.name
        self.session = contender.session
        self.target = Target(port)
        self.process = Process(child.pid)
        self._child = child

    def send_command(self, *words: str) -> None:
        """Give the peer a command without waiting for its end; `finish_command` must follow."""
        assert self._child.stdin is not None
        self._child.stdin.write(" ".join(words).encode() + b"\n")

    async def finish_command(self) -> Done:
        """Wait for the end of the command that was sent."""
        return Done(**await _line(self._child, self.name, _COMMAND_TIMEOUT_S))

    async def command(self, *words: str) -> Done:
        """Have the peer do something: `benchmarks.e2e.peers` says what each can do."""
        self.send_command(*words)
        return await self.finish_command()


@asynccontextmanager
async def start(contenders: Sequence[Contender], *options: str) -> AsyncIterator[list[Server]]:
    """Start the contenders, one after the other, and stop them at the end.

    They and this process, the generator, run on different CPUs meanwhile.

    Args:
        options: more arguments for each of their programs.
    """
    before, parts = os.sched_getaffinity(0), part_cpus()
    async with AsyncExitStack() as stack:
        if parts is not None:
            os.sched_setaffinity(0, parts[1])
            stack.callback(os.sched_setaffinity, 0, before)
        servers = []
        for contender in contenders:
            server = await stack.enter_async_context(_running(contender, options, parts[0] if parts else before))
            servers.append(server)
        yield servers


@asynccontextmanager
async def _running(contender: Contender, options: Sequence[str], cpus: set[int]) -> AsyncIterator[Server]:
    module, *arguments = contender.peer
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"benchmarks.e2e.peers.{module}",
        *arguments,
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        os.sched_setaffinity(child.pid, cpus)  # early: threads take it from the thread that starts them
        announced = await _line(child, contender.name, _START_TIMEOUT_S)
        yield Server(contender, child, announced["port"])
    finally:
        assert child.stdin is not None
        child.stdin.close()  # a peer ends with its stdin
        try:
            await asyncio.wait_for(child.wait(), _STOP_TIMEOUT_S)
        except asyncio.TimeoutError:
            child.kill()
            await child.wait()


async def _line(child: asyncio.subprocess.Process, name: str, timeout_s: float) -> dict[str, Any]:
    assert child.stdout is not None
    line = await asyncio.wait_for(child.stdout.readline(), timeout_s)
    if not line:
        raise LoadError(f"{name} ended by itself; its stderr says why")
    message: dict[str, Any] = json.loads(line)
    return message
