"""Calls over a channel: who waits for which answer, and who answers the server.

An answer settles its call right in the callback that read it: no queue, no task between. What the server
asks for runs in tasks, a bounded number of them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ..errors import ProtocolError, RequestTimeout, RPCError, TransportClosed
from ..http.client_interface import retrieve
from ..http.client_request import HeadersInput, header_list
from ..http.deadlines import Deadline, Deadlines
from ..jsonrpc import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    UNSET,
    ErrorResponse,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
    is_request_id,
)
from ..protocol.envelope import Envelope
from .channel import Channel, Post, Receiver
from .handlers import HandlerQueue
from .keeper import Keeper

__all__ = ["NotificationHandler", "ProgressHandler", "RequestHandler", "Session"]

logger = logging.getLogger("mcpfast.client")

NotificationHandler: TypeAlias = "Callable[[Notification], Awaitable[None] | None]"
RequestHandler: TypeAlias = "Callable[[Request], Awaitable[Any] | Any]"
ProgressHandler: TypeAlias = "Callable[[float, float | None, str | None], Awaitable[None] | None]"

MAX_SERVER_REQUESTS = 100
"""Requests of the server that are worked on at a time; more are refused."""

MAX_ANSWERS = 100
"""Answers to the server on their way at a time; with more no more is read."""


class _Call:
    """A request of ours that waits for its answer."""

    __slots__ = ("future", "method", "on_progress", "post", "timeout", "timer")

    def __init__(self, method: str, timeout: float | None, on_progress: ProgressHandler | None) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.method = method
        self.timeout = timeout
        self.on_progress = on_progress
        self.post: Post | None = None
        self.timer: Deadline | None = None

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def sent(self, error: Exception | None) -> None:
        if error is not None:
            self.fail(error)

    def time_out(self) -> None:
        self.fail(
            RequestTimeout(f"request {self.method!r} was not answered within {self.timeout:g} s", seconds=self.timeout)
        )


class Session:
    """Everything of a client but its face; the channel's receiver.

    The face (``Client``) holds the session and not the other way round, so that dropping the client is
    noticed.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.keeper = Keeper(channel)
        self.on_notification: NotificationHandler | None = None
        self.on_request: RequestHandler | None = None
        self._deadlines = Deadlines.for_loop()
        self.now = self._deadlines.now
        """Returns seconds of the loop's clock."""
        self._calls: dict[RequestId, _Call] = {}
        self._last_id = 0
        self._answers: set[Post] = set()
        self._handlers: dict[RequestId, asyncio.Task[None]] = {}
        self._queue = HandlerQueue(self._flow)
        self._is_paused = False
        self._is_ended = False
        self._cause: Exception | None = None
        self._clean_end = "client is closed"  # what a call is told where there is no cause
        self.listeners: set[Receiver] = set()
        """Subscriptions, which are told of the end too."""
        self.envelope: Envelope | None = None
        """Set where each request says all about itself (2026-07-28)."""

    async def open(self) -> None:
        """Open the channel. Raises what its ``open`` does."""
        await self.channel.open(self)
        self.keeper.start()

    # Calls

    def next_id(self) -> int:
        """Return an id that no request of this session has had (M26-C-12)."""
        self._last_id += 1
        return self._last_id

    async def request(
        self,
        method: str,
        params: Any = None,
        *,
        timeout: float | None = 60.0,
        headers: HeadersInput | None = None,
        on_progress: ProgressHandler | None = None,
    ) -> Any:
        """Send a request and return its result; see :meth:`Client.request`."""
        if self._is_ended:
            raise self._closed_error()
        if timeout is not None and not timeout > 0:
            raise ValueError("timeout must be positive, or None for no limit")
        request_id = self.next_id()
        if self.envelope is not None:
            data = self.envelope.request(request_id, method, params, wants_progress=on_progress is not None)
        else:
            if on_progress is not None:
                params = _with_progress_token(params, request_id)
            data = encode_request(request_id, method, UNSET if params is None else params)
        extra = header_list(headers) if headers else ()
        call = _Call(method, timeout, on_progress)
        self._calls[request_id] = call
        future = call.future
        try:
            post = call.post = self.channel.post(
                data, call.sent, extra, request_id=request_id, method=method, params=params
            )
            if timeout is not None:
                call.timer = self._deadlines.after(timeout, call.time_out)
            if self._is_paused:
                self._flow()
            result = await future
        except (asyncio.CancelledError, RequestTimeout) as error:
            retrieve(future)
            if call.post is not None:
                call.post.abandon()
                if method != "initialize" and self.envelope is None:
                    self._send_cancelled(request_id, "timed out" if isinstance(error, RequestTimeout) else "cancelled")
            raise
        finally:
            self._calls.pop(request_id, None)
            if call.timer is not None:
                call.timer.cancel()
            if self._queue.is_full:
                self._flow()
        post.leave()
        return result

    async def notify(self, method: str, params: Any = None, *, headers: HeadersInput | None = None) -> None:
        """Send a notification and wait until the server has taken it; see :meth:`Client.notify`."""
        if self._is_ended:
            raise self._closed_error()
        data = encode_notification(method, UNSET if params is None else params)
        call = _Call(method, None, None)

        def sent(error: Exception | None) -> None:
            if error is not None:
                call.fail(error)
            elif not call.future.done():
                call.future.set_result(None)

        # In the table so that the session's end fails it; a key no answer can have.
        key: Any = call
        self._calls[key] = call
        try:
            call.post = self.channel.post(data, sent, header_list(headers), urgent=True, method=method, params=params)
            await call.future
        except asyncio.CancelledError:
            retrieve(call.future)
            if call.post is not None:
                call.post.cancel()
            raise
        finally:
            self._calls.pop(key, None)

    def _send_cancelled(self, request_id: RequestId, reason: str) -> None:
        """Tell the server that nobody waits any more. Its fate is of no interest."""
        if not self._is_ended:
            data = encode_notification("notifications/cancelled", {"requestId": request_id, "reason": reason})
            self._send_aside(data, "cancellation", "notifications/cancelled")

    def _send_aside(self, data: bytes, what: str, method: str | None = None) -> None:
        """Send a message nobody waits for."""
        post: Post | None = None

        def sent(error: Exception | None) -> None:
            if error is not None:
                logger.debug("%s could not be sent: %s", what, error)
            if post is not None:
                self._answers.discard(post)
                self._flow()

        try:
            post = self.channel.post(data, sent, urgent=True, method=method)
        except Exception as error:  # closed meanwhile, or header_func's
            logger.debug("%s could not be sent: %s", what, error)
            return
        self._answers.add(post)
        self._flow()

    # The channel's receiver

    def receive(self, message: Message) -> None:
        if isinstance(message, Response):
            call = self._calls.get(message.id)
            if call is None:
                self._unmatched(message.id)
            elif not call.future.done():
                call.future.set_result(message.result)
        elif isinstance(message, ErrorResponse):
            call = None if message.id is None else self._calls.get(message.id)
            if call is not None:
                call.fail(RPCError(message.code, message.message, None if message.data is UNSET else message.data))
            else:
                self._unmatched(message.id)
        elif isinstance(message, Notification):
            self._notified(message)
        else:
            self._requested(message)

    def receive_fault(self, error: ProtocolError) -> None:
        logger.warning("server sent something that is no message: %s", error)
        if is_request_id(error.id):
            call = self._calls.get(error.id)
            if call is not None:  # it was meant as the answer, so there will be no other
                call.fail(error)

    def receive_failure(self, request_id: RequestId, error: Exception) -> None:
        call = self._calls.get(request_id)
        if call is not None:
            call.fail(error)

    def receive_end(self, cause: Exception | None) -> None:
        if not self._is_ended:
            self._clean_end = "connection ended: the server closed it"
        self._finish(cause)
        self.keeper.end()

    def _unmatched(self, request_id: RequestId | None) -> None:
        """An answer to no call of ours. One whose id only differs in type answers none, but a call must not
        wait for ever for the right one (C054)."""
        if isinstance(request_id, str) and request_id.isascii() and request_id.isdecimal() and len(request_id) < 19:
            number = int(request_id)
            call = self._calls.get(number)
            if call is not None:
                call.fail(ProtocolError(f"answer has the id as a string, request {number} had a number"))
                return
        if type(request_id) is int and 0 < request_id <= self._last_id:
            logger.debug("answer to a call that is over, or a second one: dropped")
        else:
            logger.warning("answer to a request that was never made: dropped")

    def _notified(self, message: Notification) -> None:
        params = message.params
        if message.method == "notifications/progress" and isinstance(params, dict):
            token = params.get("progressToken")
            call = self._calls.get(token) if is_request_id(token) else None
            if call is not None and call.on_progress is not None:
                progress, total, text = params.get("progress"), params.get("total"), params.get("message")
                if isinstance(progress, (int, float)):
                    self._queue.call(call.on_progress, progress, total, text)
                return
        elif message.method == "notifications/cancelled" and isinstance(params, dict):
            asked = params.get("requestId")
            task = self._handlers.get(asked) if is_request_id(asked) else None
            if task is not None:
                task.cancel()
                return
        if self.on_notification is not None:
            self._queue.call(self.on_notification, message)

    def _requested(self, message: Request) -> None:
        if self.envelope is not None:
            # Nor could it be answered: a POST of this revision never holds a response (M26-C-05).
            logger.warning("server sent a request, which its revision has not: dropped")
        elif message.method == "ping":
            self._send_aside(encode_response(message.id, {}), "answer to a ping")
        elif self.on_request is None:
            text = f"method {message.method[:100]!r} is not supported by this client"
            self._send_aside(encode_error(message.id, METHOD_NOT_FOUND, text), "refusal")
        elif len(self._handlers) >= MAX_SERVER_REQUESTS or message.id in self._handlers:
            text = f"client works on {len(self._handlers)} requests already, or on one with this id"
            self._send_aside(encode_error(message.id, INTERNAL_ERROR, text), "refusal")
        else:
            task = asyncio.get_running_loop().create_task(self._answer(self.on_request, message))
            self._handlers[message.id] = task
            # Not at the end of _answer, which never runs if the server cancels before its first step.
            task.add_done_callback(lambda _: self._handlers.pop(message.id))

    async def _answer(self, handler: RequestHandler, message: Request) -> None:
        try:
            result = handler(message)
            if inspect.isawaitable(result):
                result = await result
            data = encode_response(message.id, result)
        except RPCError as error:
            data = encode_error(message.id, error.code, error.message, UNSET if error.data is None else error.data)
        except Exception:
            logger.exception("handler of the server's request %r failed", message.method[:100])
            data = encode_error(message.id, INTERNAL_ERROR, "client failed to handle the request")
        if not self._is_ended:
            self._send_aside(data, "answer")

    # Back-pressure

    def _flow(self) -> None:
        """Read on, or not.

        Not while answers pile up, which leave without our reading. Nor while the handlers of
        notifications are far behind, unless a call waits: its answer stands behind them in the stream,
        and one of these handlers may have made it.
        """
        must_pause = len(self._answers) >= MAX_ANSWERS or (self._queue.is_full and not self._calls)
        if must_pause != self._is_paused and not self._is_ended:
            self._is_paused = must_pause
            if must_pause:
                self.channel.pause()
            else:
                self.channel.resume()

    # The end

    def _closed_error(self) -> TransportClosed:
        error = TransportClosed(self._clean_end if self._cause is None else f"connection ended: {self._cause}")
        error.__cause__ = self._cause
        return error

    def _finish(self, cause: Exception | None) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        self._cause = cause
        for call in list(self._calls.values()):
            call.fail(self._closed_error())
        current = asyncio.current_task()  # a handler may close its own client
        for task in list(self._handlers.values()):
            if task is not current:
                task.cancel()
        self._queue.close()
        for listener in list(self.listeners):
            listener.receive_end(cause)

    def call_handler(self, handler: Callable[..., Any], *args: Any) -> None:
        """Call a handler of the application in its turn, after those of the notifications before."""
        self._queue.call(handler, *args)

    async def aclose(self) -> None:
        """Fail what waits, stop the handlers, close the channel. Repeatable, from any task."""
        self._finish(None)
        current = asyncio.current_task()
        tasks = {task for task in [*self._handlers.values(), *self._queue.tasks] if task is not current}
        await self.keeper.aclose()
        if tasks:
            await asyncio.wait(tasks)

    def drop(self) -> None:
        """The last reference to the client has gone."""
        self.keeper.drop()


def _with_progress_token(params: Any, token: RequestId) -> dict[str, Any]:
    """Return a copy of ``params`` that asks for progress."""
    if params is None:
        return {"_meta": {"progressToken": token}}
    if not isinstance(params, dict):
        raise ProtocolError("params must be an object to ask for progress")
    meta = params.get("_meta") or {}
    return {**params, "_meta": {**meta, "progressToken": token}}
