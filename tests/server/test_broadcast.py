"""Publishing to many streams: order, cost, slow readers (C070)."""

from __future__ import annotations

import asyncio
import threading
from time import perf_counter

import pytest

from mcpfast.server.broadcast import Broadcast

pytestmark = pytest.mark.anyio


class Reader:
    """A stream that takes everything, or nothing."""

    def __init__(self, broadcast: Broadcast) -> None:
        self.broadcast = broadcast
        self.cursor = 0
        self.is_open = True
        self.is_behind = False
        self.writes: list[bytes] = []
        self.dropped: str | None = None
        broadcast.add(self)

    def write_frames(self, frames: bytes) -> None:
        assert not self.is_behind
        self.writes.append(frames)

    def drop(self, reason: str) -> None:
        self.dropped = reason
        self.is_open = False
        self.broadcast.discard(self)

    @property
    def messages(self) -> list[int]:
        frames = b"".join(self.writes)
        return [int(part.split(b"data: ")[1]) for part in frames.split(b"\n\n") if part]


def make(**limits: int) -> Broadcast:
    return Broadcast(asyncio.get_running_loop(), **limits)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_burst_is_one_write_per_stream_encoded_once() -> None:
    broadcast = make()
    readers = [Reader(broadcast) for _ in range(3)]
    for i in range(10):
        broadcast.publish(b"%d" % i)
    assert not readers[0].writes
    await turns()
    assert [reader.messages for reader in readers] == [list(range(10))] * 3
    assert len(readers[0].writes) == 1
    assert readers[0].writes[0] is readers[2].writes[0]
    assert not broadcast._log


async def test_a_stream_hears_only_what_is_published_while_it_listens() -> None:
    broadcast = make()
    first = Reader(broadcast)
    broadcast.publish(b"0")
    second = Reader(broadcast)
    broadcast.publish(b"1")
    await turns()
    broadcast.discard(first)
    broadcast.publish(b"2")
    await turns()
    assert first.messages == [0, 1]
    assert second.messages == [1, 2]


async def test_what_was_published_before_an_answer_comes_before_it() -> None:
    broadcast = make()
    reader = Reader(broadcast)
    broadcast.publish(b"0")
    broadcast.catch_up(reader)
    assert reader.messages == [0]
    await turns()
    assert reader.messages == [0]


async def test_publishing_without_listeners_keeps_nothing() -> None:
    broadcast = make()
    for _ in range(1000):
        broadcast.publish(b"0")
    assert not broadcast._log
    assert broadcast._handle is None


async def test_a_publisher_that_never_yields_loses_no_good_reader_and_holds_no_more_than_the_limit() -> None:
    broadcast = make(max_messages=10)
    readers = [Reader(broadcast) for _ in range(3)]
    for i in range(1000):
        broadcast.publish(b"%d" % i)
        assert len(broadcast._log) <= 10
    await turns()
    assert [reader.messages for reader in readers] == [list(range(1000))] * 3


async def test_the_log_is_bounded_in_bytes_and_takes_one_message_of_any_size() -> None:
    broadcast = make(max_bytes=1000)
    good, stalled = Reader(broadcast), Reader(broadcast)
    stalled.is_behind = True
    for i in range(100):
        broadcast.publish(b"%090d" % i)
        assert broadcast._bytes <= 1000
    await turns()
    assert stalled.dropped == "slow_reader"
    broadcast.publish(b"%04000d" % 7)
    await turns()
    assert good.messages == [*range(100), 7]


@pytest.mark.parametrize("turn_after_each", [True, False])
async def test_a_reader_that_stops_is_dropped_and_others_do_not_notice(turn_after_each: bool) -> None:
    """C070."""
    broadcast = make(max_messages=10)
    good = [Reader(broadcast) for _ in range(5)]
    stalled = Reader(broadcast)
    stalled.is_behind = True
    for i in range(50):
        broadcast.publish(b"%d" % i)
        if turn_after_each:
            await turns(2)
            assert (stalled.dropped is None) == (i < 10)
    await turns()
    assert stalled.dropped == "slow_reader"
    assert not stalled.writes
    assert [reader.messages for reader in good] == [list(range(50))] * 5
    assert not broadcast._log
    assert not broadcast._laggards


async def test_a_reader_that_catches_up_in_time_gets_everything_in_order() -> None:
    broadcast = make(max_messages=10)
    good, slow = Reader(broadcast), Reader(broadcast)
    for start in (0, 8, 16):
        slow.is_behind = True
        for i in range(start, start + 8):
            broadcast.publish(b"%d" % i)
            await turns(2)
        assert slow.messages == list(range(start))
        slow.is_behind = False
        deadline = perf_counter() + 5
        while len(slow.messages) < start + 8 and perf_counter() < deadline:  # noqa: ASYNC110 -- it looks by a timer
            await asyncio.sleep(0.01)
        assert slow.messages == list(range(start + 8))
    assert good.messages == list(range(24))
    assert not broadcast._log


async def test_a_pass_over_many_streams_is_cut_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn of the loop is long, and what is published during a pass reaches everybody too."""
    monkeypatch.setattr("mcpfast.server.broadcast._TURN_BUDGET_S", 0)
    broadcast = make()
    readers = [Reader(broadcast) for _ in range(200)]
    for i in range(30):
        broadcast.publish(b"%d" % i)
        await turns(1)
    left = readers.pop()
    left.drop("gone")
    deadline = perf_counter() + 5
    while broadcast._handle is not None and perf_counter() < deadline:  # noqa: ASYNC110 -- turn by turn
        await asyncio.sleep(0)
    assert all(reader.messages == list(range(30)) for reader in readers)
    assert not broadcast._log


async def test_publishing_from_another_thread_arrives() -> None:
    """A plain handler runs in a thread."""
    broadcast = make()
    reader = Reader(broadcast)
    thread = threading.Thread(target=broadcast.publish, args=(b"1",))
    thread.start()
    thread.join()
    await turns()
    assert reader.messages == [1]


def test_publishing_to_a_loop_that_is_over_does_nothing() -> None:
    async def build() -> Broadcast:
        broadcast = make()
        Reader(broadcast)
        return broadcast

    broadcast = asyncio.run(build())
    broadcast.publish(b"1")
