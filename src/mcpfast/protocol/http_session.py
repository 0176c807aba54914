"""The machine of one session of Streamable HTTP (2025-03-26 to 2025-11-25): requests, streams, event ids, its end.

A session has streams: stream 0 is the standing one, which GET opens; every POST with requests opens another, which ends
once all of them are answered. A stream is not a connection. It is carried by one connection at a time or by none, and
where events are stored a client takes it up again with the id of the last event it has.

Every event of a stream has a sequence number, 1 for the first. Number 0 is the empty event that begins a stream from
2025-11-25 on. Sending an event goes in two steps, as storing it may take time: :meth:`Stream.number_next` before, and
:meth:`Stream.store_done` after it was stored, which says whether the connection is owed the event now. A replay that
runs meanwhile ends with :meth:`Stream.try_attach`, which succeeds when the replay has reached the last event stored.
Together they make sure that each event reaches a connection once, in order and without a gap, in whatever order the
replay and the new events come: that is the invariant the tests drive at random.

Source: MCP 2025-11-25, basic/transports §Sending Messages, §Listening, §Resumability, §Session Management.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..jsonrpc import Request, RequestId
from .refusal import Refusal
from .revisions import HTTP_SSE, REVISIONS, Revision
from .sse_session import PING

__all__ = ["NO_SESSION_ID", "UNKNOWN_EVENT", "UNKNOWN_SESSION", "EventId", "HTTPSession", "Stream", "wire_revision"]

UNKNOWN_SESSION = Refusal(
    404, "unknown_session", "unknown session: it has ended, or it lives in another process; initialize again"
)
NO_SESSION_ID = Refusal(400, "no_session_id", "Mcp-Session-Id header is missing; initialize first")
UNKNOWN_EVENT = Refusal(400, "unknown_event", "Last-Event-ID names no event of this session that can be resumed after")
STREAM_OPEN = Refusal(409, "stream_open", "the session has a GET stream already")

_EVENT_ID = re.compile(r"([0-9A-Za-z_]{1,64})-([0-9]{1,15})-([0-9]{1,15})")


def wire_revision(negotiated: Revision) -> Revision:
    """Return whose transport rules a session follows.

    HTTP+SSE's revision can be negotiated here too, by clients that hold on to an old date; it says nothing of this
    transport, so they get the rules of the first revision that has it.
    """
    return REVISIONS["2025-03-26"] if negotiated is HTTP_SSE else negotiated


class EventId(NamedTuple):
    """Where an event stands: what ``id:`` on the wire means."""

    tag: str
    """The session's mark: an id of another session's is not taken for one of ours (C044)."""
    stream: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.tag}-{self.stream}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> EventId | None:
        found = _EVENT_ID.fullmatch(text)
        return None if found is None else cls(found[1], int(found[2]), int(found[3]))


class Stream:
    """One stream of a session.

    Attributes:
        number: 0 for the standing stream.
        connection: what carries it now, the shell's object; None: nothing does.
        is_live: the connection has all events so far and gets new ones as they come; otherwise a replay is under way.
        owed: the requests that are unanswered, by id, each with the shell's value for it.
        sequence: the number of the last event that was given one.
        stored: the number of the last event that was stored.
        position: the number of the last event given to ``connection``.
    """

    __slots__ = ("connection", "is_live", "is_resumable", "lock", "number", "owed", "position", "sequence", "stored")

    def __init__(self, number: int, *, is_resumable: bool) -> None:
        self.number = number
        self.is_resumable = is_resumable
        """Its events are stored. Cleared for good when storing one failed."""
        self.lock: Any = None
        """The shell's, which keeps the storing of events in order."""
        self.connection: Any = None
        self.is_live = False
        self.owed: dict[RequestId, Any] = {}
        self.sequence = 0
        self.stored = 0
        self.position = 0

    @property
    def is_done(self) -> bool:
        """Nothing more will come on it."""
        return self.number != 0 and not self.owed

    def number_next(self) -> int:
        """Give the next event its number."""
        self.sequence += 1
        return self.sequence

    def store_done(self, sequence: int) -> bool:
        """Note that an event is stored; True if it is to be sent on the connection now.

        Calls must come in the order of the numbers. False: nothing carries the stream, or a replay sends the event.
        """
        self.stored = sequence
        if not self.is_live or sequence <= self.position:
            return False
        self.position = sequence
        return True

    def claim(self, connection: Any) -> Any:
        """Give the stream to a connection that begins with a replay; return the one to close instead, or None."""
        before, self.connection = self.connection, connection
        self.is_live = False
        return before

    def try_attach(self, connection: Any, position: int) -> bool:
        """Let a connection that was sent all events up to ``position`` carry the stream from now on.

        False if further events were stored meanwhile: replay those first. True as well for a connection that has lost
        its claim to another one, or has left: nothing more is to be replayed on it.
        """
        if self.connection is not connection:
            return True
        if position < self.stored:
            return False
        self.position = position
        self.is_live = True
        return True

    def detach(self, connection: Any) -> bool:
        """Note that a connection is gone; False if the stream was not its own (any more)."""
        if self.connection is not connection:
            return False
        self.connection = None
        self.is_live = False
        return True


