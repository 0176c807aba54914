"""A reader that is over the limit behind: who waits for it, and how long until it is dropped."""

from __future__ import annotations

import asyncio
from typing import Protocol

from .deadlines import Deadline, Deadlines
from .limits import HTTPLimits

__all__ = ["Backlog"]


class _Output(Protocol):
    """What a backlog must know of the output it belongs to. Sizes are in bytes."""

    bytes_out: int
    """All that was written."""
    last_message_bytes: int
    """Size of the last write."""

    @property
    def unsent_bytes(self) -> int: ...

    def abort(self, reason: str) -> None: ...


class Backlog:
    """Exists from when an output goes over its limit until it is under it again.

    The reader is dropped as ``slow_reader`` if it took nothing for the whole of
    ``slow_reader_timeout_s``, or if it is then over the limit even without the message being written:
    one large message may take its time, as long as it gets on.
    """

    __slots__ = ("_deadlines", "_limits", "_output", "_taken", "_timer", "_waiters")

    def __init__(self, output: _Output, limits: HTTPLimits, deadlines: Deadlines) -> None:
        self._output = output
        self._limits = limits
        self._deadlines = deadlines
        self._waiters: list[asyncio.Future[None]] = []
        self._taken = output.bytes_out - output.unsent_bytes
        self._timer: Deadline = deadlines.after(limits.slow_reader_timeout_s, self._check)

    async def wait(self) -> None:
        """Return when the backlog is over, in whatever way."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def close(self) -> None:
        """The reader caught up, or left."""
        self._timer.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _check(self) -> None:
        output = self._output
        unsent = output.unsent_bytes
        taken = output.bytes_out - unsent
        if taken <= self._taken or unsent - output.last_message_bytes > self._limits.max_unsent_bytes:
            output.abort("slow_reader")
        else:
            self._taken = taken
            self._timer = self._deadlines.after(self._limits.slow_reader_timeout_s, self._check)
