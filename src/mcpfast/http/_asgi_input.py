"""What an ASGI server has to say of one request: its body, and that the client has left.

``receive`` has one caller at any time: whoever reads the body, or else the task that watches for the
client to leave, which takes in what is left of the body as well.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from ._long_waits import MOMENT_S
from .interface import BodyTooLarge, ClientDisconnected
from .limits import MIN_BODY_BYTES_PER_S

if TYPE_CHECKING:
    from ._asgi_exchange import ASGIExchange
    from .deadlines import Deadline

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
    _reader: asyncio.Task[Any] | None = None  # it is in receive()
    _started = 0.0  # when it began to read
    _limit: Deadline | None = None  # on the wait for the next piece
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

    async def read(self, limit: int | None, task: asyncio.Task[Any] | None = None) -> bytes:
        """Return the whole body; see :meth:`mcpfast.http.interface.Request.body`.

        Args:
            task: the current one, by whom it is known.
        """
        exchange = self._exchange
        limits = exchange.limits
        most = limits.max_body_bytes if limit is None else min(limit, limits.max_body_bytes)
        started = exchange.deadlines.now()
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
            if self._received and self._time_left(started) <= 0:
                exchange.refuse_late_body()
                continue
            message = await self._receive_in_time(started, task)
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

    async def _receive_in_time(self, started: float, task: asyncio.Task[Any] | None) -> MutableMapping[str, Any] | None:
        """Receive in the current task; if nothing comes in time, refuse the request and return None."""
        self._is_reading = True
        self._started = started
        self._reader = task or asyncio.current_task()
        wait = self._wait_long
        waits = self._exchange.long_waits.begin(wait)
        try:
            return await self._receive()
        except asyncio.CancelledError:
            if not self._is_late or self._reader is None:
                raise
            if sys.version_info >= (3, 11):
                self._reader.uncancel()
            self._exchange.refuse_late_body()
            return None
        finally:
            waits.discard(wait)
            if self._limit is not None:
                self._limit.cancel()
                self._limit = None
            self._reader = None
            self._is_reading = False
            self.wake()
            if self._is_watch_wanted:
                asyncio.get_running_loop().call_soon(self._watch_if_unread)

    def _wait_long(self) -> None:
        """The next piece of the body is not here at once: limit the time for it."""
        seconds = min(self._time_left(self._started), self._exchange.limits.body_timeout_s - MOMENT_S)
        self._limit = self._exchange.deadlines.after(max(seconds, 0.0), self._be_late)

    def _time_left(self, started: float) -> float:
        """Seconds until the body is too slow: a trickle must not hold a connection for days."""
        slowest = started + self._exchange.limits.body_timeout_s + self._received / MIN_BODY_BYTES_PER_S
        return slowest - self._exchange.deadlines.now()

    def _be_late(self) -> None:
        self._is_late = True
        if self._reader is not None:
            self._reader.cancel()

    def _watch_if_unread(self) -> None:
        """The reader had its turn to go on reading; if it did not, watching begins."""
        if not self._is_reading:
            self.watch()
