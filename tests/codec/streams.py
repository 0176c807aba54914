"""Streams, the cutting of streams, and what a decoder made of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import strategies as st

from tests.reference.sse_oracle import Event, Outcome

BOM = b"\xef\xbb\xbf"

# What hostile streams are made of: every byte the grammar knows, in and out of place, and halves of things.
ATOMS = [
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b" ", b"  ", b":", b"\0", b"\t"),
    *(
        b"data",
        b"data:",
        b"data: ",
        b"dat",
        b"d",
        b"Data: q",
        b"datax: 1",
        b"data :1",
        b"data: x\n\n",
        b"data:y\r\n\r\n",
    ),
    *(
        b"event",
        b"event:",
        b"event: e",
        b"event: message",
        b"eventx",
        b"id",
        b"id:",
        b"id: 7",
        b"id: \xc3\xa9",
        b"idx:",
    ),
    *(b"retry", b"retry:", b"retry: 5", b"retry: 0009", b"retry:+1", b"retry: 1_0", b"retry: \xd9\xa1"),
    *(b"retry: 9223372036854775807", b"retry: 9223372036854775808", b"retry: " + b"9" * 5000),
    *(b": c", b"foo", b"foo: bar", b"x" * 20, b"x" * 100, b"data: " + b"k" * 700),
    *(BOM, b"\xef", b"\xbb", b"\xe2\x82", b"\xac", b"\xff", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", "\u2028".encode()),
]

streams = st.lists(st.one_of(st.sampled_from(ATOMS), st.binary(max_size=8)), max_size=40).map(b"".join)


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(stream)) for place in places), len(stream)]
    return [stream[start:stop] for start, stop in itertools.pairwise(edges)]


def every_two(stream: bytes) -> Iterator[list[bytes]]:
    for place in range(len(stream) + 1):
        yield [stream[:place], stream[place:]]


def bytewise(stream: bytes) -> list[bytes]:
    return [stream[place : place + 1] for place in range(len(stream))]


def facts(event: Any) -> Event:
    return Event(event.event, event.data, event.id, event.retry)


def decode(decoder: Any, chunks: Iterable[bytes], *, flush: bool = False) -> Outcome:
    """Feed a decoder to the end of the stream, or to its first error."""
    events: list[Event] = []
    error: tuple[str, tuple[object, ...]] | None = None
    try:
        for chunk in chunks:
            events += map(facts, decoder.feed(chunk))
        events += map(facts, decoder.close(flush=flush))
    except ValueError as raised:  # EventTooLarge and MalformedLine are such
        error = (type(raised).__name__, raised.args)
    return Outcome(events, error, decoder.last_event_id, decoder.retry)


def events_of(codec: Any, stream: bytes) -> list[Event]:
    outcome = decode(codec.SSEDecoder(), [stream])
    assert outcome.error is None
    return outcome.events


def data_of(codec: Any, chunks: Iterable[bytes]) -> list[str]:
    outcome = decode(codec.SSEDecoder(), chunks)
    assert outcome.error is None
    return [event.data for event in outcome.events]
