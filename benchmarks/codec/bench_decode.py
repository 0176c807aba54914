"""Decoding, by pytest-benchmark. One group per stream and way of reading; contenders compare inside it."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.codec.cases import MODES, decode_call
from benchmarks.contenders import DECODERS, Absent
from benchmarks.fixtures import CRLF, LF, SHAPES, SIZES, Traffic, shape, size_name, sized

pytestmark = pytest.mark.benchmark(max_time=0.2, min_rounds=5, disable_gc=True)

newlines = pytest.mark.parametrize("newline", [LF, CRLF], ids=["LF", "CRLF"])


@pytest.mark.parametrize("contender", DECODERS)
@pytest.mark.parametrize("mode", MODES)
@newlines
@pytest.mark.parametrize("size", SIZES, ids=size_name)
def bench_size(benchmark: Any, size: int, newline: str, mode: str, contender: str) -> None:
    _run(benchmark, sized(size, newline=newline), mode, contender)


@pytest.mark.parametrize("contender", DECODERS)
@newlines
@pytest.mark.parametrize("name", SHAPES)
def bench_shape(benchmark: Any, name: str, newline: str, contender: str) -> None:
    _run(benchmark, shape(name, newline=newline), "data", contender)


def _run(benchmark: Any, traffic: Traffic, mode: str, contender: str) -> None:
    try:
        decoder = DECODERS[contender]()
    except Absent as error:
        pytest.skip(f"{contender}: {error}")
    benchmark.group = f"decode {traffic.name}, {mode}: {len(traffic.events)} events, {traffic.stream_bytes} bytes"
    benchmark.extra_info.update(events=len(traffic.events), stream_bytes=traffic.stream_bytes)
    benchmark(decode_call(decoder, traffic, mode))
