"""Keep-alive comments: one timer per app, however many streams there are.

Proxies and clients cut streams that are quiet for long (WHATWG HTML 9.2.7 suggests a comment about every 15 s). A timer
per stream would cost more than the comments. Here time moves in steps, a stream notes the step it last wrote in, and
lies in the bucket of the step at which it would have been quiet for one interval. What is due is spread over turns of
the loop, so that thousands of streams opened together do not stop everything else together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import perf_counter
from typing import Protocol

__all__ = ["KeepAlive", "KeptAlive"]

_MAX_STEPS = 16  # per interval; a comment comes at most one step late
_MIN_STEP_S = 0.25
_TURN_BUDGET_S = 0.002
_CHECK_EVERY = 16  # streams between looks at the clock: some 0.2 ms of writes


class KeptAlive(Protocol):
    """A stream as :class:`KeepAlive` sees it. It is hashed by identity."""

    is_open: bool
    last_step: int
    """:attr:`KeepAlive.step` when it last wrote."""

    def keep_alive(self) -> None:
        """Write a comment."""


class KeepAlive:
    """Writes comments to the streams added to it that are quiet.

    Args:
        interval_s: how long a stream may be quiet, in seconds; 0 for no comments at all.
    """

    __slots__ = ("_buckets", "_count", "_handle", "_loop", "_step_s", "_steps", "_work", "step")

    def __init__(self, interval_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.step = 0
        self._loop = loop
        self._steps = max(1, min(_MAX_STEPS, int(interval_s / _MIN_STEP_S)))
        self._step_s = interval_s / self._steps
        self._buckets: list[set[KeptAlive]] = [set() for _ in range(self._steps)] if interval_s > 0 else []
        self._count = 0
        self._handle: asyncio.Handle | None = None
        self._work: Iterator[KeptAlive] | None = None  # what is due and was not reached in this turn

    def add(self, stream: KeptAlive) -> None:
        """Keep ``stream`` alive from now on."""
        stream.last_step = self.step
        if not self._buckets:
            return
        self._buckets[self.step % self._steps].add(stream)
        self._count += 1
        if self._handle is None:
            self._handle = self._loop.call_later(self._step_s, self._tick)

    def discard(self, stream: KeptAlive) -> None:
        """Forget a stream that was added."""
        if not self._buckets:
            return
        # It lies in the bucket it was put in last, or among those due just now, which are skipped when closed.
        for bucket in self._buckets:
            if stream in bucket:
                bucket.remove(stream)
                break
        self._count -= 1
        if self._count == 0 and self._handle is not None:
            self._handle.cancel()
            self._handle = self._work = None

    def _tick(self) -> None:
        self.step += 1
        index = self.step % self._steps
        due, self._buckets[index] = self._buckets[index], set()
        self._work = iter(due)
        started = self._loop.time()
        self._write(started + self._step_s)

    def _write(self, next_tick: float) -> None:
        """Serve what is due for a short time, then in the next turn, and so on; then wait for the next step."""
        step, steps, buckets = self.step, self._steps, self._buckets
        quiet_since = step - steps
        stop_at = perf_counter() + _TURN_BUDGET_S
        count = 0
        assert self._work is not None
        for stream in self._work:
            if not stream.is_open:
                continue
            if stream.last_step <= quiet_since:
                stream.keep_alive()
                stream.last_step = step
            buckets[stream.last_step % steps].add(stream)
            count += 1
            if count % _CHECK_EVERY == 0 and perf_counter() > stop_at:
                self._handle = self._loop.call_soon(self._write, next_tick)
                return
        self._work = None
        self._handle = self._loop.call_at(next_tick, self._tick) if self._count else None
