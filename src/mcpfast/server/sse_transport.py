"""``SSEServerTransport``: one HTTP+SSE session as a Connection, for those who want the messages themselves (A11)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING

from ..codec import encode_event
from ..errors import ProtocolError, TransportClosed
from ..http.deadlines import Deadlines
from ..http.interface import Request, Responder
from ..jsonrpc import ErrorResponse, Message, Notification, Response, encode_message
from ..protocol.refusal import Refusal
from ..protocol.sse_session import CANCELLED, FULL, WAIT, SSESession, Verdict, is_urgent
from .keepalive import KeepAlive
from .principal import Principal
from .sse_post import receive_post
from .stats import Stats
from .stream import EventStream

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["SSEConnection", "SSEServerTransport"]


class SSEConnection:
    """A session whose messages are read by :meth:`recv`, on parts that a handler shares between its sessions."""

    def __init__(
        self,
        endpoint: str,
        responder: Responder,
        machine: SSESession,
        keepalive: KeepAlive,
        stats: Stats,
        *,
        queue_timeout_s: float,
        max_body_bytes: int,
        max_unsent_bytes: int,
    ) -> None:
        self.endpoint = endpoint
        self.session_id: str | None = None
        """The session's id, where a handler gave it one."""
        self.principal: Principal | None = None
        """Who opened it, where a handler knows."""
        self.request: Request | None = None
        """The GET that opened it, where a handler opened it."""
        self.on_closed: Callable[[str], None] | None = None
        self._machine = machine
        self._stats = stats
        self._queue_timeout_s = queue_timeout_s
        self._max_body_bytes = max_body_bytes
        self._inbox: deque[Message] = deque()
        self._readers: deque[asyncio.Future[None]] = deque()  # recv() calls waiting for a message
        self._posts: deque[_WaitingPost] = deque()  # first come, first served
        self._stream = EventStream(responder, keepalive, stats, self._stream_closed, max_unsent_bytes=max_unsent_bytes)

    @property
    def is_closed(self) -> bool:
        """The session has ended."""
        return self._machine.is_closed

    @property
    def is_idle(self) -> bool:
        """No request of the client is unanswered."""
        return not self._machine.in_flight

    def begin_drain(self) -> None:
        """Take no more requests; the session goes on until it is closed."""
        self._machine.is_draining = True

    async def connect(self) -> Self:
        """Begin the stream and send the ``endpoint`` event (A8, H24-S-04). Returns itself: it is the connection."""
        self.open()
        return self

    def open(self) -> None:
        """Do what :meth:`connect` does, from code that is not async."""
        if self._machine.is_closed:
            raise TransportClosed("the session has ended")
        self._stream.start(encode_event(self.endpoint, event="endpoint"))

    async def recv(self) -> Message:
        """Return the client's next message.

        Raises:
            TransportClosed: the session was closed, or the client has left and what it had sent was read.
        """
        while not self._inbox:
            if self._machine.is_closed:
                raise TransportClosed("the session has ended")
            reader = asyncio.get_running_loop().create_future()
            self._readers.append(reader)
            try:
                await reader
            except BaseException:
                if reader.done() and not reader.cancelled():
                    self._wake_reader()  # the message that was ours is the next one's
                raise
        message = self._inbox.popleft()
        self._machine.taken()
        self._admit_waiting()
        return message

    async def send(self, message: Message) -> None:
        """Send one message as a ``message`` event (A12, H24-S-05), waiting while the client is too far behind.

        Raises:
            TransportClosed: the session has ended.
            ProtocolError: ``message`` cannot be JSON.
        """
        payload = encode_message(message)
        if self._machine.is_closed:
            raise TransportClosed("the session has ended")
        await self._stream.send(payload)
        if isinstance(message, (Response, ErrorResponse)):
            self._machine.answered(message.id)

    async def close(self) -> None:
        """End the session and its stream (A10). What was not read is dropped. Repeatable, from any task."""
        self.end("server_closed")

    def end(self, reason: str) -> None:
        """Do what :meth:`close` does; ``reason`` is counted."""
        self._inbox.clear()
        self._stream.close(reason)
        if not self._machine.is_closed:  # the stream had not begun
            self._stream_closed(reason)

    async def handle_post(self, request: Request, responder: Responder) -> None:
        """Take a POST that the caller found to be for this session, and answer it."""
        waiting = self.receive_post(request, responder)
        if waiting is not None:
            await waiting

    def receive_post(self, request: Request, responder: Responder) -> Awaitable[None] | None:
        """Do what :meth:`handle_post` does, without a task where nothing must be waited for."""
        return receive_post(self, request, responder, self._stats, self._max_body_bytes)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.recv()
        except TransportClosed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        if not self._stream.is_open:
            self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What a POST sees

    @property
    def accepts_batches(self) -> bool:
        """Never: only who reads the messages knows what revision they are of."""
        return False

    def admit(self, message: Message) -> Verdict:
        """Judge a message of a POST; if it is accepted, :meth:`run` follows."""
        is_full = len(self._posts) >= self._machine.max_queued
        if self._posts and not is_urgent(message):
            return FULL if is_full else WAIT  # behind those that came first
        verdict = self._machine.receive(message)
        return FULL if verdict is WAIT and is_full else verdict

    async def deliver_later(self, message: Message, request: Request) -> Refusal | None:
        """Wait until there is room and hand a message on (None), or tell why it was refused."""
        loop = asyncio.get_running_loop()
        waiting = _WaitingPost(message, request, loop.create_future())
        self._posts.append(waiting)
        deadline = Deadlines.for_loop(loop).after(self._queue_timeout_s, waiting.give_up)
        try:
            return await waiting.outcome
        finally:
            deadline.cancel()
            if waiting in self._posts:
                self._posts.remove(waiting)

    def _admit_waiting(self) -> None:
        """Take in what waits outside, as far as there is room; refuse all of it once the session has ended."""
        while self._posts:
            waiting = self._posts[0]
            if not waiting.outcome.done():
                verdict = self._machine.receive(waiting.message)
                if verdict is WAIT:
                    return
                if verdict is None:
                    self.run(waiting.message, waiting.request)
                assert verdict is None or isinstance(verdict, Refusal)
                waiting.outcome.set_result(verdict)
            self._posts.popleft()

    def run(self, message: Message, request: Request) -> None:
        """Hand an accepted message on to :meth:`recv`."""
        if type(message) is Notification and message.method == CANCELLED and type(message.params) is dict:
            id = message.params.get("requestId")
            if type(id) is str or type(id) is int:
                self._machine.answered(id)
        self._inbox.append(message)
        self._wake_reader()

    def run_batch(self, members: list[Message | ProtocolError], request: Request) -> None:
        """Never called: batches are not accepted."""
        raise AssertionError("batches are not accepted")

    def _wake_reader(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                return

    def _stream_closed(self, reason: str) -> None:
        self._machine.close()
        self._admit_waiting()
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)
        if self.on_closed is not None:
            self.on_closed(reason)


