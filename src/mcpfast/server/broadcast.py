"""One message to many streams, encoded once and kept once.

What is published goes into a short log, and every stream has a cursor into it: a reader that is behind costs no memory
of its own. At the end of the loop's turn one pass hands each stream all it has not had in one write, for a short time
per turn, so that ten thousand streams do not stop everything else.

A stream whose reader is more than ``max_unsent_bytes`` behind is passed over and looked at again every 50 ms. Once the
log no longer holds what it is owed it is dropped, reason ``slow_reader`` (C070); others do not notice. A caller that
publishes faster than the loop turns pays for the pass itself, so the log stays bounded and no good reader is dropped
for a burst.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from time import perf_counter
from typing import Protocol

from ..codec import encode_event
from ..http.deadlines import Deadline, Deadlines

__all__ = ["Broadcast", "Listener"]

_TURN_BUDGET_S = 0.002
_LOOK_AGAIN_S = 0.05


class Listener(Protocol):
    """A stream as :class:`Broadcast` sees it. It is hashed by identity."""

    cursor: int
    """Number of the first message it has not had."""
    is_open: bool

    @property
    def is_behind(self) -> bool:
        """Its reader is over the limit behind."""

    def write_frames(self, frames: bytes) -> None:
        """Send whole events."""

    def drop(self, reason: str) -> None:
        """Drop the connection."""


class Broadcast:
    """The listeners of one server on one loop.

    Args:
        max_messages: how many messages a reader that is behind may be owed before it is dropped.
        max_bytes: how many bytes; the last message is kept whatever its size.
    """

    __slots__ = (
        "__weakref__",
        "_bytes",
        "_bytes_during",
        "_first",
        "_handle",
        "_joined",
        "_laggards",
        "_log",
        "_loop",
        "_max_bytes",
        "_max_messages",
        "_new",
        "_new_bytes",
        "_pass",
        "_pass_head",
        "_streams",
        "_timer",
        "head",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, *, max_messages: int = 100, max_bytes: int = 1 << 20) -> None:
        self.head = 0
        """Number the next message will have."""
        self._loop = loop
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._streams: dict[Listener, None] = {}
        self._log: deque[bytes] = deque()
        self._bytes = 0  # held by the log
        self._first = 0  # number of the log's first message
        self._joined: dict[int, bytes] = {}  # by cursor: what a stream there is owed; good until the next message
        # From this number on messages have not been offered to all: never more than the log may hold.
        self._new = 0
        self._new_bytes = 0
        # The pass under way, or the next one's start.
        self._handle: asyncio.Handle | None = None
        self._pass: Iterator[Listener] = iter(())  # the streams it has yet to reach
        self._pass_head = 0  # `head` when it began
        self._bytes_during = 0  # published since
        self._laggards: set[Listener] = set()
        self._timer: Deadline | None = None  # runs while there are laggards

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: Listener) -> None:
        """Let ``stream`` hear what is published from now on."""
        stream.cursor = self.head
        self._streams[stream] = None

    def discard(self, stream: Listener) -> None:
        """Forget a stream, if it was added."""
        self._streams.pop(stream, None)
        self._laggards.discard(stream)
        if not self._streams:
            self._forget()

    def publish(self, payload: bytes) -> None:
        """Send a message to every stream. May be called from any thread.

        Args:
            payload: the message as JSON.
        """
        frame = encode_event(payload, event="message")
        if asyncio._get_running_loop() is self._loop:
            self._publish(frame)
        else:
            try:
                self._loop.call_soon_threadsafe(self._publish, frame)
            except RuntimeError:
                return  # the loop is closed: nobody listens

    def catch_up(self, stream: Listener) -> None:
        """Hand ``stream`` what it has not had; also to be called before it is sent something newer."""
        if stream.cursor == self.head or not stream.is_open:
            return
        if stream.cursor < self._first:
            stream.drop("slow_reader")
        elif stream.is_behind:
            self._laggards.add(stream)
            if self._timer is None:
                self._timer = Deadlines.for_loop(self._loop).after(_LOOK_AGAIN_S, self._look_again)
        else:
            frames = self._joined.get(stream.cursor)
            if frames is None:
                frames = self._joined[stream.cursor] = self._frames_since(stream.cursor)
            stream.cursor = self.head
            self._laggards.discard(stream)
            stream.write_frames(frames)

    def _publish(self, frame: bytes) -> None:
        if not self._streams:
            return
        size = len(frame)
        if self.head - self._new >= self._max_messages or 0 < self._new_bytes > self._max_bytes - size:
            self._finish_pass()
        self._log.append(frame)
        self.head += 1
        self._bytes += size
        self._new_bytes += size
        self._bytes_during += size
        self._joined.clear()
        if len(self._log) > self._max_messages or self._bytes > self._max_bytes:
            self._shorten()
        if self._handle is None:
            self._handle = self._loop.call_soon(self._begin_pass)

    def _shorten(self) -> None:
        """Drop the oldest messages, and the readers that are still owed one of them."""
        log = self._log
        while len(log) > self._max_messages or (self._bytes > self._max_bytes and len(log) > 1):
            self._bytes -= len(log.popleft())
            self._first += 1
        for stream in [s for s in self._laggards if s.cursor < self._first]:
            stream.drop("slow_reader")

    def _begin_pass(self) -> None:
        self._pass = iter(tuple(self._streams))
        self._pass_head = self.head
        self._bytes_during = 0
        self._go_on()

    def _go_on(self) -> None:
        stop_at = perf_counter() + _TURN_BUDGET_S
        for stream in self._pass:
            self.catch_up(stream)
            if perf_counter() > stop_at:
                self._handle = self._loop.call_soon(self._go_on)
                return
        self._handle = None
        self._new = self._pass_head
        self._new_bytes = self._bytes_during
        if self._new != self.head:
            self._handle = self._loop.call_soon(self._begin_pass)
        elif not self._laggards:
            self._forget()

    def _finish_pass(self) -> None:
        """Offer every message to every stream now, in the publisher's own time."""
        for stream in tuple(self._streams):
            self.catch_up(stream)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._new = self.head
        self._new_bytes = 0
        if not self._laggards:
            self._forget()

    def _forget(self) -> None:
        """Drop the log: every stream has had all of it."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._log.clear()
        self._joined.clear()
        self._bytes = self._new_bytes = 0
        self._first = self._new = self.head

    def _look_again(self) -> None:
        self._timer = None
        for stream in tuple(self._laggards):
            self.catch_up(stream)  # sets the timer again if it still is one
        if not self._laggards and self._handle is None:
            self._forget()

    def _frames_since(self, cursor: int) -> bytes:
        skip = cursor - self._first
        if skip == len(self._log) - 1:
            return self._log[-1]
        return b"".join(list(self._log)[skip:])
