"""The streams of one session of Streamable HTTP: connections, replays and the store, as its machine says.

Where events are stored, a message is numbered, stored, and then sent if a connection is there that has all before it.
:mod:`mcpfast.protocol.http_session` explains why nothing is lost or sent twice while a replay runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from ..codec import encode_event
from ..errors import TransportClosed
from ..http.interface import Responder
from ..protocol.event_store import StoredEvent
from ..protocol.http_session import UNKNOWN_EVENT, UNKNOWN_SESSION, EventId, HTTPSession, Stream
from ..protocol.refusal import Refusal
from .answer import Answer
from .hosting import Hosted
from .shared import Shared
from .stream import EventStream

__all__ = ["SessionStreams"]

logger = logging.getLogger("mcpfast.server")


class SessionStreams:
    """All that a session sends. It is a Keeper: it takes what is published while no plain GET stream does.

    Args:
        session_id: the session's id; None for one that serves a single POST.
    """

    __slots__ = ("_hosted", "_outbox", "_pump", "_session_id", "_shared", "_store", "machine")

    def __init__(self, shared: Shared, hosted: Hosted, machine: HTTPSession, session_id: str | None) -> None:
        self.machine = machine
        self._shared = shared
        self._hosted = hosted
        self._session_id = session_id or ""
        self._store = shared.options.event_store
        self._outbox: deque[bytes] = deque()  # published, not stored yet
        self._pump: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Hear what is published from now on."""
        self._hosted.audience.keepers[self] = None
        standing = self.machine.standing
        standing.lock = asyncio.Lock() if standing.is_resumable else None

    def close(self, reason: str) -> None:
        """Close every connection, once the machine is closed; drop what is stored."""
        self._hosted.audience.keepers.pop(self, None)
        for stream in list(self.machine.streams.values()):
            if stream.connection is not None:
                stream.connection.close(reason)
        if self._pump is not None:
            self._pump.cancel()
        if self._store is not None and self._session_id:
            self._shared.in_background(self._store.end_session(self._session_id))

    # Sending

    async def send(self, stream: Stream, payload: bytes) -> None:
        """Send a message on a stream, waiting while its reader is too far behind.

        Nobody may be there: then it is stored or, for the standing stream, held, or else lost.

        Raises:
            TransportClosed: the session has ended.
        """
        if self.machine.is_closed:
            raise TransportClosed("the session has ended")
        connection = stream.connection
        if not stream.is_resumable:
            if connection is not None:
                try:
                    await connection.send(payload)
                    return
                except TransportClosed:
                    pass
            if stream.number == 0:
                self.machine.hold(encode_event(payload, event="message"))
            return
        if connection is not None and connection.is_behind:
            try:
                await connection.drain()
            except TransportClosed:
                pass  # it is stored, the client comes back for it
        async with stream.lock:
            await self._store_and_send(stream, payload)

    async def _store_and_send(self, stream: Stream, payload: bytes) -> None:
        assert self._store is not None
        sequence = stream.number_next()
        try:
            await self._store.append(self._session_id, stream.number, sequence, payload)
        except Exception:
            logger.exception("an event could not be stored: its stream cannot be resumed any more")
            stream.is_resumable = False
        event_id = self.machine.event_id(stream, sequence)
        if stream.store_done(sequence):
            stream.connection.write(payload, event_id)
        elif stream.number == 0 and stream.connection is None:
            self.machine.hold(encode_event(payload, event="message", id=event_id))

    def keep(self, payload: bytes, frame: bytes) -> None:
        """Take what the server publishes: see :class:`~mcpfast.server.audience.Keeper`."""
        if not self.machine.standing.is_resumable:
            self.machine.hold(frame)
            return
        self._outbox.append(payload)
        if len(self._outbox) > self._shared.options.max_backlog_messages:
            self._outbox.popleft()  # the store is slower than what is published
            self.machine.lost += 1
        if self._pump is None:
            self._pump = self._shared.loop.create_task(self._send_published())

    async def _send_published(self) -> None:
        try:
            while self._outbox:
                await self.send(self.machine.standing, self._outbox.popleft())
        except TransportClosed:
            return  # the session has ended
        finally:
            self._pump = None

    # Connections

    def carry(self, stream: Stream, answer: Answer, first: bytes = b"", *, at_once: bool = False) -> None:
        """Let the answer to a POST carry its stream.

        It begins at once, with an id, if the client can resume it from its beginning.

        Args:
            first: whole events to begin with.
            at_once: begin in any case, where the answer may be a stream.
        """

        def closed(reason: str) -> None:
            stream.detach(answer)

        answer.on_closed = closed
        self.machine.attach(stream, answer)
        if stream.is_resumable:
            stream.lock = asyncio.Lock()
            if self.machine.revision.primes_streams:
                first = self._priming_event(stream) + first
                at_once = True
        if at_once and answer.can_stream:
            answer.begin(first)
        else:
            answer.wait()

    def _priming_event(self, stream: Stream) -> bytes:
        """Return the event that gives a client an id before anything was said (L25-S-06)."""
        return encode_event("", id=self.machine.event_id(stream, stream.stored), retry=self._shared.options.retry_ms)

    def listen(self, responder: Responder) -> Refusal | None:
        """Begin the standing stream with what was held for it (L25-S-13, L25-S-14); a second one is refused."""
        machine = self.machine
        standing = machine.standing
        refusal = machine.open_standing()
        if refusal is not None or responder.is_disconnected:
            return refusal
        connection = self._connection(standing, responder)
        machine.attach(standing, connection)
        first = machine.take_backlog()
        if not first and standing.is_resumable and machine.revision.primes_streams:
            first = self._priming_event(standing)
        connection.start(first)
        if not standing.is_resumable:
            self._hosted.audience.keepers.pop(self, None)
            connection.listen(self._hosted.broadcast)
        return None

    async def resume(self, place: EventId, responder: Responder) -> Refusal | None:
        """Take a stream up again after the event at ``place``, whatever connection carries it now (L25-S-17)."""
        machine = self.machine
        stream = machine.streams.get(place.stream)
        events: list[StoredEvent] | None = []
        if stream is None or place.sequence < stream.stored:
            events = await self._after(place.stream, place.sequence)
        if machine.is_closed:
            return UNKNOWN_SESSION
        if events is None:
            return UNKNOWN_EVENT
        if responder.is_disconnected:
            return None
        if stream is None:
            stream = Stream(place.stream, is_resumable=True)  # it has ended: there is the replay and nothing else
        connection = self._connection(stream, responder)
        before = stream.claim(connection)
        if before is not None:
            before.close("taken_over")
        if stream.number == 0:
            machine.take_backlog()  # all of it is in the store
        retry_ms = self._shared.options.retry_ms
        connection.start(b"" if retry_ms is None else encode_event(retry=retry_ms))
        try:
            await self._replay(stream, connection, place, events)
        except TransportClosed:
            return None
        if stream.is_done:
            connection.close("answered")
        return None

    async def _replay(
        self, stream: Stream, connection: EventStream, place: EventId, events: list[StoredEvent] | None
    ) -> None:
        """Send ``events`` and all that was stored meanwhile, until the connection is live."""
        position = place.sequence
        while True:
            for event in events or ():
                await connection.send(event.message, str(place._replace(sequence=event.sequence)))
                position = event.sequence
            if stream.try_attach(connection, position):
                return
            events = await self._after(stream.number, position)
            if not events:
                connection.close("events_lost")  # the client comes back, and is told

    async def _after(self, stream: int, sequence: int) -> list[StoredEvent] | None:
        assert self._store is not None
        try:
            return await self._store.after(self._session_id, stream, sequence)
        except Exception:
            logger.exception("stored events could not be read")
            return None

    def _connection(self, stream: Stream, responder: Responder) -> EventStream:
        """Return a GET connection for a stream, not begun yet."""

        def closed(reason: str) -> None:
            self.machine.disconnected(self._shared.loop.time())
            if stream.detach(connection) and stream.number == 0 and not self.machine.is_closed:
                self._hosted.audience.keepers[self] = None

        connection = EventStream(
            responder,
            self._shared.keepalive,
            self._shared.stats,
            closed,
            max_unsent_bytes=self._shared.options.max_unsent_bytes,
        )
        self.machine.connected()
        return connection

    def close_connection(self, stream: Stream, retry_ms: int | None) -> None:
        """End the connection of a stream that the client can take up again (L25-S-07, L25-S-08).

        Raises:
            RuntimeError: it could not.
        """
        if not (stream.is_resumable and self.machine.revision.primes_streams):
            raise RuntimeError("close_stream() needs an event_store and a client of 2025-11-25, or the stream is lost")
        if stream.connection is not None and stream.is_live:
            default = self._shared.options.retry_ms
            stream.connection.close_for_polling(default if retry_ms is None else retry_ms)
