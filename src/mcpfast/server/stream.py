"""One event stream to one client: framing, coalescing, back-pressure, keep-alive, its place among the listeners.

It owns the only buffer between a session and its shell: what was written in this turn of the loop, up to 64 KiB, which
goes to the shell in one piece at the turn's end. What the shell could not send yet is the shell's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..codec import EventWriter, encode_comment, encode_event
from ..errors import TransportClosed
from ..http.interface import HeaderList, Responder
from .broadcast import Broadcast
from .keepalive import KeepAlive
from .stats import Stats

__all__ = ["STREAM_HEADERS", "EventStream"]

STREAM_HEADERS: HeaderList = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
"""No proxy may keep, change or gather what is sent (A8, M26-S-16)."""

_FLUSH_BYTES = 64 << 10
_KEEP_ALIVE = encode_comment("keep-alive") + b"\n"


class EventStream:
    """A stream that has begun. Messages of many tasks never interleave (A12), and no lock is held over a slow peer.

    Args:
        responder: the answer it is; not started yet.
        max_unsent_bytes: how far the reader may be behind before :meth:`send` waits.
        on_closed: called once, with the reason, however the stream ends.
    """

    __slots__ = (
        "_broadcast",
        "_keepalive",
        "_max_unsent_bytes",
        "_on_closed",
        "_responder",
        "_stats",
        "_writer",
        "cursor",
        "is_open",
        "last_step",
    )

    def __init__(
        self,
        responder: Responder,
        keepalive: KeepAlive,
        stats: Stats,
        on_closed: Callable[[str], None],
        *,
        max_unsent_bytes: int = 1 << 20,
    ) -> None:
        self._responder = responder
        self._keepalive = keepalive
        self._stats = stats
        self._on_closed = on_closed
        self._max_unsent_bytes = max_unsent_bytes
        self._writer: EventWriter | None = None  # most streams of a large server are idle and need none
        self._broadcast: Broadcast | None = None
        self.cursor = 0
        self.last_step = 0
        self.is_open = False

    def start(self, first: bytes = b"", headers: HeaderList = ()) -> None:
        """Begin the answer with the encoded events ``first``."""
        responder = self._responder
        responder.start(200, (*STREAM_HEADERS, *headers))
        if first:
            responder.write(first)
        self.is_open = True
        self._stats.streams += 1
        self._keepalive.add(self)
        responder.on_disconnect(self._left)

    def listen(self, broadcast: Broadcast) -> None:
        """Hear what is published from now on."""
        if self.is_open:
            self._broadcast = broadcast
            broadcast.add(self)

    @property
    def is_behind(self) -> bool:
        """The reader is over the limit behind: what is not urgent should wait."""
        return self._responder.unsent_bytes > self._max_unsent_bytes

    def write(self, payload: bytes, event_id: str | None = None) -> None:
        """Send one JSON-RPC message without waiting. Nothing happens on a closed stream."""
        if not self.is_open:
            return
        broadcast = self._broadcast
        if broadcast is not None and broadcast.head != self.cursor:
            broadcast.catch_up(self)
        writer = self._writer
        if writer is None:
            call_soon = asyncio.get_running_loop().call_soon
            flush_bytes = min(_FLUSH_BYTES, self._max_unsent_bytes)
            writer = self._writer = EventWriter(self._responder.write, flush_bytes=flush_bytes, call_soon=call_soon)
        writer.send(payload, event="message", id=event_id)  # if catching up dropped the stream, into the void
        self.last_step = self._keepalive.step
        self._stats.messages_out += 1

    async def send(self, payload: bytes, event_id: str | None = None) -> None:
        """Send one JSON-RPC message, waiting while the reader is too far behind.

        Raises:
            TransportClosed: the stream has ended, or does while we wait.
        """
        if self.is_behind:
            await self._responder.drain()
            if self.is_open:
                self.write(payload, event_id)
                # Others wait for the same reader: they must see what this one added.
                assert self._writer is not None
                self._writer.flush()
        else:
            self.write(payload, event_id)
        if not self.is_open:
            raise TransportClosed("the client's stream has ended")

    def write_frames(self, frames: bytes) -> None:
        """Send whole encoded events without waiting: what is published."""
        writer = self._writer
        if writer is not None and writer.buffered:
            writer.send_encoded(frames)
        else:
            self._responder.write(frames)
        self.last_step = self._keepalive.step
        self._stats.messages_out += 1

    def keep_alive(self) -> None:
        """Write a comment. A reader that is behind needs none, its connection is busy."""
        responder = self._responder
        if not responder.unsent_bytes:
            responder.write(_KEEP_ALIVE)

    async def drain(self) -> None:
        """Wait until the reader is less than the limit behind; raises TransportClosed if the client leaves."""
        await self._responder.drain()

    def close_for_polling(self, retry_ms: int | None) -> None:
        """End the connection, though its stream goes on; the client comes back after ``retry_ms`` (L25-S-08)."""
        if retry_ms is not None:
            self.write_frames(encode_event(retry=retry_ms))
        self.close("polling")

    def close(self, reason: str) -> None:
        """End the answer properly, after what was published before. Repeatable."""
        if self.is_open and self._broadcast is not None:
            self._broadcast.catch_up(self)
        if self.is_open:
            self._closed()
            if self._writer is not None:
                self._writer.close()
            self._responder.end()
            self._tell(reason)

    def drop(self, reason: str) -> None:
        """Drop the connection; what was not sent yet is lost. Repeatable."""
        if self.is_open:
            self._closed()
            self._responder.abort(reason)
            self._tell(reason)

    def _left(self) -> None:
        if self.is_open:
            self._closed()
            self._tell("client_left")

    def _closed(self) -> None:
        self.is_open = False
        self._stats.streams -= 1
        self._keepalive.discard(self)
        if self._broadcast is not None:
            self._broadcast.discard(self)

    def _tell(self, reason: str) -> None:
        on_closed, self._on_closed = self._on_closed, _told  # breaks the cycle with the session
        on_closed(reason)


def _told(reason: str) -> None:
    raise AssertionError(f"a stream closed twice, then for {reason}")
