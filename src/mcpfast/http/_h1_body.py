"""A request body that was not whole when its handler was called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ._h1_chunked import ChunkedDecoder
from .interface import BodyTooLarge, ClientDisconnected

__all__ = ["IncomingBody"]


class IncomingBody:
    """Collects a body, by length or in chunks, for whoever waits in :meth:`receive`.

    A body over the limit is counted on but not kept, so that the answer to it can still be sent.
    """

    __slots__ = (
        "_ask",
        "_changed",
        "_decoder",
        "_length",
        "_max_bytes",
        "data",
        "is_complete",
        "is_lost",
        "must_be_asked_for",
        "received",
    )

    def __init__(self, length: int | None, max_bytes: int, ask: Callable[[], None] | None = None) -> None:
        """
        Args:
            length: the content-length, or None for a chunked body.
            ask: for a client that waits for 100 Continue: called when the body is first wanted.
        """
        self._length = length
        self._max_bytes = max_bytes
        self._decoder = ChunkedDecoder(max_bytes) if length is None else None
        self.data = bytearray() if self._decoder is None else self._decoder.body
        self._changed: asyncio.Event | None = None  # only for a body that is waited for
        self._ask = ask
        self.must_be_asked_for = ask is not None
        self.received = 0
        """Bytes of the body so far, kept or not; of a chunk whose size is known, all of them."""
        self.is_complete = False
        self.is_lost = False
        """It will never be complete: the client left, stalled, or broke the framing."""

    @property
    def is_too_large(self) -> bool:
        return max(self.received, self._length or 0) > self._max_bytes

    @property
    def missing(self) -> int | None:
        """Bytes still to come, or None if only the client knows."""
        return None if self._length is None else self._length - self.received

    def feed(self, data: bytes | bytearray, pos: int) -> int:
        """Take what belongs to the body from ``data`` at ``pos`` on; return where that ends.

        Raises:
            MalformedChunk: see :class:`ChunkedDecoder`.
        """
        if self._decoder is not None:
            pos = self._decoder.feed(data, pos)
            self.received = self._decoder.size
            self.is_complete = self._decoder.is_complete
        else:
            assert self._length is not None
            end = min(len(data), pos + self._length - self.received)
            if not self.is_too_large:
                self.data += data[pos:end]
            self.received += end - pos
            self.is_complete = self.received == self._length
            pos = end
        if self._changed is not None:
            self._changed.set()
        return pos

    def lose(self) -> None:
        """Tell whoever waits that the rest will not come."""
        if not self.is_complete:
            self.is_lost = True
            self.data.clear()
            if self._changed is not None:
                self._changed.set()

    async def receive(self, limit: int | None) -> bytes:
        """Return the whole body; see :meth:`mcpfast.http.interface.Request.body`."""
        most = self._max_bytes if limit is None else min(limit, self._max_bytes)
        while max(self.received, self._length or 0) <= most:
            if self.is_complete:
                return bytes(self.data)
            if self.is_lost:
                raise ClientDisconnected("the client left in the middle of its request's body")
            if self._changed is None:
                self._changed = asyncio.Event()
                if self._ask is not None:
                    self.must_be_asked_for = False
                    self._ask()
            self._changed.clear()
            await self._changed.wait()
        raise BodyTooLarge(most)
