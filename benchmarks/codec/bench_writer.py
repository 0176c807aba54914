"""``EventWriter``, by pytest-benchmark: a burst of events in one turn of the loop, in as few writes as it can."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.codec.cases import burst, writer_call
from benchmarks.contenders import WRITERS, Absent
from benchmarks.fixtures import SIZES, size_name

pytestmark = pytest.mark.benchmark(max_time=0.2, min_rounds=5, disable_gc=True)


@pytest.mark.parametrize("contender", WRITERS)
@pytest.mark.parametrize("size", SIZES, ids=size_name)
def bench_burst(benchmark: Any, size: int, contender: str) -> None:
    try:
        writer = WRITERS[contender]()
    except Absent as error:
        pytest.skip(f"{contender}: {error}")
    texts = burst(size)
    benchmark.group = f"write {size_name(size)}: {len(texts)} events"
    benchmark.extra_info.update(events=len(texts), payload_bytes=size * len(texts))
    benchmark(writer_call(writer, texts))
