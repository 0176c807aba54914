"""The shared vectors, each fed whole, byte by byte and cut at every place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference import sse_oracle

from .conftest import Codec
from .streams import bytewise, decode, every_two

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "sse_decode.json").read_text("utf-8"))

all_vectors = pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])


def check(outcome: sse_oracle.Outcome, vector: dict[str, Any]) -> None:
    got = [{"event": event.event, "data": event.data, "id": event.id} for event in outcome.events]
    assert got == vector["events"]
    assert outcome.error is None
    assert outcome.last_event_id == vector["last_event_id"]
    assert outcome.retry == vector["retry"]


@all_vectors
def test_vector_whole_bytewise_and_at_every_cut(codec: Codec, vector: dict[str, Any]) -> None:
    stream = vector["input"].encode("latin-1")
    check(decode(codec.SSEDecoder(), [stream]), vector)
    check(decode(codec.SSEDecoder(), bytewise(stream)), vector)
    for chunks in every_two(stream):
        check(decode(codec.SSEDecoder(), chunks), vector)


@all_vectors
def test_vector_with_empty_chunks_between(codec: Codec, vector: dict[str, Any]) -> None:
    stream = vector["input"].encode("latin-1")
    check(decode(codec.SSEDecoder(), [b"", *(piece for byte in bytewise(stream) for piece in (byte, b""))]), vector)


@all_vectors
def test_oracle_passes_the_vectors(vector: dict[str, Any]) -> None:
    check(sse_oracle.decode(vector["input"].encode("latin-1")), vector)


def test_vectors_are_all_there() -> None:
    assert len(VECTORS) >= 33
    assert len({vector["name"] for vector in VECTORS}) == len(VECTORS)
