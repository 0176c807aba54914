"""Encoding, by pytest-benchmark. One group per size and kind of payload; contenders compare inside it."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.codec.cases import encode_call, payloads
from benchmarks.contenders import ENCODERS, Absent
from benchmarks.fixtures import SIZES, size_name

pytestmark = pytest.mark.benchmark(max_time=0.2, min_rounds=5, disable_gc=True)


@pytest.mark.parametrize("contender", ENCODERS)
@pytest.mark.parametrize("kind", ["str", "bytes"])
@pytest.mark.parametrize("size", SIZES, ids=size_name)
def bench_size(benchmark: Any, size: int, kind: str, contender: str) -> None:
    try:
        encoder = ENCODERS[contender]()
    except Absent as error:
        pytest.skip(f"{contender}: {error}")
    texts = payloads(size)
    benchmark.group = f"encode {size_name(size)} of {kind}: {len(texts)} events"
    benchmark.extra_info.update(events=len(texts), payload_bytes=size * len(texts))
    benchmark(encode_call(encoder, texts if kind == "str" else [text.encode() for text in texts]))
