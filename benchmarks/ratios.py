"""The engine: contenders take turns, and what counts is the ratio of their medians.

A busy machine slows whoever runs at that moment. So each round times every contender once, the order
shifts by one from round to round, and a figure is the median over the rounds. Ratios of two contenders
timed this way hold on a noisy machine where plain times do not; their spread over the rounds is told
with them.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["MIN_ROUNDS", "Ratio", "Timing", "fastest", "interleave", "ratio"]

MIN_ROUNDS = 5
MIN_TURN_S = 0.020
"""Seconds one turn lasts at least: far above the clock's step and a context switch."""


@dataclass(frozen=True)
class Timing:
    """What one contender took.

    Attributes:
        name: the contender.
        rounds: seconds per call, one figure a round.
    """

    name: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


@dataclass(frozen=True)
class Ratio:
    """How many times the speed of another a contender has.

    Attributes:
        value: the ratio of the medians.
        low: the smallest ratio of one round.
        high: the largest.
    """

    value: float
    low: float
    high: float


def interleave(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 7,
    min_turn_s: float = MIN_TURN_S,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time the contenders by turns, with the garbage collector off but for a run of it before each round.

    Args:
        contenders: what to call, by name. Each is called often enough that a turn lasts ``min_turn_s`` seconds.
        rounds: how many turns each gets.
        clock: a monotonic clock in seconds.
    """
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    with _no_collector():
        loops = {name: _calibrate(call, min_turn_s, clock) for name, call in contenders.items()}
        for number in range(rounds):
            gc.collect()
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                taken[name].append(_time(contenders[name], loops[name], clock) / loops[name])
    return {name: Timing(name, tuple(times)) for name, times in taken.items()}


def ratio(contender: Timing, other: Timing) -> Ratio:
    """Tell how many times as fast as ``other`` the contender is: 2.0 is half the time."""
    by_round = [theirs / ours for ours, theirs in zip(contender.rounds, other.rounds, strict=True)]
    return Ratio(other.median / contender.median, min(by_round), max(by_round))


def fastest(timings: Mapping[str, Timing], names: tuple[str, ...]) -> Timing | None:
    """Return the one with the lowest median among those of ``names`` that ran, None when none did."""
    return min((timings[name] for name in names if name in timings), key=lambda timing: timing.median, default=None)


def _calibrate(call: Callable[[], object], min_turn_s: float, clock: Callable[[], float]) -> int:
    """Return how many calls last ``min_turn_s``. The calls made here also warm caches and allocators."""
    loops = 1
    while True:
        took = _time(call, loops, clock)
        if took >= min_turn_s:
            return loops
        # Aim a little high, but never trust one short measurement for more than a factor of ten.
        loops = max(loops + 1, min(loops * 10, int(loops * 1.2 * min_turn_s / max(took, 1e-9))))


def _time(call: Callable[[], object], loops: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(loops):
        call()
    return clock() - start


@contextmanager
def _no_collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
