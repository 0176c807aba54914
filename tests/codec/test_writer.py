"""When the writer writes, what it writes, and what is left when writing fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Codec


class Turn:
    """A loop's ``call_soon``, with the end of its turn in the test's hands."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def call_soon(self, call: Callable[[], object]) -> None:
        self.calls.append(call)

    def end(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Sink:
    """A ``write`` that refuses while told to."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.refusing = False

    def write(self, piece: bytes) -> None:
        assert type(piece) is bytes
        if self.refusing:
            raise OSError("refused")
        self.written.append(piece)


def test_every_send_is_written_at_once_without_call_soon(codec: Codec) -> None:
    """A1: an event is written and flushed at once."""
    sink = Sink()
    writer = codec.EventWriter(sink.write)
    writer.send("a")
    assert sink.written == [b"data: a\n\n"]
    writer.comment("c")
    writer.send("b", event="e", id="1", retry=2)
    writer.send_encoded(b"data: d\n\n")
    assert sink.written[1:] == [b": c\n", b"event: e\nid: 1\nretry: 2\ndata: b\n\n", b"data: d\n\n"]
    assert writer.buffered == 0


def test_a_turns_events_are_written_in_one_piece(codec: Codec) -> None:
    turn, sink = Turn(), Sink()
    writer = codec.EventWriter(sink.write, call_soon=turn.call_soon)
    writer.send("a")
    writer.comment()
    writer.send(b"b")
    writer.send_encoded(b"data: c\n\n")
    assert sink.written == []
    assert writer.buffered == len(b"data: a\n\n:\ndata: b\n\ndata: c\n\n")
    assert len(turn.calls) == 1
    turn.end()
    assert sink.written == [b"data: a\n\n:\ndata: b\n\ndata: c\n\n"]
    assert writer.buffered == 0
    writer.send("d")
    assert len(turn.calls) == 1
    turn.end()
    assert sink.written[1:] == [b"data: d\n\n"]


def test_flush_does_not_wait_for_the_turn(codec: Codec) -> None:
    turn, sink = Turn(), Sink()
    writer = codec.EventWriter(sink.write, call_soon=turn.call_soon)
    writer.send("a")
    writer.flush()
    assert sink.written == [b"data: a\n\n"]
    writer.send("b")  # the turn is asked for already
    assert len(turn.calls) == 1
    turn.end()
    assert sink.written == [b"data: a\n\n", b"data: b\n\n"]


def test_nothing_buffered_is_nothing_written(codec: Codec) -> None:
    turn, sink = Turn(), Sink()
    writer = codec.EventWriter(sink.write, call_soon=turn.call_soon)
    writer.flush()
    writer.send("a")
    writer.flush()
    turn.end()
    writer.send_encoded(b"")
    turn.end()
    writer.close()
    assert sink.written == [b"data: a\n\n"]


def test_full_buffer_is_written_within_the_turn(codec: Codec) -> None:
    turn, sink = Turn(), Sink()
    writer = codec.EventWriter(sink.write, flush_bytes=30, call_soon=turn.call_soon)
    for _ in range(10):
        writer.send("12345678")  # 16 bytes
    assert [len(piece) for piece in sink.written] == [32] * 5
    assert len(turn.calls) == 1


def test_default_of_flush_bytes_is_64_kib(codec: Codec) -> None:
    turn, sink = Turn(), Sink()
    writer = codec.EventWriter(sink.write, call_soon=turn.call_soon)
    writer.send("x" * (65535 - 8))
    assert (writer.buffered, sink.written) == (65535, [])
    writer.comment("")
    assert [len(piece) for piece in sink.written] == [65537]


@pytest.mark.parametrize("size", [1, 1000, 1024, 1025, 5000, 300_000])
def test_large_and_small_frames_come_out_whole(codec: Codec, size: int) -> None:
    turn, sink = Turn(), Sink()
    writer = codec.EventWriter(sink.write, call_soon=turn.call_soon)
    for _ in range(3):
        writer.send("x" * size)
        writer.send(b"y" * size)
        turn.end()
    want = (b"data: " + b"x" * size + b"\n\ndata: " + b"y" * size + b"\n\n") * 3
    assert b"".join(sink.written) == want


@pytest.mark.parametrize("with_turn", [False, True])
def test_bad_argument_leaves_the_buffer_as_it_was(codec: Codec, with_turn: bool) -> None:
    turn, sink = Turn(), Sink()
    writer = codec.EventWriter(sink.write, call_soon=turn.call_soon if with_turn else None)
    for fields in ({"id": "a\nb"}, {"retry": -1}, {"data": "\ud800"}, {"event": 1}):
        with pytest.raises((TypeError, ValueError)):
            writer.send(**{"data": "x", "event": "e", **fields})
    with pytest.raises(TypeError):
        writer.comment(b"x")
    assert writer.buffered == 0
    writer.send("a")
    turn.end()
    assert sink.written == [b"data: a\n\n"]


def test_closed_writer_refuses_and_has_flushed(codec: Codec) -> None:
    turn, sink = Turn(), Sink()
    writer = codec.EventWriter(sink.write, call_soon=turn.call_soon)
    writer.send("a")
    writer.close()
    writer.close()
    assert sink.written == [b"data: a\n\n"]
    for call in (lambda: writer.send("b"), writer.comment, lambda: writer.send_encoded(b"x")):
        with pytest.raises(RuntimeError, match=r"^writer is closed$"):
            call()
    turn.end()
    writer.flush()
    assert sink.written == [b"data: a\n\n"]


def test_what_write_refused_stays_first_in_line(codec: Codec) -> None:
    turn, sink = Turn(), Sink()
    writer = codec.EventWriter(sink.write, call_soon=turn.call_soon)
    sink.refusing = True
    writer.send("a")
    with pytest.raises(OSError, match="refused"):
        turn.end()
    writer.send("b")
    with pytest.raises(OSError, match="refused"):
        writer.flush()
    assert writer.buffered == len(b"data: a\n\ndata: b\n\n")
    sink.refusing = False
    turn.end()
    assert sink.written == [b"data: a\n\ndata: b\n\n"]


def test_send_that_write_refused_is_written_by_the_next(codec: Codec) -> None:
    sink = Sink()
    writer = codec.EventWriter(sink.write)
    sink.refusing = True
    with pytest.raises(OSError, match="refused"):
        writer.send("a")
    assert writer.buffered == len(b"data: a\n\n")
    sink.refusing = False
    writer.send("b")
    assert sink.written == [b"data: a\n\ndata: b\n\n"]


def test_close_whose_flush_failed_can_be_flushed_again(codec: Codec) -> None:
    turn, sink = Turn(), Sink()
    writer = codec.EventWriter(sink.write, call_soon=turn.call_soon)
    writer.send("a")
    sink.refusing = True
    with pytest.raises(OSError, match="refused"):
        writer.close()
    with pytest.raises(RuntimeError, match=r"^writer is closed$"):
        writer.send("b")
    sink.refusing = False
    writer.flush()
    assert sink.written == [b"data: a\n\n"]


def test_failing_call_soon_is_told_and_asked_again(codec: Codec) -> None:
    sink = Sink()
    loop_closed = True

    def call_soon(call: Callable[[], object]) -> None:
        if loop_closed:
            raise RuntimeError("loop is closed")
        call()

    writer = codec.EventWriter(sink.write, call_soon=call_soon)
    with pytest.raises(RuntimeError, match="loop is closed"):
        writer.send("a")
    loop_closed = False
    writer.send("b")
    assert sink.written == [b"data: a\n\ndata: b\n\n"]


@pytest.mark.parametrize("with_turn", [False, True])
def test_write_may_send(codec: Codec, with_turn: bool) -> None:
    """What is sent inside write follows what is being written, and is never written inside it."""
    turn = Turn()
    written: list[bytes] = []
    depth = 0

    def write(piece: bytes) -> None:
        nonlocal depth
        depth += 1
        assert depth == 1
        if len(written) < 3:
            writer.send(f"inner {len(written)}")
        written.append(piece)
        depth -= 1

    writer = codec.EventWriter(write, call_soon=turn.call_soon if with_turn else None)
    writer.send("outer")
    while turn.calls:
        turn.end()
    assert written == [b"data: outer\n\n", *(b"data: inner %d\n\n" % number for number in range(3))]


def test_write_may_flush_and_close(codec: Codec) -> None:
    turn = Turn()
    written: list[bytes] = []

    def write(piece: bytes) -> None:
        written.append(piece)
        if len(written) == 1:
            writer.send("last")
            writer.flush()
            assert len(written) == 1
            writer.close()

    writer = codec.EventWriter(write, call_soon=turn.call_soon)
    writer.send("first")
    writer.flush()
    assert written == [b"data: first\n\n", b"data: last\n\n"]
    with pytest.raises(RuntimeError, match=r"^writer is closed$"):
        writer.send("x")


def test_what_was_sent_inside_a_failing_write_comes_after_it(codec: Codec) -> None:
    sink = Sink()

    def write(piece: bytes) -> None:
        if not sink.written and b"inner" not in piece:
            writer.send("inner")
            raise OSError("refused")
        sink.write(piece)

    writer = codec.EventWriter(write)
    with pytest.raises(OSError, match="refused"):
        writer.send("outer")
    writer.flush()
    assert sink.written == [b"data: outer\n\ndata: inner\n\n"]


def test_caller_may_change_what_was_sent(codec: Codec) -> None:
    turn, sink = Turn(), Sink()
    writer = codec.EventWriter(sink.write, call_soon=turn.call_soon)
    payload = bytearray(b"a")
    writer.send(payload)
    writer.send_encoded(payload)
    payload[:] = b"zzz"
    turn.end()
    assert sink.written == [b"data: a\n\na"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"flush_bytes": 0}, ValueError, r"^flush_bytes is 0, allowed are 1 to"),
        ({"flush_bytes": None}, TypeError, r"^flush_bytes must be int, got NoneType$"),
        ({"flush_bytes": True}, TypeError, r"^flush_bytes must be int, got bool$"),
        ({"call_soon": 1}, TypeError, r"^call_soon must be callable, got int$"),
        ({"write": None}, TypeError, r"^write must be callable, got NoneType$"),
    ],
)
def test_bad_options_are_refused(codec: Codec, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        codec.EventWriter(**{"write": print, **options})


def test_writer_on_a_loop_writes_once_per_turn(codec: Codec) -> None:
    sink = Sink()

    async def main() -> None:
        writer = codec.EventWriter(sink.write, call_soon=asyncio.get_running_loop().call_soon)
        for turn in range(3):
            writer.send(f"{turn}a")
            writer.send(f"{turn}b")
            assert len(sink.written) == turn
            await asyncio.sleep(0)
        writer.close()

    asyncio.run(main())
    assert sink.written == [b"data: %da\n\ndata: %db\n\n" % (turn, turn) for turn in range(3)]
