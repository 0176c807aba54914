"""Who runs: mcpfast compiled and pure, side by side in one process, and the packages people use today.

Each peer is driven as its own code drives it, with nothing in between that its users do not pay too:

* httpx-sse: the loop of ``EventSource.iter_sse`` over ``SSELineDecoder`` and ``SSEDecoder``;
* httpx2: ``_SSEParser``, which its ``EventSource`` iterates (the class has no public name);
* sse-starlette: ``ServerSentEvent(...).encode()``, as its response calls it for each event;
* aiohttp-sse: ``EventSourceResponse.send`` with the socket taken away, inside a running loop.

The decoding peers take text, so bytes reach them through an incremental UTF-8 decoder, as in httpx.

A loader raises `Absent` when its package is not installed. Any other failure is one: a peer that has
changed under us must not leave the tables in silence.
"""

from __future__ import annotations

import asyncio
import atexit
import codecs
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from benchmarks.fixtures import Event
from mcpfast._switches import load_extension

__all__ = [
    "AIOHTTP_SSE",
    "COMPILED",
    "DECODERS",
    "ENCODERS",
    "HTTPX2",
    "HTTPX_SSE",
    "PURE",
    "SSE_STARLETTE",
    "WRITERS",
    "Absent",
    "Decoder",
    "Encoder",
    "Writer",
    "load",
]

COMPILED = "mcpfast (cython)"
PURE = "mcpfast (python)"
HTTPX_SSE = "httpx-sse"
HTTPX2 = "httpx2"
SSE_STARLETTE = "sse-starlette"
AIOHTTP_SSE = "aiohttp-sse"

MAX_EVENT_BYTES = 16 << 20
"""Our default. httpx2 stops at 1 MiB by default, which an event with 1 MiB of data is over."""

Feed = Callable[[bytes], Iterable[Any]]
Finish = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Decoder:
    """A way from the bytes of a stream to its events.

    Attributes:
        name: the contender.
        open: starts a stream; gives the function that takes a chunk and one that ends the stream.
        has_bytes: events offer their payload undecoded, as ``data_bytes``.
    """

    name: str
    open: Callable[[], tuple[Feed, Finish]]
    has_bytes: bool = False

    def events(self, chunks: Iterable[bytes]) -> list[Event]:
        """Decode a whole stream, in the terms of the fixtures: for the check of the answer."""
        feed, finish = self.open()
        found = [event for chunk in chunks for event in feed(chunk)]
        found += finish()
        return [Event(event.data, event.event, event.id) for event in found]

    def read_data(self, chunks: Iterable[bytes]) -> None:
        """Decode, and read each payload as text."""
        feed, finish = self.open()
        for chunk in chunks:
            for event in feed(chunk):
                _ = event.data
        for event in finish():
            _ = event.data

    def read_bytes(self, chunks: Iterable[bytes]) -> None:
        """Decode, and read each payload undecoded. A contender without that gives text."""
        if not self.has_bytes:
            self.read_data(chunks)
            return
        feed, finish = self.open()
        for chunk in chunks:
            for event in feed(chunk):
                _ = event.data_bytes
        for event in finish():
            _ = event.data_bytes

    def read_json(self, chunks: Iterable[bytes]) -> None:
        """Decode, and parse each payload with the event's own ``json()``."""
        feed, finish = self.open()
        for chunk in chunks:
            for event in feed(chunk):
                event.json()
        for event in finish():
            event.json()


@dataclass(frozen=True)
class Encoder:
    """A way from payloads to the bytes of events named ``message``.

    Attributes:
        name: the contender.
        frames: encodes payloads and keeps them, for the check of the answer.
        encode_all: encodes each payload and lets go of it, as a server that has written it does.
    """

    name: str
    frames: Callable[[Sequence[Any]], list[bytes]]
    encode_all: Callable[[Sequence[Any]], None]


@dataclass(frozen=True)
class Writer:
    """A way from payloads to ``write`` calls.

    Attributes:
        name: the contender.
        send_all: sends the payloads, as events named ``message``, to a ``write`` function.
    """

    name: str
    send_all: Callable[[Sequence[str], Callable[[bytes], object]], None]


class Absent(Exception):
    """A contender cannot run here; the message says why."""


