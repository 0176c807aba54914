"""One session of Streamable HTTP served by a Server: what it is asked, and what runs for it.

A request that has a handler gets one task, which is the session's own and not its connection's, as a client that leaves
has not cancelled anything (L25-S-12). What is said goes through :mod:`.session_streams`.

A session without an id serves a single POST, for servers without sessions. Nobody can come back to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ..codec import encode_event
from ..errors import ProtocolError, TransportClosed
from ..http.deadlines import Deadline, Deadlines
from ..http.interface import Request, Responder
from ..jsonrpc import INTERNAL_ERROR, ErrorResponse, Message, Notification, Response, encode_error, is_request_id
from ..jsonrpc import Request as RPCRequest
from ..protocol.http_session import UNKNOWN_SESSION, HTTPSession, Stream
from ..protocol.refusal import Refusal
from ..protocol.sse_session import CANCELLED, PING
from .answer import Answer, Form
from .application import encode_answer
from .context import Context, Peer
from .gate import refuse
from .hosting import Hosted
from .pending import PendingRequests
from .running import begin, start, stop
from .session_streams import SessionStreams
from .shared import Shared

__all__ = ["StreamableSession"]

REQUEST_CANCELLED = -32800


class StreamableSession:
    """The session. It is the Channel of what its notifications' handlers say: that goes on the standing stream."""

    __slots__ = (
        "_deadline",
        "_hosted",
        "_notified_now",
        "_on_ended",
        "_pending",
        "_shared",
        "machine",
        "peer",
        "streams",
    )

    def __init__(
        self,
        shared: Shared,
        hosted: Hosted,
        peer: Peer,
        machine: HTTPSession,
        on_ended: Callable[[StreamableSession, str], None],
    ) -> None:
        self.machine = machine
        self.peer = peer
        self.streams = SessionStreams(shared, hosted, machine, peer.session_id)
        self._shared = shared
        self._hosted = hosted
        self._on_ended = on_ended
        self._pending: PendingRequests | None = None
        self._deadline: Deadline | None = None
        self._notified_now: dict[object, Context] = {}  # handlers of notifications that run

    # Its life

    def open(self) -> None:
        """Begin to live: hear what is published, and end when nobody comes any more."""
        self.streams.open()
        self._watch()

    @property
    def is_idle(self) -> bool:
        """Nothing of it is running."""
        return not self.machine.in_flight and not self._notified_now

    def _watch(self) -> None:
        left = self.machine.time_left(self._shared.loop.time())
        if left <= 0:
            self.end("idle" if self.machine.is_followed_up else "never_followed_up")
        else:
            self._deadline = Deadlines.for_loop(self._shared.loop).after(left, self._watch)

    def touch(self) -> None:
        """Note that the client came back."""
        self.machine.touch(self._shared.loop.time())

    def end(self, reason: str, refusal: Refusal = UNKNOWN_SESSION) -> None:
        """End the session: cancel what runs, close every stream (L25-S-11). Repeatable.

        Args:
            refusal: the answer to requests that are unanswered.
        """
        machine = self.machine
        if not machine.close():
            return
        if self._deadline is not None:
            self._deadline.cancel()
        for id, stream in list(machine.in_flight.items()):
            running: Running = stream.owed[id]
            stop(running.ctx)
            running.post.answer.break_off(encode_error(id, INTERNAL_ERROR, refusal.message), refusal.status)
        for ctx in list(self._notified_now.values()):
            stop(ctx)
        self.streams.close(reason)
        machine.in_flight.clear()
        if self._pending is not None:
            self._pending.fail(TransportClosed("the session has ended"))
        self._on_ended(self, reason)

    # What POST brings

    def receive(self, message: Message, form: Form, request: Request, responder: Responder) -> None:
        """Take a message and answer its POST, at once or when its handler has ended."""
        if type(message) is not RPCRequest:
            refusal = self._take(message, request)
            if refusal is None:
                responder.respond(202)
            else:
                refuse(refusal, responder, self._shared.stats)
            return
        payload = self._hosted.server.answer_now(message, self.peer)
        if payload is not None:
            Answer(self._shared, responder, form).respond(200, payload)
            return
        stream = self._open((message,))
        if isinstance(stream, Refusal):
            refuse(stream, responder, self._shared.stats)
            return
        post = Post(self, stream, Answer(self._shared, responder, form), None)
        self.streams.carry(stream, post.answer)
        self._start(message, post, request, None)

    def receive_batch(
        self, members: list[Message | ProtocolError], form: Form, request: Request, responder: Responder
    ) -> None:
        """Take a batch, all of its requests or none; their answers come on one stream or in one array (L03-S-02)."""
        requests = [member for member in members if type(member) is RPCRequest]
        errors = [encode_error(m.id, m.code, str(m)) for m in members if isinstance(m, ProtocolError)]
        stream = self._open(requests) if requests else None
        if isinstance(stream, Refusal):
            refuse(stream, responder, self._shared.stats)
            return
        for member in members:
            if type(member) is not RPCRequest and not isinstance(member, ProtocolError):
                # A notification there is no room for is lost: the rest of its batch is answered all the same.
                self._take(member, request)
        answer = Answer(self._shared, responder, form)
        if stream is None:
            if errors:
                answer.respond(200, b"[%b]" % b",".join(errors))
            else:
                responder.respond(202)
            return
        post = Post(self, stream, answer, None if answer.can_stream else errors)
        first = b"".join(encode_event(error, event="message") for error in errors)
        self.streams.carry(stream, answer, first, at_once=True)
        for message in requests:
            self._start(message, post, request, self._hosted.server.answer_now(message, self.peer))

    def _open(self, requests: list[RPCRequest] | tuple[RPCRequest, ...]) -> Stream | Refusal:
        limit = self._shared.options.max_in_flight_total
        if self._shared.load.in_flight + len(requests) > limit and requests[0].method != PING:
            text = f"server has {limit} requests in flight, the limit"
            return Refusal(503, "in_flight_total", text, id=requests[0].id)
        return self.machine.open(requests)

    def _take(self, message: Message, request: Request) -> Refusal | None:
        """Take a message that is owed no answer."""
        if type(message) is Notification:
            if message.method == CANCELLED:
                self._cancel(message.params)
            if self._hosted.server.hears(message.method):
                limit = self._shared.options.max_in_flight
                if len(self._notified_now) >= limit:
                    return Refusal(503, "in_flight", f"session has {limit} notifications in work, the limit")
                ctx = Context(self.peer, self, request, None, message.params, self._hosted.state)
                key = object()
                self._notified_now[key] = ctx
                self._run(self._serve_notification(key, message, ctx))
        elif self._pending is not None:
            assert isinstance(message, (Response, ErrorResponse))
            self._pending.settle(message)
        return None

    def end_if_served(self) -> None:
        """A session for one POST is over with the last of its work."""
        if self.peer.session_id is None and self.is_idle:
            self.end("served")

    # What runs

    def _start(self, message: RPCRequest, post: Post, request: Request, payload: bytes | None) -> None:
        """Run a request's handler, or deliver the answer that is known already."""
        ctx = Context(self.peer, post, request, message.id, message.params, self._hosted.state)
        post.stream.owed[message.id] = Running(ctx, post)
        self._run(self._serve(message, ctx, post, payload))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._shared.load.in_flight += 1
        start(work, self._shared.loop)

    async def _serve(self, message: RPCRequest, ctx: Context, post: Post, payload: bytes | None) -> None:
        try:
            if not begin(ctx, self._shared.loop):
                return
            if payload is None:
                try:
                    payload = encode_answer(message, await self._hosted.server.call(message, ctx))
                except asyncio.CancelledError:
                    if ctx.is_cancelled:
                        return
                    # The handler's own doing, such as awaiting something cancelled: the client is owed an answer.
                    payload = encode_error(message.id, INTERNAL_ERROR, "internal error")
            if not ctx.is_cancelled:
                ctx.is_done = True  # from here on a cancellation comes too late
                await self._answer(message, post, payload)
        finally:
            self._shared.load.in_flight -= 1
            ctx.task = None
            self.end_if_served()

    async def _answer(self, message: RPCRequest, post: Post, payload: bytes) -> None:
        """Give a request its answer, and end its stream if that was the last one (L25-S-09)."""
        stream, answer = post.stream, post.answer
        if answer.stream is None:
            if post.collected is not None:
                post.collected.append(payload)
        else:
            try:
                await self.streams.send(stream, payload)
            except TransportClosed:
                return  # the session has ended
        if self.machine.settle(message.id) is None:
            return
        self.touch()
        if not stream.is_done:
            return
        if answer.stream is None:
            answer.respond(200, payload if post.collected is None else b"[%b]" % b",".join(post.collected))
        elif stream.connection is not None:
            stream.connection.close("answered")

    def _cancel(self, params: Any) -> None:
        """Stop a request the client gave up; it gets no answer (L25-S-24). An id that is not in flight is ignored."""
        id = params.get("requestId") if type(params) is dict else None
        if not is_request_id(id):
            return
        stream = self.machine.in_flight.get(id)
        if stream is None:
            return
        running: Running = stream.owed[id]
        if running.ctx.is_done:
            return
        self.machine.settle(id)
        stop(running.ctx)
        if not stream.is_done:
            return
        post = running.post
        if post.collected:
            post.answer.respond(200, b"[%b]" % b",".join(post.collected))
        elif post.answer.stream is None:
            post.answer.give_up(encode_error(id, REQUEST_CANCELLED, "request was cancelled"))
        elif stream.connection is not None:
            stream.connection.close("cancelled")

    async def _serve_notification(self, key: object, message: Notification, ctx: Context) -> None:
        try:
            if begin(ctx, self._shared.loop):
                await self._hosted.server.notified(message, ctx)
        except asyncio.CancelledError:
            return
        finally:
            self._shared.load.in_flight -= 1
            self._notified_now.pop(key, None)
            self.end_if_served()

    # What a notification's Context asks, and, through Post, that of a request

    async def send(self, payload: bytes) -> None:
        if self.peer.session_id is None:
            raise TransportClosed("there is no session, and so no stream to send on")
        await self.streams.send(self.machine.standing, payload)

    async def call(self, method: str, params: dict[str, Any] | None, timeout: float) -> Any:
        return await self.call_on(self.machine.standing, method, params, timeout)

    async def call_on(self, stream: Stream, method: str, params: dict[str, Any] | None, timeout: float) -> Any:
        """Send the client a request on a stream and return its result."""
        if self.peer.session_id is None:
            raise RuntimeError("a stateless server cannot send requests: the client's answer would find nobody")
        if self.machine.is_closed:
            raise TransportClosed("the session has ended")
        if self._pending is None:
            self._pending = PendingRequests()

        async def send(payload: bytes) -> None:
            await self.streams.send(stream, payload)

        def tell(payload: bytes) -> None:
            if not self.machine.is_closed:
                target = self.machine.standing if stream.is_done else stream
                self._shared.in_background(self.streams.send(target, payload))

        return await self._pending.ask(method, params, timeout, send, tell)

    def close_stream(self, retry_ms: int | None) -> None:
        self.streams.close_connection(self.machine.standing, retry_ms)


