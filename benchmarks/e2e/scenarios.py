"""What is measured: one function per table. Each returns the table and the ratios that have a target.

Contenders take turns, and the order shifts from round to round, so that a busy moment of the machine
hits them alike. A figure is the median over the rounds; a ratio is that of two medians, its spread the
lowest and highest ratio of one round.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.e2e.load import HTTPSSESession, Session, closed_loop, open_callers, open_sessions, quantile
from benchmarks.e2e.servers import (
    BARE,
    BARE_ASGI,
    BARE_JSON,
    OURS,
    OURS_ASGI,
    SDK,
    SDK_MCPSERVER,
    Contender,
    Server,
    start,
)
from benchmarks.e2e.wire import LoadError
from benchmarks.ratios import Ratio
from benchmarks.targets import Measured

_T = TypeVar("_T")

__all__ = ["FULL", "QUICK", "SCENARIOS", "Report", "Scale"]

_POSTS = 32
"""Connections that carry the POSTs of sessions which are only opened."""
_KIB = 1024
MEMORY_TARGET = 10 * _KIB
TURN_TARGET_S = 0.005


@dataclass(frozen=True)
class Scale:
    """How long to measure.

    Attributes:
        rounds: turns each contender gets.
        turn_s: seconds a turn of calls lasts.
        warm_s: seconds of calls before the first turn.
        connections: sessions that call at once.
        streams: open streams that a notification goes to.
        peer_streams: above so many, only ours and the bare server are measured: the SDK needs minutes to open them.
        idle: idle streams that are weighed, held and kept alive.
        sessions: sessions open while ten of them call.
        opens: streams opened one after the other for the first byte.
        keepalive_s: seconds between two comments on a quiet stream.
    """

    rounds: int
    turn_s: float
    warm_s: float
    connections: tuple[int, ...]
    streams: tuple[int, ...]
    peer_streams: int
    idle: tuple[int, ...]
    sessions: tuple[int, ...]
    opens: int
    keepalive_s: float = 1


FULL = Scale(7, 1.0, 0.5, (1, 16, 64), (1, 100, 10_000), 1000, (1000, 10_000), (10, 100, 1000, 10_000), 200)
QUICK = Scale(3, 0.25, 0.1, (1, 16), (1, 100, 1000), 100, (1000,), (10, 1000), 30)


@dataclass
class Report:
    """One table.

    Attributes:
        title: what it shows.
        columns: heads of its columns.
        rows: its cells, as text.
        notes: what a reader must know to judge them.
        measured: what the table says about targets.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: str = ""
    measured: list[Measured] = field(default_factory=list)

    def markdown(self) -> str:
        lines = [self.columns, ("---", *("--:" for _ in self.columns[1:])), *self.rows]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"### {self.title}\n\n{table}\n" + (f"\n{self.notes}\n" if self.notes else "")


Scenario = Callable[[Scale], Coroutine[None, None, Report]]


# One turn of the closed loop, and what it cost.


@dataclass(frozen=True)
class _Turn:
    per_second: float
    p50_s: float
    p99_s: float
    cpu_s: float  # of the server, per call
    load_cpu_s: float  # of the load generator, per call


async def _turn(server: Server, sessions: Sequence[Session], seconds: float) -> _Turn:
    own, cpu = time.process_time(), server.process.cpu_s()
    result = await closed_loop(sessions, seconds=seconds)
    cpu, own = server.process.cpu_s() - cpu, time.process_time() - own
    return _Turn(result.per_second, result.p50_s, result.p99_s, cpu / result.calls, own / result.calls)


async def _turns(contenders: Sequence[Contender], connections: int, scale: Scale) -> dict[str, list[_Turn]]:
    """Give each contender ``scale.rounds`` turns, all of them running and connected from the start."""
    turns: dict[str, list[_Turn]] = {contender.name: [] for contender in contenders}
    async with start(contenders) as servers, AsyncExitStack() as stack:
        pairs = []
        for server in servers:
            sessions = await stack.enter_async_context(open_callers(server.session, server.target, connections))
            pairs.append((server, sessions))
        for server, sessions in pairs:
            await _turn(server, sessions, scale.warm_s)
        for number in range(scale.rounds):
            for server, sessions in _shifted(pairs, number):
                turns[server.name].append(await _turn(server, sessions, scale.turn_s))
    return turns


_TURN_COLUMNS = ("calls/s", "spread", "p50", "p99", "CPU per call", "generator's CPU per call")


