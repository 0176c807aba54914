"""When a stream is taken up again: counts without a clock."""

from __future__ import annotations

import pytest

from mcpfast.protocol.reconnection import Reconnection, RetryPolicy, last_event_id_header


def waits(reconnection: Reconnection, times: int, *, is_clean: bool, chance: float = 0.0) -> list[float | None]:
    return [reconnection.next_wait(is_clean, chance) for _ in range(times)]


def test_a_stream_that_brought_something_is_taken_up_after_exactly_what_retry_asks() -> None:
    """B9, L25-C-04"""
    for retry_ms, wait in ((700, 0.7), (5000, 5.0), (100, 0.1)):
        reconnection = Reconnection(RetryPolicy(), None)
        reconnection.asked(retry_ms)
        for is_clean in (True, False, True):
            reconnection.brought()
            assert reconnection.next_wait(is_clean, 0.99) == wait


def test_without_retry_it_is_one_second() -> None:
    reconnection = Reconnection(RetryPolicy(), None)
    reconnection.brought()
    assert reconnection.next_wait(True, 0.5) == 1.0


def test_failures_wait_from_one_second_to_thirty_and_chance_adds_up_to_half() -> None:
    assert waits(Reconnection(RetryPolicy(), None), 7, is_clean=False) == [1, 2, 4, 8, 16, 30, 30]
    assert waits(Reconnection(RetryPolicy(), None), 6, is_clean=False, chance=1.0) == [1.5, 3, 6, 12, 24, 30]


def test_a_server_that_closes_every_stream_at_once_is_asked_ever_less() -> None:
    """C041: a clean end does not reset the count; only a stream that brought something does."""
    reconnection = Reconnection(RetryPolicy(), None)
    assert waits(reconnection, 5, is_clean=True) == [1, 1, 2, 4, 8]
    reconnection.brought()
    assert waits(reconnection, 3, is_clean=True) == [1, 1, 1]


def test_retry_is_the_least_wait_of_a_failure_too() -> None:
    reconnection = Reconnection(RetryPolicy(), None)
    reconnection.asked(10_000)
    assert waits(reconnection, 6, is_clean=False) == [10, 10, 10, 10, 16, 30]


def test_a_huge_retry_is_followed_for_a_minute_at_most() -> None:
    reconnection = Reconnection(RetryPolicy(), None)
    reconnection.asked(10**18)
    reconnection.brought()
    assert reconnection.next_wait(True, 0) == 60.0


def test_retry_of_nothing_does_not_make_a_storm() -> None:
    """A server that brings something each time, and asks for no wait, is asked six times a second at most."""
    reconnection = Reconnection(RetryPolicy(), None)
    reconnection.asked(0)
    total = 0.0
    for _ in range(60):
        reconnection.brought()
        wait = reconnection.next_wait(True, 0)
        assert wait is not None
        total += wait
    assert total >= 9.0


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_it_gives_up_after_so_many_times_in_a_row_in_vain(limit: int) -> None:
    reconnection = Reconnection(RetryPolicy(), limit)
    assert waits(reconnection, limit, is_clean=False).count(None) == 0
    assert reconnection.next_wait(False, 0) is None
    if limit:
        reconnection.brought()
        assert reconnection.next_wait(False, 0) == 1.0
    else:
        reconnection.brought()
        assert reconnection.next_wait(True, 0) is None, "a limit of 0 means never"


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    for wrong in ({"first_s": 0}, {"first_s": 2, "longest_s": 1}, {"max_retry_s": -1}, {"max_attempts": -1}):
        with pytest.raises(ValueError, match=r"must"):
            RetryPolicy(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event_id", "value"),
    [
        ("s1_0", b"s1_0"),
        ("café-…", b"caf\xc3\xa9-\xe2\x80\xa6"),
        ("x" * 1024, b"x" * 1024),
        ("x" * 1025, None),
        ("é" * 513, None),
        ("a\x07b", None),
        ("a\tb", None),
        ("a\x7f", None),
        (" a", None),
    ],
)
def test_which_event_ids_are_sent_back(event_id: str, value: bytes | None) -> None:
    """C045: as UTF-8; not with control characters, nor beyond 1 KiB."""
    assert last_event_id_header(event_id) == value
