"""Keep-alive comments (C034)."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

import pytest

from mcpfast.server.keepalive import KeepAlive


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time is moved by hand."""

    def __init__(self) -> None:
        super().__init__(selectors.SelectSelector())
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def advance(self, seconds: float, step: float = 0.05) -> None:
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now += step
            self.turn()

    def turn(self) -> None:
        self.call_soon(self.stop)
        self.run_forever()


class Stream:
    def __init__(self, clock: Clock, keepalive: KeepAlive) -> None:
        self.clock = clock
        self.keepalive = keepalive
        self.is_open = True
        self.last_step = 0
        self.comments: list[float] = []
        keepalive.add(self)

    def keep_alive(self) -> None:
        self.comments.append(self.clock.now)

    def write(self) -> None:
        self.last_step = self.keepalive.step

    def close(self) -> None:
        self.is_open = False
        self.keepalive.discard(self)


@pytest.fixture
def clock() -> Any:
    loop = Clock()
    yield loop
    loop.close()


def timers(clock: Any) -> int:
    return sum(not handle.cancelled() for handle in clock._scheduled)


@pytest.mark.parametrize("interval", [0.3, 1.0, 15.0])
def test_a_quiet_stream_gets_a_comment_in_each_interval(clock: Clock, interval: float) -> None:
    """C034."""
    keepalive = KeepAlive(interval, clock)
    stream = Stream(clock, keepalive)
    clock.advance(interval * 5.5)
    assert 4 <= len(stream.comments) <= 5
    gaps = [b - a for a, b in zip([0.0, *stream.comments], stream.comments, strict=False)]
    assert all(interval - 1e-9 <= gap <= interval * 1.1 + 0.1 for gap in gaps)


def test_a_busy_stream_gets_none_until_it_is_quiet(clock: Clock) -> None:
    keepalive = KeepAlive(4.0, clock)
    busy, quiet = Stream(clock, keepalive), Stream(clock, keepalive)
    for _ in range(20):
        clock.advance(1)
        busy.write()
    assert busy.comments == []
    assert len(quiet.comments) >= 4
    clock.advance(4.6)
    assert len(busy.comments) == 1


def test_a_closed_stream_gets_none_and_leaves_no_timer(clock: Clock) -> None:
    """C034: none on a finished stream; nothing left after the last."""
    keepalive = KeepAlive(1.0, clock)
    streams = [Stream(clock, keepalive) for _ in range(3)]
    clock.advance(1.6)
    for stream in streams:
        stream.close()
    assert timers(clock) == 0
    clock.advance(5)
    assert [len(stream.comments) for stream in streams] == [1, 1, 1]
    again = Stream(clock, keepalive)
    clock.advance(1.5)
    assert len(again.comments) == 1


def test_zero_switches_comments_off(clock: Clock) -> None:
    """C034."""
    keepalive = KeepAlive(0, clock)
    stream = Stream(clock, keepalive)
    clock.advance(100, 1)
    assert stream.comments == []
    assert timers(clock) == 0
    stream.close()


def test_many_streams_are_served_over_many_turns(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn of the loop is long, and streams may close and open meanwhile."""
    monkeypatch.setattr("mcpfast.server.keepalive._TURN_BUDGET_S", 0)
    keepalive = KeepAlive(1.0, clock)
    streams = [Stream(clock, keepalive) for _ in range(320)]
    per_turn: list[int] = []
    clock.advance(0.95)
    clock.now += 0.1
    for number in range(40):
        before = sum(len(stream.comments) for stream in streams)
        clock.turn()
        per_turn.append(sum(len(stream.comments) for stream in streams) - before)
        if number == 3:
            done = [stream for stream in streams if stream.comments]
            waiting = [stream for stream in streams if not stream.comments]
            done[0].close()
            waiting[0].close()
            late = Stream(clock, keepalive)
    assert max(per_turn) <= 16
    assert sum(per_turn) == 319
    assert late.comments == []
    for stream in [*streams, late]:
        if stream.is_open:
            stream.close()
    clock.turn()
    assert timers(clock) == 0


def test_a_stream_that_closes_in_its_own_comment_does_no_harm(clock: Clock) -> None:
    keepalive = KeepAlive(1.0, clock)
    stream = Stream(clock, keepalive)
    close: Callable[[], None] = stream.close
    stream.keep_alive = close  # type: ignore[method-assign]
    clock.advance(3)
    assert timers(clock) == 0
