"""The traffic of the benchmarks is what its names say, and the same everywhere."""

from __future__ import annotations

import hashlib
import json
import random

import pytest

from benchmarks.fixtures import CHUNK_BYTES, CRLF, LF, SHAPES, SIZES, Event, Traffic, message, shape, size_name, sized

newlines = pytest.mark.parametrize("newline", [LF, CRLF], ids=["LF", "CRLF"])


def digest(traffic: Traffic) -> str:
    return hashlib.sha256(b"".join(traffic.chunks)).hexdigest()[:16]


@pytest.mark.parametrize("size", SIZES, ids=size_name)
def test_each_payload_is_json_rpc_of_exactly_the_named_size(size: int) -> None:
    events = sized(size).events
    assert {len(event.data.encode()) for event in events} == {size}
    found = [json.loads(event.data) for event in events]
    assert all(value["jsonrpc"] == "2.0" and "result" in value for value in found)
    assert [value["id"] for value in found] == list(range(1, len(events) + 1))


def test_a_message_of_any_size_is_valid_json_wherever_its_text_is_cut() -> None:
    for size in range(64, 2000):
        text = message(size, random.Random(size), request_id=123456)
        assert len(text) == size
        json.loads(text)


def test_a_message_too_small_for_json_rpc_is_refused() -> None:
    with pytest.raises(ValueError, match="63 bytes"):
        message(63, random.Random(0))


@newlines
@pytest.mark.parametrize("size", SIZES, ids=size_name)
def test_a_sized_stream_holds_its_events_and_nothing_else(size: int, newline: str) -> None:
    traffic = sized(size, newline=newline)
    overhead = len(f"event: message{newline}data: {newline}{newline}")
    assert len(traffic.events) == max(1024 * 1024 // size, 2)
    assert traffic.stream_bytes == len(traffic.events) * (size + overhead)
    assert all(event == Event(event.data, "message", "") for event in traffic.events)


@newlines
@pytest.mark.parametrize("name", SHAPES)
def test_a_stream_is_one_block_per_event_in_the_newline_of_its_name(name: str, newline: str) -> None:
    stream = b"".join(shape(name, newline=newline).chunks).decode()
    events = shape(name, newline=newline).events
    assert ("\r" in stream) is (newline == CRLF)
    assert stream.replace(CRLF, "").count(LF) == (0 if newline == CRLF else stream.count(LF))
    blocks = [block for block in stream.split(newline * 2) if block and not block.startswith(":")]
    assert len(blocks) == len(events)
    for block, event in zip(blocks, events, strict=True):
        data = [line.removeprefix("data: ") for line in block.split(newline) if line.startswith("data: ")]
        assert "\n".join(data) == event.data


@newlines
def test_chunks_are_what_a_socket_reads_and_join_to_the_stream(newline: str) -> None:
    traffic = sized(1024, newline=newline)
    assert {len(chunk) for chunk in traffic.chunks[:-1]} == {CHUNK_BYTES}
    assert 0 < len(traffic.chunks[-1]) <= CHUNK_BYTES


def test_each_shape_leans_on_the_branch_it_is_named_after() -> None:
    assert all(event.data.count("\n") == 255 for event in shape("data-lines").events)
    assert all(max(map(ord, event.data)) > 0xFFFF for event in shape("multibyte").events)
    assert b"".join(shape("keep-alives").chunks).count(b": keep-alive\n\n") == 3 * len(shape("keep-alives").events)
    assert {len(chunk) for chunk in shape("drip").chunks[:-1]} == {64}
    assert [event.id for event in shape("ids").events][:2] == ["stream-1/0", "stream-1/1"]


@newlines
@pytest.mark.parametrize("name", [*SHAPES, *map(size_name, SIZES[:4])])
def test_the_same_name_gives_the_same_stream_again(name: str, newline: str) -> None:
    def build() -> Traffic:
        sized.cache_clear()
        shape.cache_clear()
        by_size = {size_name(size): size for size in SIZES}
        return shape(name, newline=newline) if name in SHAPES else sized(by_size[name], newline=newline)

    first, second = build(), build()
    assert first is not second
    assert first.name == second.name
    assert first.chunks == second.chunks
    assert first.events == second.events


def test_the_streams_are_the_ones_that_published_figures_were_measured_on() -> None:
    """A change here makes new figures incomparable with old ones: refresh the README's when you make one."""
    assert {name: digest(shape(name)) for name in SHAPES} == {
        "data-lines": "b6bb30c0a927d12e",
        "multibyte": "8e866cbb2668f7e9",
        "keep-alives": "2a9bb044e17e2555",
        "drip": "7da0083a4a78af70",
        "ids": "9d5d5c45d9ff2319",
    }
    assert digest(sized(64)) == "e31fd761889621cb"
    assert digest(sized(16 * 1024, newline=CRLF)) == "9fadf6e84d526304"


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(KeyError):
        shape("no such shape")


def test_sizes_are_written_as_tables_show_them() -> None:
    assert [size_name(size) for size in SIZES] == ["64 B", "256 B", "1 KiB", "16 KiB", "256 KiB", "1 MiB"]
