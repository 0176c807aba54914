"""Who waits for longer than a moment: only they are worth a timer or a task.

A body is here, and a handler done, at once as a rule. An entry in a set tells them from the others,
where a timer each would cost a tenth of what the request costs.
"""

from __future__ import annotations

from collections.abc import Callable

from .deadlines import Deadlines

__all__ = ["MOMENT_S", "LongWaits"]

MOMENT_S = 0.05
"""Seconds after which a wait is long; it is noticed after twice as many at most, and the timer's own lateness."""


class LongWaits:
    """The waits of one event loop."""

    __slots__ = ("_deadlines", "_is_timer_set", "_older", "_younger")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._younger: set[Callable[[], object]] = set()
        self._older: set[Callable[[], object]] = set()
        self._is_timer_set = False

    def begin(self, callback: Callable[[], object]) -> set[Callable[[], object]]:
        """Call ``callback`` if the wait that begins now becomes long; to end it, discard it from what is returned."""
        younger = self._younger
        younger.add(callback)
        if not self._is_timer_set:
            self._is_timer_set = True
            self._deadlines.after(MOMENT_S, self._pass_moment)
        return younger

    def _pass_moment(self) -> None:
        long, self._older, self._younger = self._older, self._younger, set()
        self._is_timer_set = bool(self._older)
        if self._is_timer_set:
            self._deadlines.after(MOMENT_S, self._pass_moment)
        while long:
            long.pop()()
