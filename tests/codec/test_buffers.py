"""What may be fed, encoded and sent: any contiguous bytes-like object, and nothing of it is kept."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import sys
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Codec
from .streams import data_of

STREAM = b"data: one\n\ndata: two\ndata: three\n\ndata: cut o"
PAYLOAD = b"one\ntwo"

KINDS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytes subclass": type("Bytes", (bytes,), {}),
    "bytearray": bytearray,
    "memoryview": memoryview,
    "memoryview of bytearray": lambda data: memoryview(bytearray(data)),
    "memoryview slice": lambda data: memoryview(b"xx" + data + b"xx")[2:-2],
    "array": lambda data: array.array("B", data),
    "signed array": lambda data: array.array("b", data),
    "ctypes array": lambda data: (ctypes.c_char * len(data)).from_buffer_copy(data),
    "two dimensions": lambda data: memoryview(data).cast("B", (1, len(data))),
}
kinds = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


@kinds
def test_any_contiguous_buffer_is_decoded(codec: Codec, make: Callable[[bytes], Any]) -> None:
    assert data_of(codec, [make(STREAM)]) == ["one", "two\nthree"]


@kinds
def test_any_contiguous_buffer_is_encoded_and_sent(codec: Codec, make: Callable[[bytes], Any]) -> None:
    assert codec.encode_event(make(PAYLOAD)) == b"data: one\ndata: two\n\n"
    written: list[bytes] = []
    writer = codec.EventWriter(written.append)
    writer.send(make(PAYLOAD))
    writer.send_encoded(make(PAYLOAD))
    assert written == [b"data: one\ndata: two\n\n", PAYLOAD]
    assert {type(piece) for piece in written} == {bytes}


def test_wide_items_are_taken_as_their_bytes(codec: Codec) -> None:
    wide = array.array("I", b"data: 12345678\n\n")
    assert data_of(codec, [wide]) == ["12345678"]
    assert codec.encode_event(wide) == b"data: data: 12345678\ndata: \ndata: \n\n"


@pytest.mark.parametrize(
    "empty", [b"", bytearray(), memoryview(b""), array.array("I")], ids=lambda value: type(value).__name__
)
def test_empty_buffers_change_nothing(codec: Codec, empty: Any) -> None:
    assert data_of(codec, [empty, b"data: a\r", empty, b"\n", empty, b"\r\n"]) == ["a"]
    assert codec.encode_event(empty) == b"data: \n\n"


def test_mapped_file_is_decoded(codec: Codec, tmp_path: Any) -> None:
    path = tmp_path / "stream"
    path.write_bytes(STREAM)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert data_of(codec, [mapped]) == ["one", "two\nthree"]


STRIDED = {
    "every second byte": memoryview(STREAM + b" ")[::2],
    "backwards": memoryview(STREAM)[::-1],
}


@pytest.mark.parametrize("strided", STRIDED.values(), ids=STRIDED)
def test_memory_that_is_not_contiguous_is_refused(codec: Codec, strided: memoryview) -> None:
    """A parser elsewhere read such a view as if it were contiguous, and the bytes came out wrong."""
    decoder = codec.SSEDecoder()
    decoder.feed(b"data: a\n")
    with pytest.raises(BufferError, match=r"^chunk must be contiguous in memory$"):
        decoder.feed(strided)
    assert [event.data for event in decoder.feed(b"\n")] == ["a"]  # nothing was read of it
    with pytest.raises(BufferError, match=r"^data must be contiguous in memory$"):
        codec.encode_event(strided)
    writer = codec.EventWriter(lambda piece: None, call_soon=lambda call: None)
    with pytest.raises(BufferError, match=r"^data must be contiguous in memory$"):
        writer.send(strided)
    with pytest.raises(BufferError, match=r"^frame must be contiguous in memory$"):
        writer.send_encoded(strided)
    assert writer.buffered == 0


@pytest.mark.parametrize("value", ["data: x\n\n", None, 1, [100], object()], ids=lambda value: type(value).__name__)
def test_what_is_no_buffer_is_refused(codec: Codec, value: Any) -> None:
    kind = type(value).__name__
    with pytest.raises(TypeError, match=rf"^chunk must be bytes-like, got {kind}$"):
        codec.SSEDecoder().feed(value)
    with pytest.raises(TypeError, match=rf"^frame must be bytes-like, got {kind}$"):
        codec.EventWriter(print).send_encoded(value)
    if not isinstance(value, str | None):
        with pytest.raises(TypeError, match=rf"^data must be str, bytes-like or None, got {kind}$"):
            codec.encode_event(value)


def test_released_view_is_refused(codec: Codec) -> None:
    view = memoryview(bytearray(STREAM))
    view.release()
    for call in (codec.SSEDecoder().feed, codec.encode_event):
        with pytest.raises(ValueError, match="released memoryview"):
            call(view)


def test_chunk_may_change_and_grow_after_the_call(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    chunk = bytearray(b"data: one\n\ndata: tw")
    events = decoder.feed(chunk)
    chunk[:] = b"X" * 100_000
    chunk.clear()
    events += decoder.feed(b"o\n\n")
    assert [event.data for event in events] == ["one", "two"]


def test_chunk_is_free_again_after_a_failed_call(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    decoder.close()
    chunk = bytearray(b"data: one\n\n")
    with pytest.raises(RuntimeError):
        decoder.feed(chunk)
    chunk += b"more"  # a BufferError if somebody still held it


def test_events_do_not_keep_the_chunk(codec: Codec) -> None:
    chunk = b"data: %b\n\n" % (b"x" * 1000) * 3 + b"data: cut o"
    before = sys.getrefcount(chunk)
    decoder = codec.SSEDecoder()
    events = decoder.feed(chunk)
    assert sys.getrefcount(chunk) == before
    assert [len(event.data_bytes) for event in events] == [1000] * 3
    assert type(events[0].data_bytes) is bytes
    gc.collect()
    assert sys.getrefcount(chunk) == before


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python classes cannot be buffers before 3.12")
def test_chunk_that_calls_back_when_its_buffer_is_taken(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    seen: list[str] = []

    class Chunk:
        def __buffer__(self, flags: int) -> memoryview:
            seen.extend(event.data for event in decoder.feed(b"data: inner\n\n"))
            return memoryview(b"data: outer\n\n")

    seen.extend(event.data for event in decoder.feed(Chunk()))
    assert seen == ["inner", "outer"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python classes cannot be buffers before 3.12")
def test_chunk_that_closes_the_decoder_when_its_buffer_is_taken(codec: Codec) -> None:
    decoder = codec.SSEDecoder()

    class Chunk:
        def __buffer__(self, flags: int) -> memoryview:
            decoder.close()
            return memoryview(b"data: outer\n\n")

    with pytest.raises(RuntimeError, match=r"^decoder is closed$"):
        decoder.feed(Chunk())
