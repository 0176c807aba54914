"""Iterating over the events of a stream, sync and async."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest

from mcpfast.codec import EventTooLarge, MalformedLine, ServerSentEvent, aiter_events, iter_events

pytestmark = pytest.mark.anyio

CHUNKS = [b"data: a\n\nda", b"ta: b\n", b"\nid: 3\ndata: c"]


async def source(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def test_events_of_a_stream() -> None:
    assert list(iter_events(CHUNKS)) == [ServerSentEvent(data="a"), ServerSentEvent(data="b")]
    assert list(iter_events(CHUNKS, flush=True))[2:] == [ServerSentEvent(data="c", id="3")]
    assert list(iter_events([])) == []


async def test_events_of_an_async_stream() -> None:
    assert [event async for event in aiter_events(source(CHUNKS))] == [
        ServerSentEvent(data="a"),
        ServerSentEvent(data="b"),
    ]
    flushed = [event async for event in aiter_events(source(CHUNKS), flush=True)]
    assert flushed[2:] == [ServerSentEvent(data="c", id="3")]


def test_options_are_checked_before_the_first_event() -> None:
    with pytest.raises(ValueError, match="max_event_bytes"):
        iter_events([], max_event_bytes=0)


async def test_options_are_checked_before_the_first_async_event() -> None:
    with pytest.raises(ValueError, match="max_event_bytes"):
        aiter_events(source([]), max_event_bytes=0)


def endless(*chunks: bytes) -> Iterator[bytes]:
    yield from chunks
    pytest.fail("asked for more after the fault")


def test_fault_is_raised_without_another_chunk() -> None:
    """A live stream may not send one for a long time."""
    events = iter_events(endless(b"data: a\n\ndata: " + b"x" * 100), max_event_bytes=50)
    assert next(events).data == "a"
    with pytest.raises(EventTooLarge):
        next(events)
    with pytest.raises(MalformedLine):
        list(iter_events(endless(b"nonsense\n"), strict=True))


async def test_async_fault_is_raised_without_another_chunk() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"data: a\n\nnonsense\n"
        pytest.fail("asked for more after the fault")

    events = aiter_events(chunks(), strict=True)
    assert (await anext(events)).data == "a"
    with pytest.raises(MalformedLine):
        await anext(events)


def test_errors_of_the_source_pass_through() -> None:
    def broken() -> Iterator[bytes]:
        yield b"data: a\n\n"
        raise ConnectionResetError("gone")

    events = iter_events(broken())
    assert next(events).data == "a"
    with pytest.raises(ConnectionResetError, match="gone"):
        next(events)


async def test_aclose_closes_the_source_too() -> None:
    closed = []

    async def chunks() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"data: a\n\ndata: b\n\n"
        finally:
            closed.append(True)

    async with aclosing(aiter_events(chunks())) as events:
        async for event in events:
            assert event.data == "a"
            break
    assert closed == [True]


async def test_source_is_closed_after_a_fault_and_at_the_end() -> None:
    closed = []

    async def chunks(*pieces: bytes) -> AsyncIterator[bytes]:
        try:
            for piece in pieces:
                yield piece
        finally:
            closed.append(True)

    with pytest.raises(MalformedLine):
        _ = [event async for event in aiter_events(chunks(b"nonsense\n", b""), strict=True)]
    assert closed == [True]
    assert [event.data async for event in aiter_events(chunks(b"data: x\n\n"))] == ["x"]
    assert closed == [True, True]


async def test_source_that_cannot_be_closed_is_fine() -> None:
    class Chunks:
        def __init__(self) -> None:
            self.left = [b"data: a\n\n"]

        def __aiter__(self) -> Chunks:
            return self

        async def __anext__(self) -> bytes:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop()

    assert [event.data async for event in aiter_events(Chunks())] == ["a"]
