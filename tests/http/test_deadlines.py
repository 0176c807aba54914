"""The coarse timers: never early, a little late, cheap to cancel, spread over turns."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from mcpfast.http._long_waits import MOMENT_S, LongWaits
from mcpfast.http.deadlines import Deadlines, MovingDeadline


class FakeLoop:
    """A loop whose clock stands still unless told to move; it has the four methods Deadlines calls."""

    class Handle:
        def __init__(self, when: float, callback: Callable[[], None]) -> None:
            self.when, self.callback, self.cancelled = when, callback, False

        def cancel(self) -> None:
            self.cancelled = True

    def __init__(self) -> None:
        self.clock = 1000.0
        self.timers: list[FakeLoop.Handle] = []
        self.armed_count = 0
        self.errors: list[dict[str, Any]] = []

    def time(self) -> float:
        return self.clock

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        self.armed_count += 1
        handle = self.Handle(when, callback)
        self.timers.append(handle)
        return handle

    def call_soon(self, callback: Callable[[], None]) -> Handle:
        return self.call_at(self.clock, callback)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    def turn(self) -> None:
        """Run what is due now, once."""
        due = [handle for handle in self.timers if handle.when <= self.clock]
        self.timers = [handle for handle in self.timers if handle.when > self.clock and not handle.cancelled]
        for handle in due:
            if not handle.cancelled:
                handle.callback()

    def advance(self, seconds: float, step: float = 0.001) -> None:
        end = self.clock + seconds
        while self.clock < end:
            self.clock = min(end, self.clock + step)
            self.turn()

    @property
    def live(self) -> list[Handle]:
        return [handle for handle in self.timers if not handle.cancelled]


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def deadlines(loop: FakeLoop) -> Deadlines:
    return Deadlines(loop)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.031, 0.5, 1.0, 4.999, 5.0, 10.0, 20.0, 49.0, 75.0, 300.0])
def test_fires_never_early_and_at_most_50_ms_or_5_percent_late(
    loop: FakeLoop, deadlines: Deadlines, seconds: float
) -> None:
    for offset in (0.0, 0.013, 0.2499, 0.7):
        loop.clock = 1000.0 + offset
        fired: list[float] = []
        start = loop.clock
        deadlines.after(seconds, lambda fired=fired: fired.append(loop.clock))  # type: ignore[misc]
        loop.advance(seconds * 1.06 + 0.06, step=0.001 if seconds < 30 else 0.01)
        assert len(fired) == 1
        late = fired[0] - start - seconds
        assert 0 <= late <= max(0.051, 0.05 * seconds + 0.011)


def test_a_loop_that_wakes_early_does_not_make_a_deadline_early(loop: FakeLoop, deadlines: Deadlines) -> None:
    fired: list[float] = []
    deadlines.after(1.0, lambda: fired.append(loop.clock))
    (handle,) = loop.live
    loop.clock = handle.when - 0.0004  # uvloop rounds to milliseconds
    handle.callback()
    assert not fired
    loop.timers.remove(handle)
    loop.advance(0.01)
    assert len(fired) == 1


def test_one_loop_timer_serves_all_deadlines_of_a_bucket(loop: FakeLoop, deadlines: Deadlines) -> None:
    fired: list[int] = []
    for i in range(1000):
        deadlines.after(10.0, lambda i=i: fired.append(i))  # type: ignore[misc]
    assert loop.armed_count == 1
    loop.advance(11)
    assert sorted(fired) == list(range(1000))
    assert loop.live == []


def test_an_earlier_deadline_comes_first_whatever_the_order_of_setting(loop: FakeLoop, deadlines: Deadlines) -> None:
    fired: list[str] = []
    deadlines.after(75, lambda: fired.append("idle"))
    deadlines.after(10, lambda: fired.append("head"))
    deadlines.after(0.1, lambda: fired.append("soon"))
    loop.advance(80, step=0.02)
    assert fired == ["soon", "head", "idle"]


def test_cancelled_deadline_does_not_fire_and_is_not_kept(loop: FakeLoop, deadlines: Deadlines) -> None:
    class Callback:
        def __call__(self) -> None:
            raise AssertionError("cancelled, yet called")

    callback = Callback()
    gone = weakref.ref(callback)
    deadline = deadlines.after(10, callback)
    assert deadline.is_active
    deadline.cancel()
    deadline.cancel()
    assert not deadline.is_active
    del callback, deadline
    gc.collect()
    assert gone() is None  # a request that ended must not stay in memory until its limit passes
    loop.advance(11)
    assert not loop.errors


def test_cancel_from_a_callback_of_the_same_bucket_holds(loop: FakeLoop, deadlines: Deadlines) -> None:
    fired: list[str] = []
    a = deadlines.after(1, lambda: (fired.append("a"), b.cancel()))
    b = deadlines.after(1, lambda: (fired.append("b"), a.cancel()))
    loop.advance(2)
    assert len(fired) == 1
    assert not a.is_active
    assert not b.is_active


def test_deadline_set_by_a_callback_fires_later_not_in_the_same_turn(loop: FakeLoop, deadlines: Deadlines) -> None:
    fired: list[float] = []

    def again() -> None:
        fired.append(loop.clock)
        if len(fired) < 3:
            deadlines.after(0.0, again)

    deadlines.after(0.5, again)
    loop.advance(2)
    assert len(fired) == 3
    assert len(set(fired)) == 3
    assert loop.live == []


def test_failing_callback_is_reported_and_does_not_stop_the_others(loop: FakeLoop, deadlines: Deadlines) -> None:
    fired: list[int] = []

    def fail() -> None:
        raise ValueError("mine")

    for i in range(5):
        deadlines.after(1, fail)
        deadlines.after(1, lambda i=i: fired.append(i))  # type: ignore[misc]
    loop.advance(2)
    assert sorted(fired) == [0, 1, 2, 3, 4]
    assert len(loop.errors) == 5
    assert isinstance(loop.errors[0]["exception"], ValueError)


def test_interrupt_from_a_callback_leaves_the_timers_working(loop: FakeLoop, deadlines: Deadlines) -> None:
    fired: list[str] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    deadlines.after(1, interrupt)
    deadlines.after(2, lambda: fired.append("later"))
    with pytest.raises(KeyboardInterrupt):
        loop.advance(1.1)
    loop.advance(2)
    assert fired == ["later"]


def test_much_due_at_once_is_spread_over_turns(
    loop: FakeLoop, deadlines: Deadlines, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1_000_000))
    # Each look at the clock takes 0.1 ms, so each turn has time for some 20 callbacks.
    monkeypatch.setattr("mcpfast.http.deadlines.perf_counter", lambda: next(clock) * 0.0001)
    fired: list[int] = []
    for i in range(100):
        deadlines.after(1, lambda i=i: fired.append(i))  # type: ignore[misc]
    loop.clock += 1.1
    counts = []
    for _ in range(10):
        before = len(fired)
        loop.turn()
        counts.append(len(fired) - before)
    assert sum(counts) == 100
    assert max(counts) <= 25
    assert loop.live == []


@pytest.mark.anyio
async def test_real_loop_calls_back_once_and_for_loop_gives_the_same_set() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines.for_loop()
    assert Deadlines.for_loop(loop) is deadlines
    done: asyncio.Future[float] = loop.create_future()
    start = deadlines.now()
    deadlines.after(0.05, lambda: done.set_result(deadlines.now()))
    assert await asyncio.wait_for(done, 5) - start >= 0.05


def test_closed_loop_and_its_timers_are_freed() -> None:
    loop = asyncio.new_event_loop()
    deadlines = weakref.ref(Deadlines.for_loop(loop))
    Deadlines.for_loop(loop).after(100, int)
    gone = weakref.ref(loop)
    loop.close()
    del loop
    gc.collect()
    assert gone() is None
    assert deadlines() is None


def test_limit_that_moves_later_keeps_its_timer_and_passes_when_it_should(loop: FakeLoop, deadlines: Deadlines) -> None:
    fired: list[float] = []
    limit = MovingDeadline(deadlines, lambda: fired.append(loop.clock - 1000.0))
    limit.set(1.0)
    armed = loop.armed_count
    for _ in range(50):
        loop.advance(0.01)
        limit.set(1.0)
    assert loop.armed_count == armed
    loop.advance(2)
    assert len(fired) == 1
    assert 1.5 <= fired[0] <= 1.6
    limit.set(0.1)
    loop.advance(1)
    assert len(fired) == 2


def test_limit_may_move_sooner_be_cleared_and_be_closed(loop: FakeLoop, deadlines: Deadlines) -> None:
    fired: list[float] = []
    limit = MovingDeadline(deadlines, lambda: fired.append(loop.clock - 1000.0))
    limit.set(75)
    limit.set(0.5)
    loop.advance(0.6)
    assert len(fired) == 1
    limit.set(0.5)
    limit.clear()
    loop.advance(1)
    assert len(fired) == 1
    limit.set(0.5)
    limit.close()
    loop.advance(1)
    assert len(fired) == 1


def test_only_waits_longer_than_a_moment_are_told_each_once(loop: FakeLoop, deadlines: Deadlines) -> None:
    waits = LongWaits(deadlines)
    told: list[tuple[str, float]] = []

    def tell(name: str) -> Callable[[], None]:
        return lambda: told.append((name, loop.clock - 1000.0))

    for i in range(100):
        short = tell("short")
        begun = waits.begin(short)
        if i == 30:
            waits.begin(tell("long"))
        loop.advance(0.01)
        begun.discard(short)
    loop.advance(1)
    ((name, when),) = told
    assert name == "long"
    assert 0.3 + MOMENT_S <= when <= 0.3 + 4 * MOMENT_S
    assert loop.live == []
