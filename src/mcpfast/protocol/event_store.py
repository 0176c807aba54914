"""Where the events of resumable streams are kept, and the store that keeps them in memory.

A store holds messages by session, stream and sequence number; the event ids of the wire are made from the last two by
:mod:`.http_session`. It is asynchronous, so that a shared one can stand behind it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = ["EventStore", "MemoryEventStore", "StoredEvent"]


class StoredEvent(NamedTuple):
    """One event of a stream."""

    sequence: int
    """Its number in the stream: 1 for the first, growing."""
    message: bytes
    """The JSON-RPC message."""


@runtime_checkable
class EventStore(Protocol):
    """What the server asks of a store. One that raises makes the stream at hand one that cannot be resumed."""

    async def append(self, session_id: str, stream: int, sequence: int, message: bytes) -> None:
        """Keep an event. Those of one stream come one after the other, in order."""

    async def after(self, session_id: str, stream: int, sequence: int) -> list[StoredEvent] | None:
        """Return the events of a stream that follow ``sequence``, in order.

        None if some of them are gone, or the stream is not known: then nothing may be replayed, as the client would
        miss messages without knowing.
        """

    async def end_session(self, session_id: str) -> None:
        """Drop all events of a session. It may have none."""


class _Event:
    __slots__ = ("message", "sequence", "session_id", "stream")

    def __init__(self, session_id: str, stream: int, sequence: int, message: bytes) -> None:
        self.session_id = session_id
        self.stream = stream
        self.sequence = sequence
        self.message = message


class _Stream:
    __slots__ = ("dropped", "events")

    def __init__(self, dropped: int) -> None:
        self.events: deque[_Event] = deque()
        self.dropped = dropped  # sequence number of the last one that is gone


class _Session:
    __slots__ = ("bytes", "events", "streams")

    def __init__(self) -> None:
        self.bytes = 0
        self.events: OrderedDict[int, _Event] = OrderedDict()  # oldest first, by their number in the store
        self.streams: dict[int, _Stream] = {}


class MemoryEventStore:
    """Keeps events in this process; the oldest go first. It never waits. To be used from one event loop.

    Args:
        max_events: events kept for one session.
        max_bytes: bytes of messages kept for one session.
        max_total_bytes: bytes of messages kept for all sessions.
    """

    def __init__(self, *, max_events: int = 1000, max_bytes: int = 16 << 20, max_total_bytes: int = 256 << 20) -> None:
        for name, value in (("max_events", max_events), ("max_bytes", max_bytes), ("max_total_bytes", max_total_bytes)):
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be an int of at least 1, not {value!r}")
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._max_total_bytes = max_total_bytes
        self._sessions: dict[str, _Session] = {}
        self._events: OrderedDict[int, _Event] = OrderedDict()  # those of all sessions, oldest first
        self._last_number = 0
        self.bytes = 0
        """Bytes of messages held now."""

    def __len__(self) -> int:
        return len(self._events)

    def __repr__(self) -> str:
        return f"<MemoryEventStore {len(self._events)} events, {self.bytes} bytes, {len(self._sessions)} sessions>"

    async def append(self, session_id: str, stream: int, sequence: int, message: bytes) -> None:
        """See :meth:`EventStore.append`. A message larger than a session may hold drops all, itself included."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session()
        log = session.streams.get(stream)
        if log is None:
            # What this stream had before, if it had, is gone.
            log = session.streams[stream] = _Stream(sequence - 1)
        event = _Event(session_id, stream, sequence, message)
        self._last_number += 1
        number = self._last_number
        log.events.append(event)
        session.events[number] = self._events[number] = event
        session.bytes += len(message)
        self.bytes += len(message)
        while len(session.events) > self._max_events or session.bytes > self._max_bytes:
            self._drop(session, next(iter(session.events)))
        while self.bytes > self._max_total_bytes:
            number, event = next(iter(self._events.items()))
            self._drop(self._sessions[event.session_id], number)

    def _drop(self, session: _Session, number: int) -> None:
        event = session.events.pop(number)
        del self._events[number]
        session.bytes -= len(event.message)
        self.bytes -= len(event.message)
        log = session.streams[event.stream]
        log.events.popleft()
        log.dropped = event.sequence
        if not log.events:
            del session.streams[event.stream]
            if not session.streams:
                del self._sessions[event.session_id]

    async def after(self, session_id: str, stream: int, sequence: int) -> list[StoredEvent] | None:
        """See :meth:`EventStore.after`."""
        session = self._sessions.get(session_id)
        log = session.streams.get(stream) if session is not None else None
        if log is None or sequence < log.dropped or sequence > log.events[-1].sequence:
            return None
        return [StoredEvent(e.sequence, e.message) for e in log.events if e.sequence > sequence]

    async def end_session(self, session_id: str) -> None:
        """See :meth:`EventStore.end_session`."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            for number in session.events:
                del self._events[number]
            self.bytes -= session.bytes
