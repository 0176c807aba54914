"""Runs the user's handlers of notifications and progress: in order, one at a time, never in the way.

A plain function is called at once. What an async one still has to do is done by one task, which exists
while there is something to do.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["HandlerQueue"]

logger = logging.getLogger("mcpfast.client")

MAX_WAITING = 1000
"""Calls of async handlers that wait for those before them. Twice as many, and new ones are dropped."""


class HandlerQueue:
    """Calls that may need awaiting, in order.

    Args:
        on_change: called when ``is_full`` may have changed.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._dropped = 0
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """The handlers are so far behind that nothing more should be read for them."""
        return len(self._waiting) >= MAX_WAITING

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The task at work, if any."""
        return [] if self._task is None else [self._task]

    def call(self, handler: Callable[..., Any], *args: Any) -> None:
        """Call a handler, now if none is still at work."""
        if self._task is None:
            result = _guarded(handler, args)
            if result is not None and inspect.isawaitable(result):
                self._task = asyncio.get_running_loop().create_task(self._work(result))
                # Cancelled before its first step it would leave the coroutine unawaited.
                self._task.add_done_callback(lambda _: result.close() if inspect.iscoroutine(result) else None)
        elif len(self._waiting) < 2 * MAX_WAITING:
            self._waiting.append((handler, args))
            if self.is_full:
                self._on_change()
        else:
            # A call waits for an answer further down the stream, so reading cannot stop.
            if not self._dropped:
                logger.warning("handlers are %d notifications behind, new ones are dropped", len(self._waiting))
            self._dropped += 1

    async def _work(self, result: Any) -> None:
        try:
            while True:
                if inspect.isawaitable(result):
                    try:
                        await result
                    except Exception:
                        logger.exception("handler of a notification failed")
                if not self._waiting:
                    return
                handler, args = self._waiting.popleft()
                if len(self._waiting) == MAX_WAITING - 1:
                    self._on_change()
                    if self._dropped:
                        logger.warning("%d notifications were dropped", self._dropped)
                        self._dropped = 0
                result = _guarded(handler, args)
        finally:
            self._task = None

    def close(self) -> None:
        """Stop; what waits is dropped."""
        self._waiting.clear()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()


def _guarded(handler: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return handler(*args)
    except Exception:
        logger.exception("handler of a notification failed")
        return None
