"""Tasks of sessions: how the work for a message starts, and how it is stopped."""

from __future__ import annotations

import asyncio
import sys
from asyncio import current_task
from collections.abc import Coroutine
from typing import Any

from .context import Context

__all__ = ["begin", "start", "stop"]


def start(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
    """Run ``work`` in a task, at once if Python can; its first step is to be :func:`begin`."""
    if sys.version_info >= (3, 12):
        asyncio.Task(work, loop=loop, eager_start=True)  # a handler that never waits then needs no turn of the loop
    else:
        asyncio.Task(work, loop=loop)


def begin(ctx: Context, loop: asyncio.AbstractEventLoop) -> bool:
    """Note that the work for a message has begun; False if it is not wanted any more.

    A task that is cancelled before its first step never runs at all, not even what it must do at its end. So one is
    cancelled only once it has begun, and asks here whether it still shall.
    """
    ctx.task = current_task(loop)  # it also keeps the task alive: the loop does not
    return not ctx.is_cancelled


def stop(ctx: Context) -> None:
    """Cancel the work for a message that is owed no answer any more."""
    ctx.is_cancelled = ctx.is_done = True
    if ctx.task is not None:
        ctx.task.cancel()
