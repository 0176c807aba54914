"""How long an answer may take before its stream begins: one timer for all that wait, none for each.

Most answers come long before, so waiting must cost next to nothing: an entry in a dict, in the order they came.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

__all__ = ["Patience", "Waiting"]


class Waiting(Protocol):
    """An answer that has not begun. It is hashed by identity."""

    def begin(self) -> None:
        """Begin the stream."""


class Patience:
    """The answers of one app that wait.

    Args:
        limit_s: how long they may; they wait at most a quarter longer, and never shorter.
    """

    __slots__ = ("_handle", "_limit_s", "_loop", "_older", "_step_s", "_waiting")

    def __init__(self, limit_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self._limit_s = limit_s
        self._step_s = limit_s / 4
        self._loop = loop
        # Generations, oldest first; those of the first have waited for the limit when the step ends.
        self._older: list[dict[Waiting, None]] = [{}, {}, {}, {}]
        self._waiting: dict[Waiting, None] = {}
        self._handle: asyncio.TimerHandle | None = None

    def add(self, answer: Waiting) -> dict[Waiting, None]:
        """Let an answer wait; it stops by taking itself out of the dict that is returned."""
        if not self._limit_s:
            answer.begin()
            return {}
        if self._handle is None:
            self._handle = self._loop.call_later(self._step_s, self._step)
        waiting = self._waiting
        waiting[answer] = None
        return waiting

    def _step(self) -> None:
        over = self._older.pop(0)
        self._older.append(self._waiting)
        self._waiting = {}
        for answer in tuple(over):
            answer.begin()
        if any(self._older):
            self._handle = self._loop.call_later(self._step_s, self._step)
        else:
            self._handle = None
