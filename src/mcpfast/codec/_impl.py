"""The one place that picks between the compiled codec and the pure one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpfast._switches import load_extension

__all__ = [
    "IMPLEMENTATION",
    "EventWriter",
    "SSEDecoder",
    "ServerSentEvent",
    "build_event",
    "encode_comment",
    "encode_event",
]

_compiled = load_extension("mcpfast.codec._codec_c")

# Type checkers see the pure implementation, which is the reference.
if TYPE_CHECKING or _compiled is None:
    from ._decoder_py import SSEDecoder
    from ._encoder_py import encode_comment, encode_event
    from ._event_py import ServerSentEvent, from_wire
    from ._writer_py import EventWriter
else:
    ServerSentEvent = _compiled.ServerSentEvent
    SSEDecoder = _compiled.SSEDecoder
    EventWriter = _compiled.EventWriter
    encode_event = _compiled.encode_event
    encode_comment = _compiled.encode_comment
    from_wire = _compiled.from_wire

IMPLEMENTATION = "python" if _compiled is None else "cython"


def build_event(event: str, data: str | bytes, id: str, retry: int | None) -> ServerSentEvent:
    """Build an event as this process has them; what a pickled event names, whichever twin pickled it."""
    if isinstance(data, bytes):
        return from_wire(event, data, id, retry)
    return ServerSentEvent(event, data, id, retry)


build_event.__module__ = "mcpfast.codec"
