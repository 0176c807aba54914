"""Cost grows in step with size, in every shape of stream.

Four times the work may take up to ten times as long before a test fails; quadratic cost takes sixteen.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from .conftest import Codec


def growth(work: Callable[[int], Callable[[], object]], small: int) -> float:
    """CPU time for four times ``small`` over that for ``small``, the least seen of each.

    A busy machine makes single runs slow, so runs are added as long as the answer would fail a test.
    """
    runs = {size: work(size) for size in (small, 4 * small)}
    least = dict.fromkeys(runs, float("inf"))
    for number in range(30):
        for size, run in runs.items():
            start = time.process_time()
            run()
            least[size] = min(least[size], time.process_time() - start)
        if number >= 2 and least[4 * small] / least[small] < 10:
            break
    return least[4 * small] / least[small]


def pieces(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]


@pytest.mark.parametrize("line", [b"data: ", b": ", b"unknown: ", b"id: ", b"data: x\r\ndata: "], ids=repr)
def test_one_line_in_small_pieces(codec: Codec, line: bytes) -> None:
    """C016: the unfinished line was copied on each feed; minutes of CPU for one large event."""

    def work(size: int) -> Callable[[], object]:
        chunks = pieces(line + b"x" * size + b"\n\n", 64)

        def run() -> None:
            decoder = codec.SSEDecoder()
            for chunk in chunks:
                decoder.feed(chunk)

        return run

    assert growth(work, 2 << 20) < 10


def test_line_of_300_kib_in_4_kib_pieces(codec: Codec) -> None:
    """C016."""
    decoder = codec.SSEDecoder()
    events = [event for piece in pieces(b"data: " + b"x" * 307_200 + b"\n\n", 4096) for event in decoder.feed(piece)]
    assert [len(event.data) for event in events] == [307_200]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=repr)
def test_many_events_in_one_piece(codec: Codec, end: bytes) -> None:
    def work(count: int) -> Callable[[], object]:
        chunk = (b"event: e" + end + b"data: x" + end + end) * count
        return lambda: codec.SSEDecoder().feed(chunk)

    assert growth(work, 20_000) < 10


@pytest.mark.parametrize("size", [1 << 30, 100])
def test_many_data_lines_in_one_event(codec: Codec, size: int) -> None:
    def work(count: int) -> Callable[[], object]:
        chunks = pieces(b"data: x\n" * count + b"\n", size)

        def run() -> None:
            decoder = codec.SSEDecoder()
            for chunk in chunks:
                decoder.feed(chunk)

        return run

    assert growth(work, 50_000) < 10


def test_one_late_cr_among_many_lines(codec: Codec) -> None:
    """A parser elsewhere searched the whole rest for a CR at every LF."""

    def work(count: int) -> Callable[[], object]:
        chunk = b"data: x\n\n" * count + b"data: y\r\r"
        return lambda: codec.SSEDecoder().feed(chunk)

    assert growth(work, 20_000) < 10


def test_encoding_many_lines(codec: Codec) -> None:
    def work(count: int) -> Callable[[], object]:
        text = "x\r\n" * count
        return lambda: codec.encode_event(text)

    assert growth(work, 50_000) < 10


def test_writer_that_is_never_flushed(codec: Codec) -> None:
    def work(count: int) -> Callable[[], object]:
        def run() -> None:
            writer = codec.EventWriter(lambda piece: None, flush_bytes=1 << 40, call_soon=lambda call: None)
            for _ in range(count):
                writer.send(b"x" * 100)
            writer.flush()

        return run

    assert growth(work, 10_000) < 10