def _turn_cells(turns: Sequence[_Turn]) -> tuple[str, ...]:
    speeds = [turn.per_second for turn in turns]
    return (
        f"{statistics.median(speeds):,.0f}",
        f"{min(speeds):,.0f}-{max(speeds):,.0f}",
        _time(statistics.median(turn.p50_s for turn in turns)),
        _time(statistics.median(turn.p99_s for turn in turns)),
        _time(statistics.median(turn.cpu_s for turn in turns)),
        _time(statistics.median(turn.load_cpu_s for turn in turns)),
    )


def _speeds(turns: Sequence[_Turn]) -> list[float]:
    return [turn.per_second for turn in turns]


def _cpus(turns: Sequence[_Turn]) -> list[float]:
    return [turn.cpu_s for turn in turns]


# The scenarios.


async def echo(scale: Scale) -> Report:
    """Calls per second, latency and CPU per call of HTTP+SSE echo."""
    report = Report("HTTP+SSE `tools/call` echo of 64 characters", ("sessions, server", *_TURN_COLUMNS))
    for connections in scale.connections:
        turns = await _turns((OURS, SDK, SDK_MCPSERVER, BARE, BARE_JSON), connections, scale)
        report.rows += [(f"{connections}, {name}", *_turn_cells(found)) for name, found in turns.items()]
        cell = str(connections)
        ours = turns[OURS.name]
        report.measured += [
            Measured("SSE echo", cell, _ratio(_speeds(ours), _speeds(turns[SDK_MCPSERVER.name])), SDK_MCPSERVER.name),
            Measured("SSE echo", f"{cell}, lowlevel", _ratio(_speeds(ours), _speeds(turns[SDK.name])), SDK.name),
            Measured("SSE echo CPU", cell, _ratio(_cpus(ours), _cpus(turns[BARE.name])), BARE.name),
            Measured(
                "SSE echo CPU", f"{cell}, other wire", _ratio(_cpus(ours), _cpus(turns[BARE_JSON.name])), BARE_JSON.name
            ),
            Measured("SDK's CPU", cell, _ratio(_cpus(turns[SDK_MCPSERVER.name]), _cpus(ours)), OURS.name),
            Measured("SDK's CPU", f"{cell}, lowlevel", _ratio(_cpus(turns[SDK.name]), _cpus(ours)), OURS.name),
        ]
    report.notes = (
        "A session is a GET stream and a connection for its POSTs; a call is over when its POST is accepted and its "
        "answer is read from the stream. CPU is the server's whole process tree, user and system. The generator runs "
        "in one process: calls/s cannot rise above what its own CPU per call allows. The bare server answers over the "
        "same two connections; with one POST it answers that with JSON, which saves it a write."
    )
    return report


async def asgi(scale: Scale) -> Report:
    """Our ASGI application beside a bare one, both under uvicorn."""
    report = Report("The same as ASGI application under uvicorn", ("sessions, server", *_TURN_COLUMNS))
    connections = 16 if 16 in scale.connections else scale.connections[-1]
    turns = await _turns((OURS_ASGI, BARE_ASGI), connections, scale)
    report.rows += [(f"{connections}, {name}", *_turn_cells(found)) for name, found in turns.items()]
    ratio = _ratio(_speeds(turns[OURS_ASGI.name]), _speeds(turns[BARE_ASGI.name]))
    report.measured.append(Measured("ASGI echo", str(connections), ratio, BARE_ASGI.name))
    return report


async def first_byte(scale: Scale) -> Report:
    """How soon a stream begins."""
    report = Report("First byte of a stream, from the GET on a new connection", ("server", "p50", "p99"))
    times: dict[str, list[float]] = {}
    async with start((OURS, SDK, SDK_MCPSERVER, BARE)) as servers:
        for number in range(scale.opens):
            for server in _shifted(servers, number):
                async with open_sessions(server.target, 1) as sessions:
                    times.setdefault(server.name, []).append(sessions[0].first_byte_s)
    for name, found in times.items():
        ordered = sorted(found)
        report.rows.append((name, _time(statistics.median(ordered)), _time(quantile(ordered, 0.99))))
    report.notes = f"{scale.opens} streams of each server, one after the other, each with its handshake."
    return report


