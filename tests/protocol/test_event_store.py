"""The store in memory: what it keeps, what it drops, and that it says so."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpfast.protocol.event_store import EventStore, MemoryEventStore

T = TypeVar("T")


def now(call: Coroutine[Any, Any, T]) -> T:
    """Run a call that must not wait."""
    try:
        call.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("the store waited")


def put(store: MemoryEventStore, session: str, stream: int, *sequences: int, size: int = 1) -> None:
    for sequence in sequences:
        now(store.append(session, stream, sequence, b"x" * size))


def after(store: MemoryEventStore, session: str, stream: int, sequence: int) -> list[int] | None:
    events = now(store.after(session, stream, sequence))
    return None if events is None else [event.sequence for event in events]


def test_it_is_an_event_store() -> None:
    assert isinstance(MemoryEventStore(), EventStore)


def test_events_are_replayed_in_order_by_session_and_stream() -> None:
    """L25-S-17, C044."""
    store = MemoryEventStore()
    put(store, "a", 0, 1, 2)
    put(store, "a", 1, 1)
    put(store, "b", 0, 1, 2, 3)
    assert after(store, "a", 0, 0) == [1, 2]
    assert after(store, "a", 0, 1) == [2]
    assert after(store, "a", 0, 2) == []
    assert after(store, "a", 1, 0) == [1]
    assert after(store, "b", 0, 1) == [2, 3]


def test_what_is_not_known_is_told_from_what_has_no_successor() -> None:
    store = MemoryEventStore()
    put(store, "a", 0, 1)
    assert after(store, "a", 0, 2) is None
    assert after(store, "a", 5, 0) is None
    assert after(store, "b", 0, 0) is None


def test_the_oldest_events_of_a_session_go_first_and_resuming_before_them_is_refused() -> None:
    store = MemoryEventStore(max_events=3)
    put(store, "a", 0, 1, 2)
    put(store, "a", 1, 1)
    put(store, "b", 0, 1)
    put(store, "a", 0, 3, 4)
    assert after(store, "a", 0, 1) is None
    assert after(store, "a", 0, 2) == [3, 4]
    assert after(store, "a", 1, 0) == [1]
    assert after(store, "b", 0, 0) == [1]


def test_a_stream_whose_events_are_all_gone_is_not_resumed_before_them_when_it_goes_on() -> None:
    store = MemoryEventStore(max_events=1)
    put(store, "a", 0, 1)
    put(store, "a", 1, 1)
    put(store, "a", 0, 2)
    assert after(store, "a", 0, 0) is None
    assert after(store, "a", 0, 1) == [2]


def test_bytes_are_bounded_per_session_and_over_all() -> None:
    store = MemoryEventStore(max_bytes=100, max_total_bytes=150)
    put(store, "a", 0, 1, 2, 3, size=40)
    assert after(store, "a", 0, 0) is None
    assert after(store, "a", 0, 1) == [2, 3]
    put(store, "b", 0, 1, 2, size=40)
    assert store.bytes <= 150
    assert after(store, "a", 0, 1) is None
    assert after(store, "b", 0, 0) == [1, 2]


def test_a_message_over_the_limit_is_not_kept_and_cannot_be_resumed_before() -> None:
    store = MemoryEventStore(max_bytes=100)
    put(store, "a", 0, 1)
    put(store, "a", 0, 2, size=101)
    assert (len(store), store.bytes) == (0, 0)
    put(store, "a", 0, 3)
    assert after(store, "a", 0, 1) is None
    assert after(store, "a", 0, 2) == [3]


def test_the_end_of_a_session_frees_all_it_had() -> None:
    store = MemoryEventStore()
    put(store, "a", 0, 1, 2)
    put(store, "b", 0, 1)
    now(store.end_session("a"))
    now(store.end_session("a"))
    assert (len(store), store.bytes) == (1, 1)
    assert after(store, "a", 0, 0) is None


@pytest.mark.parametrize("limits", [{"max_events": 0}, {"max_bytes": -1}, {"max_total_bytes": True}])
def test_a_limit_that_is_none_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        MemoryEventStore(**limits)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 30)), max_size=60))
def test_it_never_replays_with_a_gap(events: list[tuple[str, int, int]]) -> None:
    store = MemoryEventStore(max_events=7, max_bytes=60, max_total_bytes=90)
    sent: dict[tuple[str, int], list[int]] = {}
    for session, stream, size in events:
        sequences = sent.setdefault((session, stream), [])
        sequences.append(len(sequences) + 1)
        put(store, session, stream, sequences[-1], size=size)
        assert store.bytes <= 90
        for key, known in sent.items():
            for position in (0, *known):
                found = after(store, *key, position)
                assert found is None or found == [n for n in known if n > position]
    assert asyncio.run(store.after("a", 9, 0)) is None
