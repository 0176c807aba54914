"""The end-to-end benchmarks run, and do not let a wrong answer pass. No timing decides here."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import subprocess
import sys
from collections.abc import Callable

import pytest

pytest.importorskip("resource", reason="not on Windows")
pytest.importorskip("uvloop")

from benchmarks.e2e.accounting import Process
from benchmarks.e2e.load import HTTPSSESession, closed_loop, open_sessions, quantile
from benchmarks.e2e.scenarios import SCENARIOS, Report, Scale
from benchmarks.e2e.section import run
from benchmarks.e2e.servers import BARE, start
from benchmarks.e2e.wire import Exchanges, LoadError, Target
from benchmarks.targets import of_section

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="CPU time and memory of another process are read as Linux gives them"
)

SMALL = Scale(
    rounds=2,
    turn_s=0.05,
    warm_s=0.01,
    connections=(2,),
    streams=(3,),
    peer_streams=3,
    idle=(5,),
    sessions=(10, 14),
    opens=2,
    keepalive_s=0.25,
)

needs_peers = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("mcp", "uvicorn")),
    reason="the extra interop is not installed (the SDK needs Python 3.11)",
)


@functools.cache
def small(name: str) -> Report:
    return run(name, SMALL)


@needs_peers
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_scenario_completes_with_right_answers(name: str) -> None:
    report = small(name)
    assert report.rows
    assert all(len(row) == len(report.columns) for row in report.rows)
    assert report.markdown().count("\n|") >= len(report.rows) + 1
    # A handful of streams may fit into memory the server has already: then its growth is 0, or less.
    assert all(found.ratio.value > 0 or found.row == "idle memory" for found in report.measured)


@needs_peers
def test_each_row_with_a_target_is_measured_by_a_scenario() -> None:
    rows = {found.row for name in SCENARIOS for found in small(name).measured}
    assert {target.row for target in of_section("e2e")} <= rows


def test_load_counts_every_call_once() -> None:
    async def calls() -> tuple[int, int]:
        async with start((BARE,)) as (server,), open_sessions(server.target, 2) as sessions:
            result = await closed_loop(sessions, calls=21)
            return result.calls, len(result.latencies_s)

    assert asyncio.run(calls()) == (21, 21)


def test_sessions_that_share_post_connections_each_get_their_stream() -> None:
    async def commented() -> list[int]:
        async with start((BARE,)) as (server,), open_sessions(server.target, 7, shared=2) as sessions:
            await server.command("tick")
            while not all(session.events.comments for session in sessions):  # noqa: ASYNC110 -- counters, no event
                await asyncio.sleep(0.001)
            return [session.events.comments for session in sessions]

    assert asyncio.run(asyncio.wait_for(commented(), 30)) == [1] * 7


# What the generator does with a server that errs, on protocols without sockets.


class Wire:
    """A transport that swallows what is written."""

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass


async def answered(feed: Callable[[HTTPSSESession, Exchanges], None]) -> int:
    """Start one call, feed what a server sends, and return how many calls were answered."""
    session, posts = HTTPSSESession(), Exchanges()
    posts.transport = session.events.transport = Wire()
    session.use(Target(80), "/sse?sessionid=1", posts)
    loop = asyncio.ensure_future(closed_loop([session], calls=1, text_size=3))
    await asyncio.sleep(0)
    session.events.data_received(_STREAM)
    feed(session, posts)
    return (await asyncio.wait_for(loop, 5)).calls


_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"


def event(message: bytes) -> bytes:
    data = b"event: message\ndata: " + message + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


RIGHT = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"1-x"}]}}'


@pytest.mark.parametrize("order", ["accepted first", "answer first"])
def test_a_call_is_over_when_it_is_accepted_and_answered(order: str) -> None:
    def feed(session: HTTPSSESession, posts: Exchanges) -> None:
        steps = [lambda: posts.data_received(_ACCEPTED), lambda: session.events.data_received(event(RIGHT))]
        for step in steps if order == "accepted first" else reversed(steps):
            step()

    assert asyncio.run(answered(feed)) == 1


@pytest.mark.parametrize(
    "message",
    [
        RIGHT.replace(b"1-x", b"2-x"),
        RIGHT.replace(b'"id":1', b'"id":2'),
        RIGHT.replace(b"result", b"error"),
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}',
    ],
    ids=["another text", "another id", "no result", "an error"],
)
def test_a_wrong_answer_ends_the_run(message: bytes) -> None:
    def feed(session: HTTPSSESession, posts: Exchanges) -> None:
        posts.data_received(_ACCEPTED)
        session.events.data_received(event(message))

    with pytest.raises(LoadError, match="answered wrongly"):
        asyncio.run(answered(feed))


@pytest.mark.parametrize(
    ("feed", "told"),
    [
        (lambda session, posts: posts.data_received(_ACCEPTED.replace(b"202", b"503")), "status 503"),
        (lambda session, posts: posts.connection_lost(None), "closed a connection"),
        (lambda session, posts: session.events.connection_lost(None), "closed a connection"),
        (lambda session, posts: session.events.data_received(b"0\r\n\r\n"), "ended an event stream"),
        (lambda session, posts: posts.data_received(b"nonsense"), "not HTTP"),
    ],
    ids=["refused", "connection lost", "stream lost", "stream ended", "not HTTP"],
)
def test_a_lost_or_refused_call_ends_the_run(feed: Callable[[HTTPSSESession, Exchanges], None], told: str) -> None:
    with pytest.raises(LoadError, match=told):
        asyncio.run(answered(feed))


def test_a_connection_that_is_closed_while_idle_is_missed_by_the_next_call_only() -> None:
    async def call() -> None:
        session, posts = HTTPSSESession(), Exchanges()
        posts.transport = session.events.transport = Wire()
        session.use(Target(80), "/sse?sessionid=1", posts)
        posts.connection_lost(None)
        await closed_loop([session], calls=1)

    with pytest.raises(LoadError, match="closed the connection that the next call needs"):
        asyncio.run(call())


# The books.


def test_cpu_time_and_memory_of_a_process_and_its_children_are_read_from_outside() -> None:
    program = (
        "import os, sys, time\n"
        "os.fork()\n"
        "while time.process_time() < 0.2: pass\n"
        "print('burnt', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = (sys.executable, "-c", program)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["burnt\n", "burnt\n"]
        found = Process(process.pid)
        assert found.cpu_s() >= 0.4
        memory = found.memory()
        assert memory.rss >= memory.pss > 1 << 20
        process.stdin.close()


def test_quantiles_are_those_of_the_nearest_rank() -> None:
    ordered = [float(number) for number in range(100)]
    assert quantile(ordered, 0.99) == 99
    assert quantile(ordered, 0.5) == 50
    assert quantile([7.0], 0.99) == 7