class _WaitingPost:
    """A POST that waits for room in the queue."""

    __slots__ = ("message", "outcome", "request")

    def __init__(self, message: Message, request: Request, outcome: asyncio.Future[Refusal | None]) -> None:
        self.message = message
        self.request = request
        self.outcome = outcome

    def give_up(self) -> None:
        if not self.outcome.done():
            self.outcome.set_result(FULL)


class SSEServerTransport(SSEConnection):
    """The server's end of one HTTP+SSE session, on an endpoint and a response that the caller owns.

    ::

        transport = SSEServerTransport("/messages?session=abc", responder)   # in the GET's handler
        async with transport as connection:                                  # sends the endpoint event
            async for message in connection: ...
        await transport.handle_post(request, responder)                      # in the POST's handler, once routed

    It is a :class:`~mcpfast.protocol.Connection`. Messages that arrive wait in a queue; while that is full a POST waits
    outside for ``queue_timeout_s`` and is then answered with 503, save answers, cancellations and pings. Who may open
    it or post to it (Origin, Host, authentication) is the caller's to check.

    Args:
        endpoint: the URI clients shall post to, as it is sent to them.
        responder: the answer to the GET; not started yet.
        max_queued_messages: messages that wait for :meth:`recv`, and POSTs that wait for room.
        queue_timeout_s: how long a POST waits for room, in seconds.
        max_in_flight: requests of the client that may be unanswered at one time.
        max_body_bytes: size of a POST's body.
        max_unsent_bytes: how far the reader may be behind before :meth:`send` waits.
        keepalive_s: how long the stream may be quiet before a comment is sent, in seconds; 0 for none.
    """

    def __init__(
        self,
        endpoint: str,
        responder: Responder,
        *,
        max_queued_messages: int = 100,
        queue_timeout_s: float = 10.0,
        max_in_flight: int = 1000,
        max_body_bytes: int = 4 << 20,
        max_unsent_bytes: int = 1 << 20,
        keepalive_s: float = 15.0,
    ) -> None:
        super().__init__(
            endpoint,
            responder,
            SSESession(max_queued=max_queued_messages, max_in_flight=max_in_flight),
            KeepAlive(keepalive_s, asyncio.get_running_loop()),
            Stats(),
            queue_timeout_s=queue_timeout_s,
            max_body_bytes=max_body_bytes,
            max_unsent_bytes=max_unsent_bytes,
        )
