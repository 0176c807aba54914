"""The codec's part of the gate: the rows of `benchmarks.targets` with section ``codec``."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.codec.cases import CLOCK, decode_calls, encode_calls, payloads
from benchmarks.contenders import COMPILED, DECODERS, HTTPX2, HTTPX_SSE, PURE, SSE_STARLETTE, load
from benchmarks.fixtures import CRLF, LF, SIZES, size_name, sized
from benchmarks.ratios import Timing, fastest, interleave, ratio
from benchmarks.targets import Cannot, Measured

__all__ = ["measure"]

DECODING_PEERS = (HTTPX_SSE, HTTPX2)


def measure(rounds: int) -> Iterator[Measured]:
    """Measure each cell, in the order of the sizes.

    Raises:
        Cannot: the compiled codec or every peer is absent.
    """
    if COMPILED in load(DECODERS)[1]:
        raise Cannot("the compiled codec is not built (or MCPFAST_NO_EXTENSIONS is set), and the targets are its own")
    for size in SIZES:
        cell = size_name(size)
        for newline, row in ((LF, "decode LF"), (CRLF, "decode CRLF")):
            timings = interleave(decode_calls(sized(size, newline=newline), "data"), rounds=rounds, clock=CLOCK)
            peer = _peer(timings, DECODING_PEERS)
            yield Measured(row, cell, ratio(timings[COMPILED], peer), peer.name)
            if newline == LF:
                yield Measured("pure decode", cell, ratio(timings[PURE], peer), peer.name)
        timings = interleave(encode_calls(payloads(size), (COMPILED, SSE_STARLETTE)), rounds=rounds, clock=CLOCK)
        peer = _peer(timings, (SSE_STARLETTE,))
        yield Measured("encode str", cell, ratio(timings[COMPILED], peer), peer.name)


def _peer(timings: dict[str, Timing], names: tuple[str, ...]) -> Timing:
    peer = fastest(timings, names)
    if peer is None:
        raise Cannot(f"none of {', '.join(names)} is installed; they come with the extra bench")
    return peer