def load(loaders: dict[str, Callable[[], Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the contenders that can run, and for the others why not."""
    present: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for name, loader in loaders.items():
        try:
            present[name] = loader()
        except Absent as error:
            absent[name] = str(error)
    return present, absent


def _peer(name: str) -> ModuleType:
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        raise Absent(f"{package} is not installed")
    return importlib.import_module(name)


def _compiled_codec() -> ModuleType:
    module = load_extension("mcpfast.codec._codec_c")
    if module is None:
        raise Absent("the compiled codec is not built, or MCPFAST_NO_EXTENSIONS forbids it")
    return module


def _compiled_decoder() -> Decoder:
    return _our_decoder(COMPILED, _compiled_codec())


def _pure_decoder() -> Decoder:
    return _our_decoder(PURE, importlib.import_module("mcpfast.codec._decoder_py"))


def _our_decoder(name: str, module: ModuleType) -> Decoder:
    decoder_class = module.SSEDecoder

    def start() -> tuple[Feed, Finish]:
        decoder = decoder_class(max_event_bytes=MAX_EVENT_BYTES)
        return decoder.feed, decoder.close

    return Decoder(name, start, has_bytes=True)


def _httpx_sse_decoder() -> Decoder:
    decoders = _peer("httpx_sse._decoders")

    def start() -> tuple[Feed, Finish]:
        text = codecs.getincrementaldecoder("utf-8")("replace")
        lines, decoder = decoders.SSELineDecoder(), decoders.SSEDecoder()

        def dispatch(found: list[str]) -> Iterator[Any]:
            for line in found:
                event = decoder.decode(line.rstrip("\n"))
                if event is not None:
                    yield event

        return lambda chunk: dispatch(lines.decode(text.decode(chunk))), lambda: dispatch(lines.flush())

    return Decoder(HTTPX_SSE, start)


def _httpx2_decoder() -> Decoder:
    module = _peer("httpx2._sse")

    def start() -> tuple[Feed, Finish]:
        text = codecs.getincrementaldecoder("utf-8")("replace")
        parser = module._SSEParser(MAX_EVENT_BYTES)
        return lambda chunk: parser.decode(text.decode(chunk)), parser.flush

    return Decoder(HTTPX2, start)


def _compiled_encoder() -> Encoder:
    return _our_encoder(COMPILED, _compiled_codec())


def _pure_encoder() -> Encoder:
    return _our_encoder(PURE, importlib.import_module("mcpfast.codec._encoder_py"))


def _our_encoder(name: str, module: ModuleType) -> Encoder:
    encode_event = module.encode_event

    def encode_all(payloads: Sequence[Any]) -> None:
        for data in payloads:
            encode_event(data, event="message")

    return Encoder(name, lambda payloads: [encode_event(data, event="message") for data in payloads], encode_all)


def _sse_starlette_encoder() -> Encoder:
    event_class = _peer("sse_starlette.event").ServerSentEvent

    def encode_all(payloads: Sequence[Any]) -> None:
        # The branch is not asked for each payload: at 64 bytes it would show.
        if payloads and isinstance(payloads[0], str):
            for text in payloads:
                event_class(text, event="message").encode()
        else:
            for data in payloads:
                event_class(data.decode(), event="message").encode()

    def frames(payloads: Sequence[Any]) -> list[bytes]:
        return [event_class(_text(data), event="message").encode() for data in payloads]

    return Encoder(SSE_STARLETTE, frames, encode_all)


def _aiohttp_sse_encoder() -> Encoder:
    package = _peer("aiohttp_sse")

    class Response(package.EventSourceResponse):  # type: ignore[name-defined, misc]
        def __init__(self, sink: Callable[[bytes], object]) -> None:
            super().__init__()
            self._sink = sink

        async def write(self, data: bytes) -> None:
            self._sink(data)

    async def send_all(payloads: Sequence[Any], sink: Callable[[bytes], object]) -> None:
        response = Response(sink)
        for data in payloads:
            await response.send(_text(data), event="message")

    def frames(payloads: Sequence[Any]) -> list[bytes]:
        written: list[bytes] = []
        _loop().run_until_complete(send_all(payloads, written.append))
        return written

    def encode_all(payloads: Sequence[Any]) -> None:
        _loop().run_until_complete(send_all(payloads, lambda _: None))

    return Encoder(AIOHTTP_SSE, frames, encode_all)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all calls: the making of a loop is not what is timed."""
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


def _text(data: str | bytes) -> str:
    """Return what the peers take: they write bytes as ``b'...'``, or not at all."""
    return data if isinstance(data, str) else data.decode()


def _compiled_writer() -> Writer:
    return _our_writer(COMPILED, _compiled_codec())


def _pure_writer() -> Writer:
    return _our_writer(PURE, importlib.import_module("mcpfast.codec._writer_py"))


def _our_writer(name: str, module: ModuleType) -> Writer:
    writer_class = module.EventWriter

    def send_all(payloads: Sequence[str], write: Callable[[bytes], object]) -> None:
        # A turn of a loop that never ends before `flush`: everything goes out at 64 KiB or at the end.
        writer = writer_class(write, call_soon=lambda *_: None)
        send = writer.send
        for data in payloads:
            send(data, event="message")
        writer.flush()

    return Writer(name, send_all)


def _sse_starlette_writer() -> Writer:
    event_class = _peer("sse_starlette.event").ServerSentEvent

    def send_all(payloads: Sequence[str], write: Callable[[bytes], object]) -> None:
        for data in payloads:
            write(event_class(data, event="message").encode())

    return Writer(SSE_STARLETTE, send_all)


DECODERS: dict[str, Callable[[], Decoder]] = {
    COMPILED: _compiled_decoder,
    PURE: _pure_decoder,
    HTTPX_SSE: _httpx_sse_decoder,
    HTTPX2: _httpx2_decoder,
}

ENCODERS: dict[str, Callable[[], Encoder]] = {
    COMPILED: _compiled_encoder,
    PURE: _pure_encoder,
    SSE_STARLETTE: _sse_starlette_encoder,
    AIOHTTP_SSE: _aiohttp_sse_encoder,
}

WRITERS: dict[str, Callable[[], Writer]] = {
    COMPILED: _compiled_writer,
    PURE: _pure_writer,
    SSE_STARLETTE: _sse_starlette_writer,
}