class HTTPSession:
    """One session. It holds what is known of requests and streams, and messages only while no GET stream is open.

    Args:
        revision: whose rules it follows; see :func:`wire_revision`.
        event_tag: the mark of its event ids, letters and digits; None: events are not stored and have no ids.
        now: the time, in seconds of any clock that the other calls use too.
        max_in_flight: requests that may be unanswered at one time; as many pings again.
        max_backlog: messages held for a standing stream that is not open; the oldest are dropped.
        max_backlog_bytes: bytes of them.
        idle_s: how long the session lives without a request or an open stream.
        follow_up_s: how soon after ``initialize`` the client must come back.
    """

    __slots__ = (
        "_active_at",
        "_backlog",
        "_backlog_bytes",
        "_connections",
        "_event_tag",
        "_follow_up_s",
        "_idle_s",
        "_last_number",
        "_max_backlog",
        "_max_backlog_bytes",
        "_max_in_flight",
        "in_flight",
        "is_closed",
        "is_followed_up",
        "lost",
        "revision",
        "standing",
        "streams",
    )

    def __init__(
        self,
        revision: Revision,
        *,
        event_tag: str | None,
        now: float,
        max_in_flight: int = 1000,
        max_backlog: int = 100,
        max_backlog_bytes: int = 1 << 20,
        idle_s: float = 1800.0,
        follow_up_s: float = 30.0,
    ) -> None:
        self.revision = revision
        self._event_tag = event_tag
        self._max_in_flight = max_in_flight
        self._max_backlog = max_backlog
        self._max_backlog_bytes = max_backlog_bytes
        self._idle_s = idle_s
        self._follow_up_s = follow_up_s
        self._active_at = now
        self.is_followed_up = False
        """The client came back after ``initialize``."""
        self._last_number = 0
        self._connections = 0
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self.lost = 0
        """Messages dropped from the backlog."""
        self.is_closed = False
        self.in_flight: dict[RequestId, Stream] = {}
        """Unanswered requests, by id with its type, and the stream each belongs to."""
        self.standing = Stream(0, is_resumable=event_tag is not None)
        self.streams: dict[int, Stream] = {0: self.standing}
        """Streams on which something may still come."""

    # Requests

    def open(self, requests: Sequence[Request]) -> Stream | Refusal:
        """Take the requests of one POST, all or none of them, and return the stream their answers belong to."""
        in_flight = self.in_flight
        limit = self._max_in_flight
        if len(requests) == 1 and requests[0].method == PING:
            limit *= 2
        if len(in_flight) + len(requests) > limit:
            text = f"session has {len(in_flight)} requests in flight, the limit is {self._max_in_flight}"
            return Refusal(503, "in_flight", text, id=requests[0].id)
        self._last_number += 1
        stream = Stream(self._last_number, is_resumable=self._event_tag is not None)
        for request in requests:
            if request.id in in_flight or request.id in stream.owed:
                # Two answers with one id could not be told apart: never the wrong one, never none (C052).
                text = "a request with this id is in flight already"
                return Refusal(400, "duplicate_id", text, id=request.id)
            stream.owed[request.id] = None
        for request in requests:
            in_flight[request.id] = stream
        self.streams[stream.number] = stream
        return stream

    def settle(self, id: RequestId) -> tuple[Stream, Any] | None:
        """Note that a request is answered, or cancelled and owed no answer; return its stream and the shell's value.

        None if no such request is in flight. When the stream :attr:`~Stream.is_done` then, its connection is to be
        ended. An answer is to be sent before: a stream that is done is no longer found by whoever resumes it.
        """
        stream = self.in_flight.pop(id, None)
        if stream is None:
            return None
        value = stream.owed.pop(id)
        if not stream.owed:
            self.streams.pop(stream.number, None)
        return stream, value

    # Streams

    def event_id(self, stream: Stream, sequence: int) -> str | None:
        """Return the id to send with an event; None where nothing can be resumed."""
        return f"{self._event_tag}-{stream.number}-{sequence}" if stream.is_resumable else None

    def open_standing(self) -> Refusal | None:
        """Return why a new GET stream is refused, or None; then :meth:`attach` and :meth:`take_backlog` follow."""
        return None if self.standing.connection is None else STREAM_OPEN

    def locate(self, last_event_id: str) -> EventId | Refusal:
        """Read a ``Last-Event-ID``. Whether the events after it are still there is the store's to say."""
        place = EventId.parse(last_event_id)
        if place is None or self._event_tag is None or place.tag != self._event_tag:
            return UNKNOWN_EVENT
        stream = self.streams.get(place.stream)
        if place.stream > self._last_number or (
            stream is not None and (place.sequence > stream.sequence or not stream.is_resumable)
        ):
            return UNKNOWN_EVENT
        return place

    def attach(self, stream: Stream, connection: Any) -> None:
        """Let a new connection carry a stream from its present end on."""
        stream.connection = connection
        stream.position = stream.stored  # what is being stored now is sent when that is done
        stream.is_live = True

    def connected(self) -> None:
        """Count a connection of the session, whatever it carries."""
        self._connections += 1

    def disconnected(self, now: float) -> None:
        """Note that a connection ended, whether it carried a stream or not."""
        self._connections -= 1
        self._active_at = now

    def hold(self, frame: bytes) -> None:
        """Keep an event for the standing stream until it opens (row 16 of the peers: none may be lost on the way)."""
        self._backlog.append(frame)
        self._backlog_bytes += len(frame)
        while len(self._backlog) > self._max_backlog or (
            self._backlog_bytes > self._max_backlog_bytes and len(self._backlog) > 1
        ):
            self._backlog_bytes -= len(self._backlog.popleft())
            self.lost += 1

    @property
    def has_backlog(self) -> bool:
        """Something is held."""
        return bool(self._backlog)

    def take_backlog(self) -> bytes:
        """Return what was held, and hold it no more."""
        frames = b"".join(self._backlog)
        self._backlog.clear()
        self._backlog_bytes = 0
        return frames

    # Life

    def touch(self, now: float) -> None:
        """Note that the client came back."""
        self._active_at = now
        self.is_followed_up = True

    @property
    def is_busy(self) -> bool:
        """A request runs or a connection is open."""
        return bool(self.in_flight) or self._connections > 0

    def time_left(self, now: float) -> float:
        """Return in how many seconds to look again; 0 or less: the session is to be ended now."""
        limit = self._idle_s if self.is_followed_up else self._follow_up_s
        left = limit if self.is_busy else self._active_at + limit - now
        return min(left, self._idle_s)  # the client may come back meanwhile, and then the other limit holds

    def close(self) -> bool:
        """End the session; False if it had ended already."""
        if self.is_closed:
            return False
        self.is_closed = True
        self._backlog.clear()
        self._backlog_bytes = 0
        return True