class Post:
    """A POST with requests. It is the Channel of the Contexts of its requests.

    Attributes:
        stream: the stream in the session's machine.
        answer: the HTTP answer, which carries the stream as long as it is open.
        collected: answers of a batch whose client takes JSON only, until all are there; None otherwise.
    """

    __slots__ = ("_session", "answer", "collected", "stream")

    def __init__(
        self, session: StreamableSession, stream: Stream, answer: Answer, collected: list[bytes] | None
    ) -> None:
        self._session = session
        self.stream = stream
        self.answer = answer
        self.collected = collected

    async def send(self, payload: bytes) -> None:
        if self.stream.is_done:
            await self._session.send(payload)  # it belongs to no request any more
        elif self.answer.can_stream:
            await self._session.streams.send(self.stream, payload)

    async def call(self, method: str, params: dict[str, Any] | None, timeout: float) -> Any:
        if self.stream.is_done:
            return await self._session.call(method, params, timeout)
        if not self.answer.can_stream:
            raise RuntimeError("the answer is JSON, which has no room for requests to the client")
        return await self._session.call_on(self.stream, method, params, timeout)

    def close_stream(self, retry_ms: int | None) -> None:
        self._session.streams.close_connection(self.stream, retry_ms)


class Running(NamedTuple):
    """A request in flight: what the machine keeps for its id."""

    ctx: Context
    post: Post
