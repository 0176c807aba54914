"""Lifespans: entered once, in a task of their own, whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcpfast.server import Server
from mcpfast.server.hosting import Hosting

pytestmark = pytest.mark.anyio


def make() -> Hosting:
    return Hosting(max_backlog_messages=100, max_backlog_bytes=1000)


async def test_those_who_ask_at_once_share_one_lifespan() -> None:
    entered = 0
    gate = asyncio.Event()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[int]:
        nonlocal entered
        entered += 1
        await gate.wait()
        yield entered

    server = Server("x", "1", lifespan=lifespan)
    hosting = make()
    assert hosting.get(server) is None
    asking = [asyncio.ensure_future(hosting.enter(server)) for _ in range(3)]
    await asyncio.sleep(0)
    asking[0].cancel()  # the first to ask leaves: the others must not notice
    await asyncio.sleep(0)
    gate.set()
    hosted = await asyncio.gather(*asking[1:])
    assert [one.state for one in hosted] == [1, 1]
    assert hosted[0] is hosted[1] is hosting.get(server)
    await hosting.aclose()


async def test_a_lifespan_is_left_by_the_task_that_entered_it() -> None:
    tasks: list[asyncio.Task[None] | None] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        try:
            yield
        finally:
            tasks.append(asyncio.current_task())

    hosting = make()
    server = Server("x", "1", lifespan=lifespan)
    await asyncio.ensure_future(hosting.enter(server))
    await asyncio.ensure_future(hosting.aclose())
    assert tasks[0] is tasks[1]
    assert tasks[0] is not asyncio.current_task()


async def test_after_a_failure_the_next_one_tries_again() -> None:
    tries = 0

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[int]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RuntimeError("not yet")
        yield tries

    hosting = make()
    server = Server("x", "1", lifespan=lifespan)
    with pytest.raises(RuntimeError, match="not yet"):
        await hosting.enter(server)
    assert (await hosting.enter(server)).state == 2
    await hosting.aclose()


async def test_every_lifespan_is_left_and_the_first_error_raised() -> None:
    left: list[str] = []

    def failing(name: str, error: bool) -> Server:
        @asynccontextmanager
        async def lifespan() -> AsyncIterator[None]:
            yield
            left.append(name)
            if error:
                raise RuntimeError(f"{name} failed")

        return Server(name, "1", lifespan=lifespan)

    hosting = make()
    for server in (failing("a", True), failing("b", False)):
        await hosting.enter(server)
    with pytest.raises(RuntimeError, match="a failed"):
        await hosting.aclose()
    assert sorted(left) == ["a", "b"]


async def test_closing_while_a_lifespan_is_being_entered_stops_it() -> None:
    stopped = asyncio.Event()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        yield

    hosting = make()
    asking = asyncio.ensure_future(hosting.enter(Server("x", "1", lifespan=lifespan)))
    await asyncio.sleep(0)
    await asyncio.wait_for(hosting.aclose(), 5)
    assert stopped.is_set()
    with pytest.raises(asyncio.CancelledError):
        await asking
