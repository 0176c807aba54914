"""``client.listen()``: a subscription of 2026-07-28 as an async iterator.

The stream of a ``subscriptions/listen`` request stays open and brings what was asked for. Streams of this revision are
not resumed; one that is lost is asked for again, and what happened in between is missed.

Source: MCP 2026-07-28, basic/patterns/subscriptions (M26-C-21, M26-C-22).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from types import TracebackType
from typing import Any

from ..errors import ProtocolError, RPCError, TransportClosed
from ..jsonrpc import UNSET, ErrorResponse, Message, Notification, RequestId, Response
from ..protocol.reconnection import DEFAULT_RETRY, Reconnection
from ..protocol.subscriptions import LISTEN, SUBSCRIPTION_KEY
from .channel import Post
from .resumable import may_pass
from .session import Session

__all__ = ["Listening"]

logger = logging.getLogger("mcpfast.client")

MAX_WAITING = 100
"""Notifications that wait to be taken before no more is read."""

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Listening:
    """An async iterator of notifications; see :meth:`Client.listen`. Begins with the first look at it.

    Dropping the last reference ends the subscription.
    """

    def __init__(self, session: Session, asked: dict[str, Any], *, reconnect: bool) -> None:
        self._subscription = _Subscription(session, asked, reconnect)
        self._loop = asyncio.get_running_loop()

    @property
    def granted(self) -> dict[str, Any] | None:
        """What the server agreed to send, None before it has said so."""
        return self._subscription.granted

    def __aiter__(self) -> Listening:
        return self

    async def __anext__(self) -> Notification:
        """Return the next notification.

        Raises:
            StopAsyncIteration: the server has ended the subscription, or we have.
            TransportClosed: the client was closed.
            RPCError, HTTPStatusError, AuthorizationRequired: the server refused it.
            ConnectionError, ProtocolError, EventTooLarge: the stream was lost and is not asked for again.
        """
        subscription = self._subscription
        if not subscription.has_begun:
            subscription.begin()
        while not subscription.waiting:
            if subscription.is_over:
                error, subscription.error = subscription.error, None
                if error is not None:
                    raise error
                raise StopAsyncIteration
            await subscription.until_changed()
        return subscription.take()

    async def aclose(self) -> None:
        """End the subscription. Repeatable."""
        self._subscription.close()

    async def __aenter__(self) -> Listening:
        if not self._subscription.has_begun:
            self._subscription.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not self._subscription.is_over and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._subscription.close)


class _Subscription:
    """The subscription, over all of its requests; the receiver of their streams."""

    def __init__(self, session: Session, asked: dict[str, Any], reconnect: bool) -> None:
        self._session = session
        self._asked = asked
        self._reconnect = reconnect
        self._reconnection = Reconnection(DEFAULT_RETRY, None)
        self._id = 0
        self._post: Post | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._changed: asyncio.Future[None] | None = None
        self._is_paused = False
        self.waiting: deque[Notification] = deque()
        self.granted: dict[str, Any] | None = None
        self.has_begun = False
        self.is_over = False
        self.error: Exception | None = None

    def begin(self) -> None:
        self.has_begun = True
        if not self.is_over:
            self._session.listeners.add(self)
            self._ask()

    def _ask(self) -> None:
        self._timer = None
        session = self._session
        self._is_paused = False
        try:
            if session.envelope is None:
                raise TransportClosed("client does not speak the revision of the subscription any more")
            self._id = session.next_id()
            params = {"notifications": self._asked}
            data = session.envelope.request(self._id, LISTEN, params)
            self._post = session.channel.post(
                data, self._sent, request_id=self._id, method=LISTEN, params=params, receiver=self, urgent=True
            )
        except Exception as error:  # closed, what cannot be JSON, or header_func's
            self._finish(error)

    def _sent(self, error: Exception | None) -> None:
        if error is not None:
            self._lost(error)

    def _lost(self, error: Exception) -> None:
        """The stream is gone, or was not to be had, without the server having ended the subscription."""
        was_open = self.granted is not None
        is_clean = isinstance(error, ProtocolError)
        if not (self._reconnect and was_open and (may_pass(error) or is_clean)):
            self._finish(error)
            return
        wait = self._reconnection.next_wait(is_clean, random.random())
        assert wait is not None
        logger.debug("subscription is asked for again in %.1f s: %s", wait, error)
        self._timer = asyncio.get_running_loop().call_later(wait, self._ask)

    # For the iterator

    def take(self) -> Notification:
        message = self.waiting.popleft()
        if self._is_paused and len(self.waiting) <= MAX_WAITING // 2 and self._post is not None:
            self._is_paused = False
            self._post.resume()
        return message

    async def until_changed(self) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def _change(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    # Receiver

    def receive(self, message: Message) -> None:
        self._reconnection.brought()
        if isinstance(message, Notification):
            self._notified(message)
        elif isinstance(message, Response):
            self._finish(None)
        elif isinstance(message, ErrorResponse):
            self._finish(RPCError(message.code, message.message, None if message.data is UNSET else message.data))
        else:
            logger.warning("server sent a request, which its revision has not: dropped")

    def _notified(self, message: Notification) -> None:
        params = message.params if isinstance(message.params, dict) else {}
        meta = params.get("_meta")
        its_id = meta.get(SUBSCRIPTION_KEY, UNSET) if isinstance(meta, dict) else UNSET
        if its_id is not UNSET and (type(its_id) is not int or its_id != self._id):
            logger.warning("notification of another subscription: dropped")
        elif message.method == _ACKNOWLEDGED:
            self._acknowledged(params.get("notifications"))
        else:
            self.waiting.append(message)
            if len(self.waiting) >= MAX_WAITING and not self._is_paused and self._post is not None:
                self._is_paused = True
                self._post.pause()
            self._change()

    def _acknowledged(self, granted: Any) -> None:
        self.granted = granted if isinstance(granted, dict) else {}
        refused = [kind for kind, value in self._asked.items() if value and not self.granted.get(kind)]
        if refused:
            logger.warning("server does not send %s, which was asked for", ", ".join(refused))

    def receive_fault(self, error: ProtocolError) -> None:
        logger.warning("server sent something that is no message: %s", error)

    def receive_failure(self, request_id: RequestId, error: Exception) -> None:
        self._lost(error)

    def receive_end(self, cause: Exception | None) -> None:
        error = TransportClosed("client is closed" if cause is None else f"connection ended: {cause}")
        error.__cause__ = cause
        self._finish(error)

    # The end

    def _finish(self, error: Exception | None) -> None:
        if not self.is_over:
            self.error = error
            self.close()

    def close(self) -> None:
        self.is_over = True
        self._session.listeners.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._post is not None:
            self._post.cancel()
            self._post = None
        self._change()
