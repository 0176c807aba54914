"""Coarse timers, one set per event loop, cheap enough to set several for each request.

``loop.call_later`` costs a heap entry per timer, and cancelling leaves it there until it is due; a
timer per request so costs a server half of its throughput. Time limits need no precision, so timers
that fall due at about the same time share one bucket here, and the loop has a timer for the next
bucket only.

A callback comes never early, and at most 50 ms or 5 % of its time late, whichever is more (plus what
the loop itself is late). Buckets that hold much work are spread over turns of the loop.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from heapq import heappop, heappush
from time import perf_counter

__all__ = ["Deadline", "Deadlines", "MovingDeadline"]

# Bucket widths in seconds. Powers of two, so that multiples of one are exact floats and buckets of
# different widths may share a due time. The wider ones keep a long limit (idle 75 s) from having
# thousands of buckets.
_FINE, _MIDDLE, _WIDE = 1 / 32, 1 / 4, 2.0
_FINE_BELOW, _MIDDLE_BELOW = 5.0, 50.0

# Callbacks run for at most this long in one turn of the loop: 10,000 keep-alive comments due at once
# must not delay a request by the time they take together.
_TURN_BUDGET_S = 0.002


class Deadline:
    """One timer. It is over once it fired or was cancelled."""

    __slots__ = ("_bucket", "callback")

    def __init__(self, callback: Callable[[], object], bucket: set[Deadline]) -> None:
        self.callback = callback
        self._bucket: set[Deadline] | None = bucket

    @property
    def is_active(self) -> bool:
        """Still to fire."""
        return self._bucket is not None

    def cancel(self) -> None:
        """Do not call back. Repeatable, and fine after firing; takes the same time however many there are."""
        bucket = self._bucket
        if bucket is not None:
            self._bucket = None
            bucket.discard(self)


class Deadlines:
    """The timers of one event loop; to be used from its thread only."""

    __slots__ = ("__weakref__", "_armed", "_armed_due", "_buckets", "_due", "_loop", "now")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now: Callable[[], float] = loop.time
        """Returns seconds of the loop's clock."""
        self._buckets: dict[float, set[Deadline]] = {}  # by due time
        self._due: list[float] = []  # heap over the keys of _buckets
        self._armed: asyncio.Handle | None = None
        self._armed_due = 0.0

    @classmethod
    def for_loop(cls, loop: asyncio.AbstractEventLoop | None = None) -> Deadlines:
        """Return the one set of timers of ``loop``, or of the running loop."""
        if loop is None:
            loop = asyncio.get_running_loop()
        found = _by_loop.get(id(loop))
        if found is None:
            found = _by_loop[id(loop)] = cls(loop)
        return found

    def after(self, seconds: float, callback: Callable[[], object]) -> Deadline:
        """Call ``callback()`` once ``seconds`` have passed; see the module about how precisely.

        What a callback raises goes to the loop's exception handler; other callbacks still run.
        """
        if seconds < _FINE_BELOW:
            width = _FINE
        elif seconds < _MIDDLE_BELOW:
            width = _MIDDLE
        else:
            width = _WIDE
        # The next multiple after the time asked for, so never early.
        due = (int((self.now() + seconds) / width) + 1) * width
        bucket = self._buckets.get(due)
        if bucket is None:
            bucket = self._buckets[due] = set()
            heappush(self._due, due)
            if self._armed is None or due < self._armed_due:
                self._arm()
        deadline = Deadline(callback, bucket)
        bucket.add(deadline)
        return deadline

    def _arm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        if self._due:
            loop = self._loop
            now = self.now()
            due = self._armed_due = self._due[0]
            if due <= now:
                self._armed = loop.call_soon(self._fire)
            else:
                # Loops round to their clock's step, so _fire may come a little early: it then arms
                # again, at least 1 ms on (uvloop's step) lest it spin.
                self._armed = loop.call_at(max(due, now + 0.001), self._fire)

    def _fire(self) -> None:
        self._armed_due = 0.0  # earlier than all: after() arms nothing while callbacks run
        try:
            self._run_due()
        finally:
            self._arm()

    def _run_due(self) -> None:
        loop = self._loop
        now = self.now()
        stop_at = perf_counter() + _TURN_BUDGET_S
        while self._due and self._due[0] <= now:
            bucket = self._buckets[self._due[0]]
            while bucket:
                deadline = bucket.pop()
                deadline._bucket = None
                try:
                    deadline.callback()
                except Exception as error:
                    loop.call_exception_handler({"message": "a deadline's callback failed", "exception": error})
                if perf_counter() > stop_at:
                    return
            del self._buckets[heappop(self._due)]


class MovingDeadline:
    """A time limit that moves all the time, as that of a connection does, and hardly ever passes.

    Moving it later costs two comparisons: its timer is left as it is, and set again when it fires.
    """

    __slots__ = ("_callback", "_deadlines", "_due", "_timer", "_timer_due")

    def __init__(self, deadlines: Deadlines, callback: Callable[[], object]) -> None:
        self._deadlines = deadlines
        self._callback = callback
        self._due = _NEVER
        self._timer: Deadline | None = None
        self._timer_due = _NEVER

    def set(self, seconds: float) -> None:
        """Let the limit pass in ``seconds`` from now, instead of when it would have."""
        due = self._due = self._deadlines.now() + seconds
        if due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._deadlines.after(seconds, self._fire)
            self._timer_due = due

    def clear(self) -> None:
        """Let there be no limit until the next :meth:`set`."""
        self._due = _NEVER

    def close(self) -> None:
        """Let go of the timer and the callback: the end."""
        self._due = _NEVER
        self._callback = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._timer_due = _NEVER

    def _fire(self) -> None:
        self._timer = None
        self._timer_due = _NEVER
        if self._due == _NEVER:
            return
        left = self._due - self._deadlines.now()
        if left > 0:
            self.set(left)
        else:
            self._due = _NEVER
            self._callback()


_NEVER = float("inf")


def _nothing() -> None:
    pass


# Weak by value: a set of timers is kept by its users, and by the loop while a timer is set. It holds
# its loop, so an id in this table cannot be that of another loop.
_by_loop: weakref.WeakValueDictionary[int, Deadlines] = weakref.WeakValueDictionary()
