"""Running out of memory at any allocation is a MemoryError, and leaves objects that can be used or refuse use."""

from __future__ import annotations

import _testcapi
import sys
from collections.abc import Callable
from typing import Any

from codec_parts import load

codec = load()
BIG = b"y" * 5000
STREAM = (
    b"data: a\n\nid: 1\xc3\xa9\nevent: tick\nretry: 70000\ndata: b\ndata: c\n\ndata: "
    + BIG
    + b"\ndata: "
    + BIG
    + b"\n\nd"
)


def each_allocation(work: Callable[[], Any], check: Callable[[Any], None]) -> int:
    """Run ``work`` with the first allocation failing, then the second, and so on until it needs no more."""
    failed = 0
    for number in range(1, 400):
        result: Any = None
        _testcapi.set_nomemory(number, number + 1)
        try:
            result = work()
        except MemoryError as error:
            result = type(error)
        finally:
            _testcapi.remove_mem_hooks()
        if result is MemoryError:
            failed += 1
        else:
            check(result)
    return failed


def decode() -> None:
    decoder = codec["SSEDecoder"]()
    seen: list[Any] = []

    def work() -> Any:
        decoder.reset()
        del seen[:]
        for start in (0, 100, 3000):
            seen.append(decoder.feed(CHUNKS[start]))
        return decoder.close()

    want = [event.data for chunk in CHUNKS.values() for event in decoder.feed(chunk)]

    def check(result: Any) -> None:
        assert [event.data for events in seen for event in events] == want

    failed = each_allocation(work, check)
    assert failed > 3, failed
    # After a failure the decoder refuses, or was not touched; it never delivers a wrong event.
    for number in range(1, 60):
        decoder.reset()
        got: list[str] = []
        _testcapi.set_nomemory(number, number + 1)
        try:
            events = decoder.feed(STREAM)
        except MemoryError:
            events = []
        finally:
            _testcapi.remove_mem_hooks()
        got = [event.data for event in events]
        assert got == want[: len(got)], got
        try:
            decoder.feed(b"ata: z\n\n")
        except MemoryError:
            decoder.reset()


CHUNKS = {0: STREAM[:100], 100: STREAM[100:3000], 3000: STREAM[3000:]}


def encode() -> None:
    want = codec["encode_event"]("é" * 100 + "\n", event="é", id="7", retry=9)

    def check(result: Any) -> None:
        assert result == want

    assert each_allocation(lambda: codec["encode_event"]("é" * 100 + "\n", event="é", id="7", retry=9), check) > 0


def write() -> None:
    written: list[bytes] = []
    writer = codec["EventWriter"](written.append, call_soon=lambda call: None)
    frame = codec["encode_event"](BIG)

    def work() -> None:
        writer.send(BIG)

    each_allocation(work, lambda result: None)
    try:
        writer.flush()
    except MemoryError:
        writer.flush()
    assert b"".join(written) == frame * (len(b"".join(written)) // len(frame))


for run in (decode, encode, write):
    run()
sys.stdout.write("done\n")
