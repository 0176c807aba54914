"""What is timed: a call per contender that can run, given out only after its answer was checked."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import Any

from benchmarks.contenders import DECODERS, ENCODERS, WRITERS, Decoder, Encoder, Writer, load
from benchmarks.fixtures import KIB, Traffic, messages

__all__ = [
    "CLOCK",
    "MODES",
    "WrongAnswer",
    "burst",
    "decode_call",
    "decode_calls",
    "encode_call",
    "encode_calls",
    "payloads",
    "writer_call",
    "writer_calls",
]

MODES: dict[str, Callable[[Decoder], Callable[[Sequence[bytes]], None]]] = {
    "data": lambda decoder: decoder.read_data,
    "undecoded": lambda decoder: decoder.read_bytes,
    "json": lambda decoder: decoder.read_json,
}
"""Ways to read what was decoded: as text, as bytes, as the JSON value."""

# The codec never waits, so its cost is CPU time, and what the neighbours on the machine do stays out of it.
# Where that clock is coarse (Windows: 16 ms) the wall clock has to serve.
CLOCK = time.process_time if time.get_clock_info("process_time").resolution < 1e-4 else time.perf_counter


class WrongAnswer(AssertionError):
    """A contender does not do the work that is to be timed."""


def decode_call(decoder: Decoder, traffic: Traffic, mode: str) -> Callable[[], None]:
    """Return a call that decodes the stream once and reads each payload.

    Raises:
        WrongAnswer: the contender finds other events than those in the stream.
    """
    found = decoder.events(traffic.chunks)
    if found != list(traffic.events):
        raise WrongAnswer(f"{decoder.name} decodes {traffic.name} into {len(found)} events, or into others")
    read, chunks = MODES[mode](decoder), traffic.chunks
    return lambda: read(chunks)


def payloads(size: int, total_bytes: int = 64 * KIB) -> tuple[str, ...]:
    """Return messages to encode: ``total_bytes`` of them, at least one.

    No more: what an encoder gets was made a moment ago and is in the processor's cache.
    """
    return messages(size, max(total_bytes // size, 1))


def burst(size: int) -> tuple[str, ...]:
    """Return messages to write: enough for several writes of 64 KiB."""
    return payloads(size, 256 * KIB)


def encode_call(encoder: Encoder, texts: Sequence[Any]) -> Callable[[], None]:
    """Return a call that encodes each text (str or bytes, without line ends in them) once.

    Raises:
        WrongAnswer: the contender's events are not the bytes they must be, LF and CRLF being the same.
    """
    # sse-starlette and aiohttp-sse end lines with CRLF unless told otherwise, which is the same event.
    if [frame.replace(b"\r\n", b"\n") for frame in encoder.frames(texts)] != [_frame(data) for data in texts]:
        raise WrongAnswer(f"{encoder.name} encodes {len(texts)} texts into other events")
    return lambda: encoder.encode_all(texts)


def writer_call(writer: Writer, texts: Sequence[str]) -> Callable[[], None]:
    """Return a call that sends the texts in one burst.

    Raises:
        WrongAnswer: other bytes come out than those of the events.
    """
    written: list[bytes] = []
    writer.send_all(texts, lambda data: written.append(bytes(data)))
    if b"".join(written).replace(b"\r\n", b"\n") != b"".join(map(_frame, texts)):
        raise WrongAnswer(f"{writer.name} writes {len(texts)} events as others")
    sink = deque[bytes](maxlen=0).append  # takes and drops, in C
    return lambda: writer.send_all(texts, sink)


def decode_calls(traffic: Traffic, mode: str) -> dict[str, Callable[[], None]]:
    """Return the calls of all decoders that can run."""
    return {name: decode_call(decoder, traffic, mode) for name, decoder in load(DECODERS)[0].items()}


def encode_calls(texts: Sequence[Any], names: Container[str] = ENCODERS) -> dict[str, Callable[[], None]]:
    """Return the calls of those encoders among ``names`` that can run."""
    present = load(ENCODERS)[0]
    return {name: encode_call(encoder, texts) for name, encoder in present.items() if name in names}


def writer_calls(texts: Sequence[str]) -> dict[str, Callable[[], None]]:
    """Return the calls of all writers that can run."""
    return {name: writer_call(writer, texts) for name, writer in load(WRITERS)[0].items()}


def _frame(payload: Any) -> bytes:
    data = payload.encode() if isinstance(payload, str) else payload
    return b"event: message\ndata: " + data + b"\n\n"
