"""Who hears what one Server publishes, on one loop: each kind of listener in the way that suits it.

Open streams without event ids share one log (:mod:`.broadcast`). Sessions that must number and store their events, or
hold them because no GET stream is open, take each message themselves, as do the streams of ``subscriptions/listen``.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ..codec import encode_event
from ..jsonrpc import Notification, decode_message
from .broadcast import Broadcast
from .subscriptions import Listeners

__all__ = ["HostedAudience", "Keeper"]


class Keeper(Protocol):
    """A session that takes published messages itself. It is hashed by identity."""

    def keep(self, payload: bytes, frame: bytes) -> None:
        """Take a message, given as JSON and as an event without id."""


class HostedAudience:
    """All listeners of a Server in one app."""

    __slots__ = ("__weakref__", "_loop", "broadcast", "keepers", "listeners")

    def __init__(self, loop: asyncio.AbstractEventLoop, broadcast: Broadcast) -> None:
        self._loop = loop
        self.broadcast = broadcast
        self.keepers: dict[Keeper, None] = {}
        self.listeners = Listeners()

    def publish(self, payload: bytes) -> None:
        """Send a notification, given as JSON, to all of them. May be called from any thread."""
        if asyncio._get_running_loop() is self._loop:
            self._publish(payload)
        else:
            try:
                self._loop.call_soon_threadsafe(self._publish, payload)
            except RuntimeError:
                return  # the loop is closed: nobody listens

    def _publish(self, payload: bytes) -> None:
        # All in one go: a session that opens or closes its GET stream is on one side or the other, never on none.
        self.broadcast.publish(payload)
        if self.keepers:
            frame = encode_event(payload, event="message")
            for keeper in tuple(self.keepers):
                keeper.keep(payload, frame)
        if len(self.listeners):
            message = decode_message(payload)
            assert isinstance(message, Notification)
            self.listeners.publish(message)