async def fan_out(scale: Scale) -> Report:
    """One notification to many open streams."""
    report = Report(
        "One notification to every open stream",
        ("streams, server", "last byte", "spread", "server CPU", "per stream"),
    )
    for count in scale.streams:
        contenders = (OURS, SDK, BARE) if count <= scale.peer_streams else (OURS, BARE)
        for contender in contenders:
            async with start((contender,)) as (server,), _joined(server, count) as sessions:
                rounds = [await _publish(server, sessions) for _ in range(scale.rounds)]
            lasts, cpus = zip(*rounds, strict=True)
            cpu = statistics.median(cpus)
            cells = (_time(statistics.median(lasts)), f"{_time(min(lasts))}-{_time(max(lasts))}", _time(cpu))
            report.rows.append((f"{count:,}, {contender.name}", *cells, _time(cpu / count)))
    report.notes = (
        "Last byte: from the word to publish, which goes to the server through a pipe, until the generator has read "
        "the notification from every stream; reading is its own work and part of the time."
    )
    return report


async def memory(scale: Scale) -> Report:
    """What an idle stream weighs."""
    report = Report("Memory per idle stream, its session included", ("streams, server", "RSS", "PSS"))
    for count in scale.idle:
        contenders = (OURS, SDK, BARE) if count <= scale.peer_streams else (OURS, BARE)
        for contender in contenders:
            async with start((contender,)) as (server,):
                async with open_sessions(server.target, _POSTS) as sessions:
                    await closed_loop(sessions, calls=10 * _POSTS)
                before = server.process.memory()
                async with open_sessions(server.target, count, shared=_POSTS):
                    after = server.process.memory()
            rss, pss = (after.rss - before.rss) / count, (after.pss - before.pss) / count
            report.rows.append((f"{count:,}, {contender.name}", f"{rss / _KIB:.1f} KiB", f"{pss / _KIB:.1f} KiB"))
            if contender is OURS:
                report.measured.append(Measured("idle memory", f"{count:,}", _constant(rss / MEMORY_TARGET), "10 KiB"))
    report.notes = (
        "Growth of the server from before the streams to after, divided by their number, once it has served "
        f"{_POSTS} sessions. Initialized sessions. Socket buffers are the kernel's and not in it."
    )
    return report


async def keep_alive(scale: Scale) -> Report:
    """What it costs to keep quiet streams alive."""
    count = scale.idle[-1]
    report = Report(
        f"Keep-alive over {count:,} quiet streams",
        ("server", "CPU per 10,000 comments", "spread", "longest turn of the loop, CPU", "clock"),
    )
    found: dict[str, list[float]] = {OURS.name: [], BARE.name: []}
    turns: list[dict[str, float]] = []
    passes = 2 if scale.rounds > 3 else 1
    for _ in range(passes):
        async with (
            start((OURS,), "--keepalive-s", str(scale.keepalive_s)) as (server,),
            open_sessions(server.target, count, shared=_POSTS) as sessions,
        ):
            found[OURS.name] += [await _kept_alive(server, sessions) for _ in range(scale.rounds)]
            turns.append((await server.command("turns", str(2 * scale.keepalive_s))).result)
        async with start((BARE,)) as (server,), open_sessions(server.target, count, shared=_POSTS) as sessions:
            found[BARE.name] += [await _ticked(server, sessions) for _ in range(scale.rounds)]
    longest = {clock: max(turn[clock] for turn in turns) for clock in ("cpu_s", "wall_s")}
    for name, costs in found.items():
        each = [10_000 * cost for cost in costs]
        cells = (_time(statistics.median(each)), f"{_time(min(each))}-{_time(max(each))}")
        both = (_time(longest["cpu_s"]), _time(longest["wall_s"])) if name == OURS.name else ("-", "-")
        report.rows.append((name, *cells, *both))
    cell = f"{count:,}"
    turn = _constant(longest["cpu_s"] / TURN_TARGET_S)
    report.measured += [
        Measured("keep-alive", cell, _ratio(found[OURS.name], found[BARE.name]), "bare loop of writes"),
        Measured("longest turn", cell, turn, "5 ms"),
    ]
    report.notes = (
        f"Ours: a comment on each stream quiet for {scale.keepalive_s:g} s; CPU of the server until two have come on "
        "each. Bare: one loop of `transport.write` over all streams; CPU until each comment has come. Longest turn: in "
        "CPU time of the loop's thread, since the clock also counts other processes."
    )
    return report


