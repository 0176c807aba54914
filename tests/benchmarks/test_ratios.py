"""The engine gives each contender its turn, and tells ratios of medians; on a clock of our own."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from benchmarks.ratios import MIN_ROUNDS, Timing, fastest, interleave, ratio


class Clock:
    """A clock that stands still, except for what the contenders say they take."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def contender(self, name: str, cost: Callable[[], float]) -> Callable[[], None]:
        def call() -> None:
            self.calls.append(name)
            self.now += cost()

        return call


def test_a_contender_is_timed_per_call() -> None:
    clock = Clock()
    found = interleave(
        {"fast": clock.contender("fast", lambda: 0.001), "slow": clock.contender("slow", lambda: 0.004)},
        rounds=5,
        clock=clock,
    )
    assert found["fast"].rounds == pytest.approx([0.001] * 5)
    assert found["slow"].rounds == pytest.approx([0.004] * 5)
    assert ratio(found["fast"], found["slow"]).value == pytest.approx(4.0)


def test_contenders_take_turns_and_none_is_always_first() -> None:
    clock = Clock()
    interleave({name: clock.contender(name, lambda: 0.03) for name in "abc"}, rounds=6, clock=clock)
    assert clock.calls == list("abc") + list("abc" + "bca" + "cab") * 2


def test_a_turn_lasts_long_enough_whatever_a_call_takes() -> None:
    clock = Clock()
    interleave({"tiny": clock.contender("tiny", lambda: 1e-5)}, rounds=5, min_turn_s=0.01, clock=clock)
    assert clock.now >= 5 * 0.01
    # Calibration by factors of ten may overshoot a little, not by orders.
    assert clock.now < 5 * 0.1


def test_a_call_that_the_clock_cannot_see_does_not_make_calibration_explode() -> None:
    clock = Clock()
    costs = iter([0.0] * 3)
    interleave({"unseen": clock.contender("unseen", lambda: next(costs, 1e-3))}, rounds=1, clock=clock)
    assert len(clock.calls) < 1000


def test_one_disturbed_round_does_not_change_the_ratio_but_shows_in_its_spread() -> None:
    ours = Timing("ours", (1.0, 1.0, 5.0, 1.0, 1.0))
    theirs = Timing("theirs", (2.0, 2.0, 2.0, 2.0, 2.0))
    found = ratio(ours, theirs)
    assert (found.value, found.low, found.high) == (2.0, 0.4, 2.0)


def test_the_collector_is_off_while_the_clock_runs_and_as_before_afterwards() -> None:
    clock = Clock()
    seen: list[bool] = []

    def cost() -> float:
        seen.append(gc.isenabled())
        return 0.03

    assert gc.isenabled()
    interleave({"one": clock.contender("one", cost)}, rounds=5, clock=clock)
    assert seen == [False] * 6
    assert gc.isenabled()


def test_the_collector_comes_back_when_a_contender_fails() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interleave({"broken": broken})
    assert gc.isenabled()


def test_the_fastest_of_those_that_ran_is_the_one_to_beat() -> None:
    timings = {"a": Timing("a", (3.0,)), "b": Timing("b", (2.0,)), "ours": Timing("ours", (1.0,))}
    assert fastest(timings, ("a", "b", "absent")) is timings["b"]
    assert fastest(timings, ("absent",)) is None


def test_a_median_needs_five_rounds() -> None:
    assert MIN_ROUNDS == 5
