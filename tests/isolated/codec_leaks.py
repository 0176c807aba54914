"""No reference is lost: after many calls, failing ones included, there are as many blocks of memory as before."""

from __future__ import annotations

import array
import contextlib
import gc
import pickle
import sys
from collections.abc import Callable
from typing import Any

from codec_parts import load

from mcpfast.errors import EventTooLarge, MalformedLine

codec = load()
ServerSentEvent, SSEDecoder, EventWriter = (codec[name] for name in ("ServerSentEvent", "SSEDecoder", "EventWriter"))
encode_event, encode_comment = codec["encode_event"], codec["encode_comment"]

BIG = b"y" * 1500
STREAM = (
    b"\xef\xbb\xbfdata: a\n\nid: 1\xc3\xa9\nevent: tick\nretry: 70000\ndata: b\r\ndata: c\r\n\r\n: comment\n\nnonsense"
    b"\ndata: \xff\n\ndata: " + BIG + b"\ndata: " + BIG + b"\n\nevent: message\ndata: " + BIG + b"\n\ndata: cut o"
)


def refuse(error: type[Exception] | tuple[type[Exception], ...], call: Any, *arguments: Any, **fields: Any) -> None:
    with contextlib.suppress(error):
        call(*arguments, **fields)
        raise AssertionError(f"{call} did not raise")


def decoding() -> None:
    for size in (41, 4096, len(STREAM)):
        decoder = SSEDecoder()
        events = []
        for start in range(0, len(STREAM), size):
            events += decoder.feed(STREAM[start : start + size])
        events += decoder.close(flush=True)
        assert len(events) == 6
        for event in events:
            assert all((event.data, event.event, event.data_bytes))
            hash(event)
            repr(event)
            event.retry, event.id, event.encode()
            assert event == pickle.loads(pickle.dumps(event))
        decoder.reset()
        decoder.feed(bytearray(STREAM))
        decoder.feed(memoryview(STREAM))
        decoder.feed(array.array("B", STREAM))
    SSEDecoder().feed(STREAM)  # dropped half way through an event


def faults() -> None:
    for decoder in (SSEDecoder(max_event_bytes=2500), SSEDecoder(strict=True)):
        decoder.feed(STREAM)
        for _ in range(3):
            refuse((EventTooLarge, MalformedLine), decoder.feed, b"data: x\n\n")
            refuse((EventTooLarge, MalformedLine), decoder.close)
        decoder.reset()
        refuse(TypeError, decoder.feed, "text")
        refuse(BufferError, decoder.feed, memoryview(STREAM)[::2])
        decoder.close()
        refuse(RuntimeError, decoder.feed, bytearray(STREAM))
    refuse(ValueError, SSEDecoder, max_event_bytes=0)
    refuse(TypeError, SSEDecoder, max_event_bytes="1")


def encoding() -> None:
    for data in ("text", "té\nxt", b"bytes\r\n", bytearray(b"array"), memoryview(BIG), None):
        encode_event(data, event="é", id="7", retry=100_000)
        encode_event(data, event="", id="")
    encode_comment("a\né")
    refuse(ValueError, encode_event, "\ud800")
    refuse(ValueError, encode_event, "x", event="a\nb")
    refuse(ValueError, encode_event, bytearray(b"x"), id="é\0")
    refuse(ValueError, encode_event, "x", retry=-1)
    refuse(ValueError, encode_event, "x", retry=1 << 70)
    refuse(TypeError, encode_event, 5)
    refuse(TypeError, encode_event, "x", event=5)
    refuse(BufferError, encode_event, memoryview(BIG)[::2])
    refuse(ValueError, encode_comment, "\ud800")
    refuse(TypeError, encode_comment, 5)
    refuse(TypeError, ServerSentEvent, 5)
    refuse(ValueError, ServerSentEvent, retry=-1)
    refuse(ValueError, getattr, ServerSentEvent(data="\ud800"), "data_bytes")


def writing() -> None:
    def refusing(piece: bytes) -> None:
        raise OSError

    for write in (lambda piece: None, refusing):
        for call_soon in (None, lambda call: None):
            writer = EventWriter(write, flush_bytes=2000, call_soon=call_soon)
            for call, argument in (
                (writer.send, "x"),
                (writer.send, BIG),
                (writer.send_encoded, b"data: x\n\n"),
                (writer.send_encoded, bytearray(BIG)),
                (writer.comment, "é"),
            ):
                with contextlib.suppress(OSError):
                    call(argument)
            refuse(ValueError, writer.send, "\ud800")
            with contextlib.suppress(OSError):
                writer.flush()
            with contextlib.suppress(OSError):
                writer.close()
            refuse(RuntimeError, writer.send, "x")


ROUNDS = 200

# References to objects that live for ever do not show in blocks.
SHARED = [None, "message", "", b"", ServerSentEvent, ServerSentEvent().event, ServerSentEvent().id]


def counts() -> list[int]:
    gc.collect()
    return [sys.getallocatedblocks(), *map(sys.getrefcount, SHARED)]


def lost(work: Callable[[], None]) -> list[int]:
    """How much each count changed in so many rounds."""
    before = counts()
    for _ in range(ROUNDS):
        work()
    return [after - count for after, count in zip(counts(), before, strict=True)]


for work in (decoding, faults, encoding, writing):
    # A leak shows in every trial; caches and free lists, which fill up once, do not.
    trials = [lost(work) for _ in range(4)]
    for name, changes in zip(["blocks of memory", *map(repr, SHARED)], zip(*trials, strict=True), strict=True):
        assert min(map(abs, changes)) < ROUNDS / 2, f"{work.__name__} changed the count of {name} by {changes}"