async def sessions(scale: Scale) -> Report:
    """What a call costs when many sessions are open."""
    callers = 10
    report = Report(
        f"{callers} sessions call while others are open", ("open sessions", *_TURN_COLUMNS, "CPU beside the fewest")
    )
    turns: dict[int, list[_Turn]] = {count: [] for count in scale.sessions}
    async with start([OURS] * len(scale.sessions)) as servers, AsyncExitStack() as stack:
        triples = []
        for count, server in zip(scale.sessions, servers, strict=True):
            await stack.enter_async_context(open_sessions(server.target, count - callers, shared=_POSTS))
            active = await stack.enter_async_context(open_sessions(server.target, callers))
            triples.append((count, server, active))
        for _, server, active in triples:
            await _turn(server, active, scale.warm_s)
        for number in range(scale.rounds):
            for count, server, active in _shifted(triples, number):
                turns[count].append(await _turn(server, active, scale.turn_s))
    fewest = turns[scale.sessions[0]]
    for count, found in turns.items():
        ratio = _ratio(_cpus(found), _cpus(fewest))
        report.rows.append((f"{count:,}", *_turn_cells(found), f"{ratio.value:.2f}x"))
    report.measured.append(Measured("sessions CPU", f"{scale.sessions[-1]:,}", ratio, f"{scale.sessions[0]} open"))
    report.notes = "A server for each number of sessions; they take turns."
    return report


SCENARIOS: Mapping[str, Scenario] = {
    "echo": echo,
    "asgi": asgi,
    "first-byte": first_byte,
    "fan-out": fan_out,
    "memory": memory,
    "keep-alive": keep_alive,
    "sessions": sessions,
}


# Steps of the scenarios.


@asynccontextmanager
async def _joined(server: Server, count: int) -> AsyncIterator[list[HTTPSSESession]]:
    """Open sessions that each have made a call: from then on every server knows where to send."""
    async with open_sessions(server.target, count, shared=_POSTS) as sessions:
        for session in sessions:
            await session.exchange(
                b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"join","arguments":{"text":"x"}}}'
            )
        yield sessions


async def _publish(server: Server, sessions: Sequence[HTTPSSESession]) -> tuple[float, float]:
    """Have a notification sent to all; return seconds until the last one has it, and the server's CPU seconds."""
    arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = len(sessions)

    def notified(message: bytes) -> None:
        nonlocal waiting
        if b"notifications/resources/updated" not in message:
            raise LoadError(f"another message than the one published: {message[:200]!r}")
        waiting -= 1
        if waiting == 0:
            arrived.set_result(None)

    for session in sessions:
        session.on_notification = notified
    cpu, sent_at = server.process.cpu_s(), time.perf_counter()
    server.send_command("publish")
    await asyncio.wait_for(arrived, 60)
    took = time.perf_counter() - sent_at
    await server.finish_command()
    return took, server.process.cpu_s() - cpu


async def _kept_alive(server: Server, sessions: Sequence[HTTPSSESession]) -> float:
    """Wait for two comments per stream; return CPU seconds of the server per comment."""
    cpu, before = server.process.cpu_s(), _comments(sessions)
    comments = await _reach(sessions, before + 2 * len(sessions)) - before
    return (server.process.cpu_s() - cpu) / comments


async def _ticked(server: Server, sessions: Sequence[HTTPSSESession]) -> float:
    """Have the bare loop write one comment to each stream; return CPU seconds of the server per comment."""
    cpu, before = server.process.cpu_s(), _comments(sessions)
    await server.command("tick")
    comments = await _reach(sessions, before + len(sessions)) - before
    return (server.process.cpu_s() - cpu) / comments


async def _reach(sessions: Sequence[HTTPSSESession], wanted: int) -> int:
    """Wait until so many comments have come on all streams together, and return how many there are then."""
    deadline = time.monotonic() + 60
    while (found := _comments(sessions)) < wanted:
        if time.monotonic() > deadline:
            raise LoadError(f"{found} keep-alive comments on {len(sessions)} streams where {wanted} should have come")
        await asyncio.sleep(0.01)
    return found


def _comments(sessions: Sequence[HTTPSSESession]) -> int:
    return sum(session.events.comments for session in sessions)


def _shifted(items: Sequence[_T], by: int) -> list[_T]:
    by %= len(items)
    return [*items[by:], *items[:by]]


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Return how many times ``theirs`` ours is, over the medians, with the spread over the rounds."""
    by_round = [one / other for one, other in zip(ours, theirs, strict=True)]
    return Ratio(statistics.median(ours) / statistics.median(theirs), min(by_round), max(by_round))


def _constant(value: float) -> Ratio:
    return Ratio(value, value, value)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"
