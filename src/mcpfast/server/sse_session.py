"""One HTTP+SSE session served by a Server: what runs for it, and what it was asked.

A message goes from the POST straight to where it is dealt with: no queue, one task for a request that has a handler,
and none for anything else. The table of the session's machine holds the Context of each such request by its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..codec import encode_event
from ..errors import ProtocolError, TransportClosed
from ..http.interface import Request, Responder
from ..jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ErrorResponse,
    Message,
    Notification,
    Response,
    encode_error,
    is_request_id,
)
from ..jsonrpc import Request as RPCRequest
from ..protocol.refusal import Refusal
from ..protocol.revisions import REVISIONS
from ..protocol.sse_session import CANCELLED, FULL, PING, WAIT, SSESession, Verdict
from .application import encode_answer
from .context import Context, Peer
from .hosting import Hosted
from .pending import PendingRequests
from .running import begin, start, stop
from .shared import Shared
from .stream import EventStream

__all__ = ["SSEServerSession"]


class SSEServerSession:
    """The session. It is also the Channel of all its Contexts: everything goes on the one stream."""

    __slots__ = (
        "_hosted",
        "_loop",
        "_machine",
        "_on_closed",
        "_pending",
        "_server",
        "_shared",
        "_stream",
        "endpoint",
        "peer",
        "principal",
        "request",
    )

    def __init__(
        self,
        shared: Shared,
        hosted: Hosted,
        endpoint: str,
        request: Request,
        responder: Responder,
        peer: Peer,
        machine: SSESession,
        on_closed: Callable[[str, str], None],
    ) -> None:
        self.endpoint = endpoint
        self.request = request
        """The GET that opened it."""
        self.peer = peer
        self.principal = peer.principal
        """Who opened it."""
        self._shared = shared
        self._loop = shared.loop
        self._hosted = hosted
        self._server = hosted.server
        self._machine = machine
        self._on_closed = on_closed  # called with the session's id and the reason
        self._pending: PendingRequests | None = None
        self._stream = EventStream(
            responder,
            shared.keepalive,
            shared.stats,
            self._stream_closed,
            max_unsent_bytes=shared.options.max_unsent_bytes,
        )

    @property
    def is_idle(self) -> bool:
        """Nothing of it is running."""
        return not self._machine.in_flight

    def begin_drain(self) -> None:
        """Take no more requests; the session goes on until it is ended."""
        self._machine.is_draining = True

    def open(self) -> None:
        """Begin the stream with the ``endpoint`` event (A8, H24-S-04)."""
        self._stream.start(encode_event(self.endpoint, event="endpoint"))
        self._stream.listen(self._hosted.broadcast)

    def end(self, reason: str) -> None:
        """End the stream, and the session with it (A10). Repeatable."""
        self._stream.close(reason)

    # What a POST sees

    @property
    def accepts_batches(self) -> bool:
        revision = REVISIONS.get(self.peer.protocol_version or "")
        return revision is not None and revision.accepts_batches

    def admit(self, message: Message) -> Verdict:
        if type(message) is RPCRequest:
            limit = self._shared.options.max_in_flight_total
            if self._shared.load.in_flight >= limit and message.method != PING:
                text = f"server has {limit} requests in flight, the limit"
                return Refusal(503, "in_flight_total", text, id=message.id)
        elif (
            type(message) is Notification
            and len(self._machine.in_flight) >= self._machine.max_in_flight
            and message.method != CANCELLED
            and self._server.hears(message.method)
        ):
            return self._machine.too_many()  # its handler is work too
        verdict = self._machine.judge(message)
        return FULL if verdict is WAIT else verdict

    async def deliver_later(self, message: Message, request: Request) -> Refusal | None:
        raise AssertionError("a session without a queue lets nothing wait")

    def run(self, message: Message, request: Request) -> None:
        if type(message) is RPCRequest:
            payload = self._server.answer_now(message, self.peer)
            if payload is None:
                ctx = Context(self.peer, self, request, message.id, message.params, self._hosted.state)
                self._spawn(message.id, ctx, self._serve(message, ctx))
            elif not self._stream.is_behind:
                self._machine.answered(message.id)
                self._stream.write(payload)
            else:
                ctx = Context(self.peer, self)
                self._spawn(message.id, ctx, self._answer_later(message.id, ctx, payload))
        elif type(message) is Notification:
            if message.method == CANCELLED:
                self._cancel(message.params)
            if self._server.hears(message.method):
                self._notified(message, request)
        else:
            assert isinstance(message, (Response, ErrorResponse))
            if self._pending is not None:
                self._pending.settle(message)

    def run_batch(self, members: list[Message | ProtocolError], request: Request) -> None:
        for member in members:
            if isinstance(member, ProtocolError):
                self._write_soon(encode_error(member.id, member.code, str(member)))
                continue
            verdict = self.admit(member)
            if verdict is None:
                self.run(member, request)
            elif isinstance(verdict, Refusal):
                self._shared.stats.refuse(verdict.reason)
                if type(member) is RPCRequest:
                    code = INTERNAL_ERROR if verdict.status >= 500 else INVALID_REQUEST
                    self._write_soon(encode_error(member.id, code, verdict.message))

    # What runs

    def _spawn(self, key: Any, ctx: Context, work: Coroutine[Any, Any, None]) -> None:
        self._machine.in_flight[key] = ctx
        self._shared.load.in_flight += 1
        start(work, self._loop)

    async def _serve(self, message: RPCRequest, ctx: Context) -> None:
        in_flight = self._machine.in_flight
        id = message.id
        try:
            if not begin(ctx, self._loop):
                return
            try:
                outcome = await self._server.call(message, ctx)
            except asyncio.CancelledError:
                if ctx.is_cancelled:
                    return
                # The handler's own doing, such as awaiting something cancelled: the client is owed an answer.
                self._stream.write(encode_error(id, INTERNAL_ERROR, "internal error"))
                return
            ctx.is_done = True
            if not ctx.is_cancelled:
                payload = encode_answer(message, outcome)
                stream = self._stream
                if stream.is_behind:
                    await stream.send(payload)
                else:
                    stream.write(payload)
        except (asyncio.CancelledError, TransportClosed):
            return
        finally:
            self._shared.load.in_flight -= 1
            ctx.task = None
            if in_flight.get(id) is ctx:
                del in_flight[id]

    async def _answer_later(self, id: Any, ctx: Context, payload: bytes) -> None:
        try:
            if begin(ctx, self._loop):
                await self._stream.send(payload)
        except (asyncio.CancelledError, TransportClosed):
            return
        finally:
            self._shared.load.in_flight -= 1
            if self._machine.in_flight.get(id) is ctx:
                del self._machine.in_flight[id]

    def _write_soon(self, payload: bytes) -> None:
        """Send an answer that no request in flight stands for."""
        if not self._stream.is_behind:
            self._stream.write(payload)
        elif len(self._machine.in_flight) < 2 * self._machine.max_in_flight:
            key: Any = object()
            ctx = Context(self.peer, self)
            self._spawn(key, ctx, self._answer_later(key, ctx, payload))

    def _notified(self, message: Notification, request: Request) -> None:
        key: Any = object()
        ctx = Context(self.peer, self, request, None, message.params, self._hosted.state)
        self._spawn(key, ctx, self._serve_notification(key, message, ctx))

    async def _serve_notification(self, key: Any, message: Notification, ctx: Context) -> None:
        try:
            if begin(ctx, self._loop):
                await self._server.notified(message, ctx)
        except asyncio.CancelledError:
            return
        finally:
            self._shared.load.in_flight -= 1
            self._machine.in_flight.pop(key, None)

    def _cancel(self, params: Any) -> None:
        """Stop a request the client gave up; it gets no answer (L25-S-24). An id that is not in flight is ignored."""
        id = params.get("requestId") if type(params) is dict else None
        if not is_request_id(id):
            return
        ctx = self._machine.answered(id)
        if ctx is not None:
            stop(ctx)

    def _stream_closed(self, reason: str) -> None:
        self._machine.close()
        running = list(self._machine.in_flight.values())
        self._machine.in_flight.clear()
        for ctx in running:
            if ctx is not None:
                stop(ctx)
        if self._pending is not None:
            self._pending.fail(TransportClosed("the client has left"))
        assert self.peer.session_id is not None
        self._on_closed(self.peer.session_id, reason)

    # What a Context asks

    async def send(self, payload: bytes) -> None:
        await self._stream.send(payload)

    async def call(self, method: str, params: dict[str, Any] | None, timeout: float) -> Any:
        if self._machine.is_closed:
            raise TransportClosed("the client has left")
        if self._pending is None:
            self._pending = PendingRequests()
        return await self._pending.ask(method, params, timeout, self._stream.send, self._tell)

    def _tell(self, payload: bytes) -> None:
        if self._stream.is_open and not self._stream.is_behind:
            self._stream.write(payload)

    def close_stream(self, retry_ms: int | None) -> None:
        raise RuntimeError("a stream of HTTP+SSE cannot be taken up again, so close_stream() would end the session")
