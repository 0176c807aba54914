"""The one task of a connection: it is there so that every way to end leaves nothing behind.

A connection that is read by callbacks needs no task to work. It needs one to end: ``asyncio.run`` cancels
tasks when it is over, and knows nothing of sockets; and an object that is dropped without being closed
cannot await. The task sleeps until one of these happens.
"""

from __future__ import annotations

import asyncio

from .channel import Channel

__all__ = ["Keeper"]


class Keeper:
    """Ends a channel, once, whoever asks: a task, the garbage collector, or the end of the loop."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to keep an open channel."""
        self._task = self._loop.create_task(_keep(self._channel, self._end))

    def end(self) -> None:
        """Have the channel closed soon. Repeatable."""
        if not self._end.done():
            self._end.set_result(None)

    async def aclose(self) -> None:
        """Close the channel and wait until it is. Repeatable, from any task."""
        self.end()
        if self._task is not None:
            # Waiting on it, not awaiting it: our being cancelled must not stop the close.
            await asyncio.wait({self._task})

    def drop(self) -> None:
        """The last reference has gone, in whatever thread: have the channel closed soon."""
        if self._task is not None and not self._task.done() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.end)


async def _keep(channel: Channel, end: asyncio.Future[None]) -> None:
    try:
        await end
    finally:
        channel.abort()
        await channel.aclose()
