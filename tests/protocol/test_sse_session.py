"""The machine of an HTTP+SSE session: A7, A10, C052, C054, C071."""

from __future__ import annotations

import pytest

from mcpfast.jsonrpc import ErrorResponse, Notification, Request, Response
from mcpfast.protocol.refusal import Refusal
from mcpfast.protocol.sse_session import FULL, UNKNOWN, WAIT, SSESession

CANCEL = Notification("notifications/cancelled", {"requestId": 1})


def test_ids_of_another_type_are_other_requests() -> None:
    """C054: '1' and 1 are two requests."""
    session = SSESession()
    assert session.receive(Request(1, "m")) is None
    assert session.receive(Request("1", "m")) is None
    assert list(session.in_flight) == [1, "1"]


def test_an_id_in_flight_is_refused_and_free_again_once_answered() -> None:
    """C052."""
    session = SSESession()
    assert session.receive(Request(1, "m")) is None
    refusal = session.receive(Request(1, "other"))
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.id, refusal.reason) == (400, 1, "duplicate_id")
    session.answered(1)
    assert session.receive(Request(1, "other")) is None


def test_a_full_queue_makes_requests_and_notifications_wait() -> None:
    """A7."""
    session = SSESession(max_queued=2)
    assert session.receive(Request(1, "m")) is None
    assert session.receive(Notification("n")) is None
    assert session.receive(Request(2, "m")) is WAIT
    assert session.receive(Notification("n")) is WAIT
    assert 2 not in session.in_flight
    session.taken()
    assert session.receive(Request(2, "m")) is None


@pytest.mark.parametrize("message", [CANCEL, Response(1, {}), ErrorResponse(1, -1, "no"), Request("p", "ping")])
def test_answers_cancels_and_pings_pass_a_full_queue_but_not_without_bound(message: object) -> None:
    session = SSESession(max_queued=3)
    for id in range(3):
        assert session.receive(Request(id, "m")) is None
    for _ in range(3):
        assert session.receive(message) is None  # type: ignore[arg-type]
        session.answered("p")
    assert session.receive(message) is FULL  # type: ignore[arg-type]


def test_requests_in_flight_are_bounded_and_pings_pass() -> None:
    session = SSESession(max_in_flight=2)
    for id in range(2):
        assert session.receive(Request(id, "m")) is None
        session.taken()
    refusal = session.receive(Request(2, "m"))
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.reason) == (503, "in_flight")
    assert session.receive(Request(2, "ping")) is None
    assert session.receive(CANCEL) is None
    assert session.receive(Request(3, "ping")) is None
    assert session.receive(Request(4, "ping")) is FULL


def test_a_closed_session_is_unknown_and_closes_once() -> None:
    """A10."""
    session = SSESession()
    assert session.close()
    assert not session.close()
    assert session.receive(CANCEL) is UNKNOWN


def test_values_that_are_no_ids_find_nothing() -> None:
    session = SSESession()
    session.receive(Request(1, "m"))
    assert session.answered("1") is None
    assert 1 in session.in_flight
