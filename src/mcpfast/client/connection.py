"""Raw messages of a channel, through a bounded queue: the :class:`~mcpfast.protocol.Connection` of clients."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from types import TracebackType

from ..errors import ProtocolError, TransportClosed
from ..http.client_interface import retrieve
from ..jsonrpc import ErrorResponse, Message, Notification, Request, RequestId, Response, encode_message
from .channel import Channel
from .keeper import Keeper

__all__ = ["MessageConnection"]

_MESSAGES = (Request, Notification, Response, ErrorResponse)

MAX_QUEUED = 100
"""Messages that wait for ``recv`` before no more is read from the server."""


class MessageConnection:
    """Messages of one channel. Made by a transport's ``connect()``.

    ``async for`` ends with a clean end of the stream, or our own close; after a fault it raises
    TransportClosed with its cause. Dropping the last reference closes it.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._keeper = Keeper(channel)
        self._inbox = _Inbox(channel, self._keeper)

    @classmethod
    async def open(cls, channel: Channel) -> MessageConnection:
        """Open the channel and return its connection. Raises what the channel's ``open`` does."""
        self = cls(channel)
        await channel.open(self._inbox)
        self._keeper.start()
        return self

    async def recv(self) -> Message:
        """Return the next message of the server, waiting for it.

        Raises:
            TransportClosed: the connection has ended, and what had arrived was read.
            ProtocolError: something came that is no message, or a request that was sent will have no answer: then
                ``id`` is the request's and the cause says why. The connection goes on with the next.
        """
        item = await self._inbox.get()
        if isinstance(item, ProtocolError):
            raise item
        return item

    async def send(self, message: Message | Sequence[Message]) -> None:
        """Send one message and wait until the server has taken it.

        On Streamable HTTP of 2025-03-26 it may be a list of messages, sent as a batch.

        Raises:
            TransportClosed: the connection has ended.
            ProtocolError: ``message`` cannot be JSON.
            AuthorizationRequired, HTTPStatusError: the server refused it.
            RPCError: the server refused it with a JSON-RPC error.
            ConnectionError: it may not have arrived.
            RequestTimeout: the server did not answer in time.
        """
        data = encode_message(message)
        if self._inbox.is_ended:
            raise self._inbox.closed_error()
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_sent(error: Exception | None) -> None:
            self._inbox.senders.discard(sent)
            if not sent.done():
                if error is None:
                    sent.set_result(None)
                else:
                    sent.set_exception(error)

        if not isinstance(message, _MESSAGES):
            post = self._channel.post_batch(data, on_sent, message)
        elif isinstance(message, Request):
            post = self._channel.post(
                data, on_sent, request_id=message.id, method=message.method, params=message.params
            )
        elif isinstance(message, Notification):
            post = self._channel.post(data, on_sent, urgent=True, method=message.method, params=message.params)
        else:
            post = self._channel.post(data, on_sent, urgent=True)
        self._inbox.senders.add(sent)
        try:
            await sent
        except asyncio.CancelledError:
            retrieve(sent)
            post.cancel()
            raise
        finally:
            self._inbox.senders.discard(sent)

    async def close(self) -> None:
        """End the connection and wake whoever waits in ``recv`` or ``send``. Repeatable, from any task."""
        self._inbox.close()
        await self._keeper.aclose()

    def __aiter__(self) -> MessageConnection:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.recv()
        except TransportClosed:
            if self._inbox.cause is None:
                raise StopAsyncIteration from None
            raise

    async def __aenter__(self) -> MessageConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        self._keeper.drop()


class _Inbox:
    """What has arrived and was not read; the channel's receiver."""

    def __init__(self, channel: Channel, keeper: Keeper) -> None:
        self._channel = channel
        self._keeper = keeper
        self._items: deque[Message | ProtocolError] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_paused = False
        self.senders: set[asyncio.Future[None]] = set()
        self.is_ended = False
        self.cause: Exception | None = None

    async def get(self) -> Message | ProtocolError:
        while not self._items:
            if self.is_ended:
                raise self.closed_error()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if retrieve(waiter):
                    self._wake_one()  # it was woken for an item another may have
                elif waiter in self._waiters:
                    self._waiters.remove(waiter)
                raise
        item = self._items.popleft()
        if self._items:
            self._wake_one()
        if self._is_paused and len(self._items) <= MAX_QUEUED // 2:
            self._is_paused = False
            self._channel.resume()
        return item

    def closed_error(self) -> TransportClosed:
        error = TransportClosed("connection is closed" if self.cause is None else f"connection ended: {self.cause}")
        error.__cause__ = self.cause
        return error

    def close(self) -> None:
        """Our own end: what was not read is gone."""
        self._items.clear()
        self._finish()

    def receive(self, message: Message) -> None:
        self._put(message)

    def receive_fault(self, error: ProtocolError) -> None:
        self._put(error)

    def receive_failure(self, request_id: RequestId, error: Exception) -> None:
        fault = ProtocolError(f"request {request_id!r} will have no answer: {error}", id=request_id)
        fault.__cause__ = error
        self._put(fault)

    def receive_end(self, cause: Exception | None) -> None:
        self.cause = cause
        self._finish()
        self._keeper.end()

    def _put(self, item: Message | ProtocolError) -> None:
        self._items.append(item)
        self._wake_one()
        if len(self._items) >= MAX_QUEUED and not self._is_paused:
            self._is_paused = True
            self._channel.pause()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _finish(self) -> None:
        self.is_ended = True
        while self._waiters:
            self._wake_one()
        for sent in self.senders:
            if not sent.done():
                sent.set_exception(self.closed_error())
        self.senders.clear()
