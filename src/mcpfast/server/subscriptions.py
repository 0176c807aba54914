"""The open ``subscriptions/listen`` streams of one Server: who hears what it publishes on 2026-07-28.

A stream costs no task. One whose reader is over the limit behind is dropped: the client listens again and reads anew
what changed, which is what every notification there asks it to do anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..http.interface import Responder
from ..jsonrpc import Notification
from ..protocol.subscriptions import LISTEN, Announcement, Subscription
from .application import Server
from .stream import EventStream

if TYPE_CHECKING:
    from .shared import Shared

__all__ = ["Listeners"]


class Listeners:
    """The listen streams of one Server on one loop."""

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        self._streams: dict[ListenStream, None] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def open(
        self, shared: Shared, server: Server, subscription: Subscription, acknowledgement: bytes, responder: Responder
    ) -> None:
        """Begin a stream with its acknowledgement."""
        listener = ListenStream(shared, server, subscription, responder, self)
        self._streams[listener] = None
        shared.load.in_flight += 1
        listener.start(acknowledgement)

    def discard(self, listener: ListenStream) -> None:
        del self._streams[listener]

    def publish(self, message: Notification) -> None:
        """Send a notification to every stream whose client asked for it."""
        if not self._streams:
            return
        announcement = Announcement(message)
        for listener in tuple(self._streams):
            if listener.subscription.wants(announcement):
                listener.tell(announcement)

    def close(self) -> None:
        """End all streams, each with the result of its request (M26-S-58)."""
        for listener in tuple(self._streams):
            listener.close()


class ListenStream:
    """One stream and the request that it answers."""

    __slots__ = ("_listeners", "_server", "_shared", "_stream", "subscription")

    def __init__(
        self, shared: Shared, server: Server, subscription: Subscription, responder: Responder, listeners: Listeners
    ) -> None:
        self.subscription = subscription
        self._shared = shared
        self._server = server
        self._listeners = listeners
        self._stream = EventStream(
            responder,
            shared.keepalive,
            shared.stats,
            self._closed,
            max_unsent_bytes=shared.options.max_unsent_bytes,
        )

    def start(self, acknowledgement: bytes) -> None:
        self._stream.start(acknowledgement)
        self._shared.stats.messages_out += 1

    def tell(self, announcement: Announcement) -> None:
        if self._stream.is_behind:
            self._stream.drop("slow_reader")
        else:
            self._stream.write_frames(announcement.frame(self.subscription.id_json))

    def close(self) -> None:
        result = self._server.encode_modern(self.subscription.id, LISTEN, self.subscription.closing_result())
        self._stream.write(result)
        self._stream.close("shutdown")

    def _closed(self, reason: str) -> None:
        self._shared.load.in_flight -= 1
        self._listeners.discard(self)
