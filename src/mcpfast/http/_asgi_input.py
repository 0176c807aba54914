"""What an ASGI server has to say of one request: its body, and that the client has left.

``receive`` has one caller at any time: whoever reads the body, or else the task that watches for the
client to leave, which takes in what is left of the body as well.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from .interface import BodyTooLarge, ClientDisconnected
from .limits import MIN_BODY_BYTES_PER_S

if TYPE_CHECKING:
    from ._asgi_exchange import ASGIExchange

__all__ = ["ASGIInput"]


class ASGIInput:
    """Reads for one :class:`ASGIExchange`, and tells it when its client has left."""

    # Class attributes are defaults: most requests need but two of these.
    _task: asyncio.Task[None] | None = None  # that watches
    _is_watch_wanted = False
    _is_reading = False
    _changed: asyncio.Event | None = None  # news for who reads while the task has receive()
    _received = 0
    _body: bytearray | None = None
    _is_late = False

    def __init__(
        self,
        exchange: ASGIExchange,
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        length: int,
        has_body: bool,
    ) -> None:
        """
        Args:
            length: the body's, as announced; 0 if it was not.
            has_body: there is a body to be read.
        """
        self._exchange = exchange
        self._receive = receive
        self._length = length
        self._is_complete = not has_body

    async def read(self, limit: int | None) -> bytes:
        """Return the whole body; see :meth:`mcpfast.http.interface.Request.body`."""
        exchange = self._exchange
        limits = exchange.limits
        most = limits.max_body_bytes if limit is None else min(limit, limits.max_body_bytes)
        now = exchange.deadlines.now
        # Time for what has come, as on the native server: a trickle must not hold a connection for days.
        slowest = now() + limits.body_timeout_s
        while self._received <= most and self._length <= most:
            if self._is_complete:
                return bytes(self._body or b"")
            if exchange.is_disconnected:
                raise ClientDisconnected("the client left in the middle of its request's body")
            if self._task is not None or self._is_reading:
                if self._changed is None:
                    self._changed = asyncio.Event()
                self._changed.clear()
                await self._changed.wait()
                continue
            left = slowest + self._received / MIN_BODY_BYTES_PER_S - now()
            message = await self._receive_within(min(left, limits.body_timeout_s))
            if message is not None:
                if self._body is None and message["type"] == "http.request" and not message.get("more_body"):
                    # All in one message, as nearly always: it need not be copied.
                    self._is_complete = True
                    body = bytes(message.get("body", b""))
                    self._body = bytearray()
                    self._received = len(body)
                    exchange.count_received(len(body))
                    if len(body) <= most:
                        return body
                    break
                self._take(message)
        raise BodyTooLarge(most)

    def watch(self) -> None:
        """See the client leave, from when nobody waits for its body."""
        self._is_watch_wanted = True
        if self._task is None and not self._is_reading and not self._exchange.is_ended:
            self._task = asyncio.get_running_loop().create_task(self._receive_all())

    def stop(self) -> asyncio.Task[None] | None:
        """Let go of the task that watches, and return it: it is to be cancelled."""
        task, self._task = self._task, None  # its traceback will hold this object
        return task

    def wake(self) -> None:
        """Let who waits for the body look again."""
        if self._changed is not None:
            self._changed.set()

    async def _receive_all(self) -> None:
        try:
            while not self._take(await self._receive()):
                pass
        except OSError:
            self._exchange.disconnect("client")

    def _take(self, message: MutableMapping[str, Any]) -> bool:
        """Take in one message; True if the client has left."""
        if message["type"] == "http.disconnect":
            self._exchange.disconnect("client")
            return True
        data = message.get("body", b"")
        self._received += len(data)
        self._exchange.count_received(len(data))
        if self._body is None:
            self._body = bytearray()
        if self._received <= self._exchange.limits.max_body_bytes:
            self._body += data
        else:
            self._body.clear()
        self._is_complete = not message.get("more_body", False)
        self.wake()
        return False

    async def _receive_within(self, seconds: float) -> MutableMapping[str, Any] | None:
        """Receive in the current task; if nothing comes in time, refuse the request and return None."""
        task = asyncio.current_task()
        assert task is not None
        deadline = self._exchange.deadlines.after(seconds, self._be_late)
        self._is_reading = True
        self._reader = task
        try:
            return await self._receive()
        except asyncio.CancelledError:
            if not self._is_late:
                raise
            if sys.version_info >= (3, 11):
                task.uncancel()
            self._exchange.refuse_late_body()
            return None
        finally:
            deadline.cancel()
            self._is_reading = False
            self.wake()
            if self._is_watch_wanted:
                asyncio.get_running_loop().call_soon(self._watch_if_unread)

    def _be_late(self) -> None:
        self._is_late = True
        self._reader.cancel()

    def _watch_if_unread(self) -> None:
        """The reader had its turn to go on reading; if it did not, watching begins."""
        if not self._is_reading:
            self.watch()
