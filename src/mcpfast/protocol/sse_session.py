"""The machine of one HTTP+SSE session: what a POST may bring, what must wait, what is refused.

A session lives exactly as long as its GET stream (A10, H24-C-03): it is open from the ``endpoint`` event on, and once
closed it never opens again. So it needs no idle limit of its own, a dead peer is found on the stream.

What arrives goes to one reader. A reader that takes messages as they come has them judged only, and leaves
:attr:`SSESession.queued` at 0; one that lets them pile up has them received, and reports each it takes. While
``max_queued`` of them wait, further ones must wait outside, save answers, cancellations and pings, which could
otherwise block the very work that would make room. Those have room of their own, as much again, and are refused beyond
it.

Source: MCP 2024-11-05, basic/transports §HTTP with SSE; reference rows A7 and A10.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, Literal

from ..jsonrpc import Message, Notification, Request, RequestId
from .refusal import Refusal

__all__ = ["CANCELLED", "FULL", "MISSING", "STOPPING", "UNKNOWN", "WAIT", "SSESession", "Verdict", "is_urgent"]

CANCELLED: Final = "notifications/cancelled"
PING: Final = "ping"


class _Verdict(Enum):
    WAIT = "wait"


WAIT: Final = _Verdict.WAIT
"""There is no room now: try again after :meth:`SSESession.taken`, up to a time limit, then refuse with ``FULL``."""

Verdict = Refusal | Literal[_Verdict.WAIT] | None
"""What becomes of a message: refused, to be tried again later, or (None) accepted."""

UNKNOWN: Final = Refusal(404, "unknown_session", "unknown session: it has ended, or it lives in another process")
MISSING: Final = Refusal(400, "no_session_id", "query parameter sessionid is missing, repeated or malformed")
STOPPING: Final = Refusal(503, "stopping", "server is stopping")
FULL: Final = Refusal(503, "queue_full", "session takes no more messages now, try again later")


def is_urgent(message: Message) -> bool:
    """Tell whether a message must not wait behind others: an answer, a cancellation or a ping."""
    if type(message) is Request:
        return message.method == PING
    return type(message) is not Notification or message.method == CANCELLED


class SSESession:
    """One session. It holds no message, only what is known of them.

    Args:
        max_queued: messages that may wait for the reader; half of the bound, see the module.
        max_in_flight: requests that may be unanswered at one time; as many pings again.
    """

    __slots__ = ("in_flight", "is_closed", "is_draining", "max_in_flight", "max_queued", "queued")

    def __init__(self, *, max_queued: int = 100, max_in_flight: int = 1000) -> None:
        self.max_queued = max_queued
        self.max_in_flight = max_in_flight
        self.queued = 0
        self.is_closed = False
        self.is_draining = False
        """No more requests are taken, but what those in flight wait for is."""
        self.in_flight: dict[RequestId, Any] = {}
        """Requests that are unanswered, by id with its type; the value belongs to the reader."""

    def receive(self, message: Message) -> Verdict:
        """Judge a message and, if it is accepted, count it as queued and in flight."""
        verdict = self.judge(message)
        if verdict is None:
            self.queued += 1
        return verdict

    def judge(self, message: Message) -> Verdict:
        """Judge a message and, if it is accepted, count it as in flight."""
        if self.is_closed:
            return UNKNOWN
        queued = self.queued
        if type(message) is Request:
            in_flight = self.in_flight
            id = message.id
            if id in in_flight:
                # Two answers with one id could not be told apart: never the wrong one, never none (C052).
                return Refusal(400, "duplicate_id", "a request with this id is in flight already", id=id)
            if message.method == PING:
                if len(in_flight) >= 2 * self.max_in_flight or queued >= 2 * self.max_queued:
                    return FULL
            elif self.is_draining:
                return STOPPING
            elif len(in_flight) >= self.max_in_flight:
                return self.too_many(id)
            elif queued >= self.max_queued:
                return WAIT
            in_flight[id] = None
        elif queued >= self.max_queued:
            if not is_urgent(message):
                return WAIT
            if queued >= 2 * self.max_queued:
                return FULL
        return None

    def too_many(self, id: RequestId | None = None) -> Refusal:
        """Return the refusal for work beyond :attr:`max_in_flight`."""
        text = f"session has {self.max_in_flight} requests in flight, the limit"
        return Refusal(503, "in_flight", text, id=id)

    def taken(self) -> None:
        """Note that the reader took a message."""
        self.queued -= 1

    def answered(self, id: object) -> Any:
        """Note that a request was answered, or cancelled and is owed no answer; return the reader's value for it."""
        return self.in_flight.pop(id, None)  # type: ignore[call-overload]  # unknown ids are simply not there

    def close(self) -> bool:
        """End the session; False if it had ended already."""
        if self.is_closed:
            return False
        self.is_closed = True
        return True
