"""Named, seeded event streams, and the events a right decoder must find in them.

The streams look like what an MCP server sends: JSON-RPC messages in ``data``, ``event: message``
before it. The same name gives the same bytes on every machine and every Python, so figures of two
runs are about the same work. What the events are is known from the making, not from a decoder.

    sized(1024)                          messages of exactly 1 KiB, LF
    sized(1024, newline="\\r\\n")          the same with CRLF
    shape("keep-alives")                 a shape that leans on one branch of a decoder
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

__all__ = [
    "CHUNK_BYTES",
    "CRLF",
    "KIB",
    "LF",
    "SHAPES",
    "SIZES",
    "Event",
    "Traffic",
    "events_in_stream",
    "message",
    "messages",
    "shape",
    "size_name",
    "sized",
]

KIB = 1024
LF = "\n"
CRLF = "\r\n"

CHUNK_BYTES = 64 * KIB
"""What one read from a socket brings at most: the buffer size of asyncio's and uvloop's transports is of this order."""

SIZES = (64, 256, 1 * KIB, 16 * KIB, 256 * KIB, KIB * KIB)
"""Bytes of ``data`` of one event."""

SHAPE_STREAM_BYTES = 256 * KIB
DRIP_BYTES = 64

_WORDS = ("session", "tool", "result", "stream", "server", "resource", "prompt", "notification", "schema", "capability")
_ENDS = (*(" " for _ in range(27)), ", ", "\\n", '\\"')
_PIECES = tuple(word + end for word in _WORDS for end in _ENDS)
_SHORTEST_PIECE = min(map(len, _PIECES))


@dataclass(frozen=True)
class Event:
    """One event as a decoder reports it; ``id`` is the last event id at its dispatch."""

    data: str
    event: str = "message"
    id: str = ""


@dataclass(frozen=True, eq=False)
class Traffic:
    """A stream as it comes from a socket, and what is in it.

    Attributes:
        name: for tables and test ids.
        chunks: the stream, cut where reads would cut it.
        events: what a right decoder finds, in order.
    """

    name: str
    chunks: tuple[bytes, ...]
    events: tuple[Event, ...]

    @property
    def stream_bytes(self) -> int:
        return sum(map(len, self.chunks))


def size_name(size: int) -> str:
    """Write a number of bytes as tables do: ``64 B``, ``16 KiB``, ``1 MiB``."""
    if size >= KIB * KIB:
        return f"{size // (KIB * KIB)} MiB"
    return f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def message(size: int, rng: random.Random, request_id: int = 1) -> str:
    """Return an ASCII JSON-RPC response of exactly ``size`` bytes (at least 64).

    From 128 bytes on it is the result of a ``tools/call`` with one text block, as the official SDKs write it: compact,
    with escaped quotes and newlines in the text. Smaller ones have no room for that and carry a bare result.
    """
    if size < 64:
        raise ValueError(f"message of {size} bytes asked for, the smallest is 64")
    if size < 128:
        head, tail = f'{{"jsonrpc":"2.0","id":{request_id},"result":{{"text":"', '"}}'
    else:
        head = f'{{"jsonrpc":"2.0","id":{request_id},"result":{{"content":[{{"type":"text","text":"'
        tail = '"}],"isError":false}}'
    return head + _json_text(size - len(head) - len(tail), rng) + tail


def messages(size: int, count: int) -> tuple[str, ...]:
    """Return ``count`` different messages of ``size`` bytes each."""
    rng = random.Random(size)
    return tuple(message(size, rng, number) for number in range(1, count + 1))


def events_in_stream(size: int) -> int:
    """Tell how many events a stream of that size holds: 1 MiB of payload, and never fewer than two events.

    No more: what a socket has just read is in the processor's cache, and so should be what stands in for it.
    """
    return max(KIB * KIB // size, 2)


@lru_cache(maxsize=4)  # neighbours in a run share a stream
def sized(size: int, *, newline: str = LF) -> Traffic:
    """Return a stream of messages with ``size`` bytes of data each, in chunks of 64 KiB."""
    return _traffic(
        f"{size_name(size)} {_newline_name(newline)}",
        [Event(data) for data in messages(size, events_in_stream(size))],
        newline,
    )


@lru_cache(maxsize=4)
def shape(name: str, *, newline: str = LF) -> Traffic:
    """Return the stream called ``name``, one of `SHAPES`.

    Raises:
        KeyError: there is none of that name.
    """
    return SHAPES[name](f"{name} {_newline_name(newline)}", newline)


def _data_lines(name: str, newline: str) -> Traffic:
    """256 lines of 32 bytes to an event: joining ``data`` lines, and nothing can be sliced out whole."""
    rng = random.Random(name)
    return _traffic(
        name,
        [Event("\n".join(_json_text(32, rng) for _ in range(256))) for _ in range(SHAPE_STREAM_BYTES // (256 * 33))],
        newline,
    )


def _multibyte(name: str, newline: str) -> Traffic:
    """1 KiB messages whose text is of two, three and four byte characters: UTF-8 decoding off its ASCII path."""
    rng = random.Random(name)
    text = "äßøñ жизнь λόγος 日本語 한국어 🙂🚀 "
    events = []
    for number in range(SHAPE_STREAM_BYTES // KIB):
        words = "".join(rng.choices(text, k=400))
        events.append(
            Event(f'{{"jsonrpc":"2.0","id":{number},"result":{{"content":[{{"type":"text","text":"{words}"}}]}}}}')
        )
    return _traffic(name, events, newline)


def _keep_alives(name: str, newline: str) -> Traffic:
    """Three comment blocks before each small event: a stream that is mostly idle."""
    return _traffic(name, [Event(data) for data in messages(256, 1024)], newline, before=": keep-alive\n\n" * 3)


def _drip(name: str, newline: str) -> Traffic:
    """16 KiB messages in pieces of 64 bytes: the cost of a feed, and of an event that spans hundreds of them."""
    events = [Event(data) for data in messages(16 * KIB, SHAPE_STREAM_BYTES // (16 * KIB))]
    return _traffic(name, events, newline, chunk_bytes=DRIP_BYTES)


def _ids(name: str, newline: str) -> Traffic:
    """An ``id`` line in each event, as a resumable stream has it."""
    events = [Event(data, id=f"stream-1/{number}") for number, data in enumerate(messages(256, 1024))]
    return _traffic(name, events, newline)


SHAPES: dict[str, Callable[[str, str], Traffic]] = {
    "data-lines": _data_lines,
    "multibyte": _multibyte,
    "keep-alives": _keep_alives,
    "drip": _drip,
    "ids": _ids,
}
"""What makes each shape; the docstrings say which branch it stresses."""


def _json_text(length: int, rng: random.Random) -> str:
    """Return ``length`` characters of a JSON string's inside: words, with an escape now and then."""
    text = "".join(rng.choices(_PIECES, k=length // _SHORTEST_PIECE + 1))[:length]
    # The cut may fall inside an escape and leave a lone backslash, which would eat the closing quote.
    return text[:-1] + "." if text.endswith("\\") else text


def _traffic(
    name: str, events: list[Event], newline: str, *, before: str = "", chunk_bytes: int = CHUNK_BYTES
) -> Traffic:
    blocks = (before + _block(event) for event in events)
    stream = "".join(blocks).replace("\n", newline).encode()
    chunks = tuple(stream[at : at + chunk_bytes] for at in range(0, len(stream), chunk_bytes))
    return Traffic(name, chunks, tuple(events))


def _block(event: Event) -> str:
    return "\n".join((*_lines(event), "", ""))


def _lines(event: Event) -> Iterator[str]:
    if event.id:
        yield f"id: {event.id}"
    yield f"event: {event.event}"
    for line in event.data.split("\n"):
        yield f"data: {line}"


def _newline_name(newline: str) -> str:
    return {LF: "LF", CRLF: "CRLF"}[newline]
