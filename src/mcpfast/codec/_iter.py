"""Decoding a whole stream of chunks, for code that would rather iterate than feed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable
from typing import TYPE_CHECKING

from ._common import DEFAULT_MAX_EVENT_BYTES
from ._impl import ServerSentEvent, SSEDecoder

if TYPE_CHECKING:
    from typing_extensions import Buffer


def iter_events(
    chunks: Iterable[Buffer],
    *,
    max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES,
    strict: bool = False,
    flush: bool = False,
) -> Generator[ServerSentEvent, None, None]:
    """Yield the events of a stream that comes in chunks.

    Args:
        chunks: bytes-like objects, cut anywhere. What iterating them raises passes through.
        max_event_bytes, strict: as :class:`~mcpfast.codec.SSEDecoder`.
        flush: as :meth:`SSEDecoder.close <mcpfast.codec.SSEDecoder.close>`.

    Raises:
        EventTooLarge, MalformedLine: after the events before the fault, without waiting for another chunk.
    """
    return _iter(SSEDecoder(max_event_bytes=max_event_bytes, strict=strict), chunks, flush)


def _iter(decoder: SSEDecoder, chunks: Iterable[Buffer], flush: bool) -> Generator[ServerSentEvent, None, None]:
    for chunk in chunks:
        yield from decoder.feed(chunk)
        decoder.feed(b"")  # raises the fault that feed() met, if any
    yield from decoder.close(flush=flush)


def aiter_events(
    chunks: AsyncIterable[Buffer],
    *,
    max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES,
    strict: bool = False,
    flush: bool = False,
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield the events of a stream that comes in chunks, asynchronously.

    The iterator has ``aclose()``. When it ends, for whatever reason, it closes the iterator of ``chunks`` too,
    if that can be closed: an async generator left open would be closed who knows when.

    Args:
        chunks: bytes-like objects, cut anywhere. What iterating them raises passes through.
        max_event_bytes, strict: as :class:`~mcpfast.codec.SSEDecoder`.
        flush: as :meth:`SSEDecoder.close <mcpfast.codec.SSEDecoder.close>`.

    Raises:
        EventTooLarge, MalformedLine: after the events before the fault, without waiting for another chunk.
    """
    return _aiter(SSEDecoder(max_event_bytes=max_event_bytes, strict=strict), chunks, flush)


async def _aiter(
    decoder: SSEDecoder, chunks: AsyncIterable[Buffer], flush: bool
) -> AsyncGenerator[ServerSentEvent, None]:
    source = chunks.__aiter__()
    try:
        async for chunk in source:
            for event in decoder.feed(chunk):
                yield event
            decoder.feed(b"")  # raises the fault that feed() met, if any
        for event in decoder.close(flush=flush):
            yield event
    finally:
        aclose = getattr(source, "aclose", None)
        if aclose is not None:
            await aclose()
