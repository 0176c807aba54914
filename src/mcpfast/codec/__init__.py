"""Server-Sent Events: bytes to events and events to bytes, without any I/O.

What stands where:

- ``_impl.py``: picks the compiled or the pure implementation, once, at import
- ``_event_py.py``, ``_decoder_py.py``, ``_encoder_py.py``, ``_writer_py.py``: the pure one, which is the reference
- ``_codec_c.pyx``, ``_scan.h``: the compiled one, and its search for line ends
- ``_common.py``: limits, argument checks and error texts of both
- ``_iter.py``: iterating over the events of a stream
"""

from mcpfast.errors import EventTooLarge, MalformedLine

from ._impl import (
    IMPLEMENTATION,
    EventWriter,
    ServerSentEvent,
    SSEDecoder,
    build_event,  # noqa: F401 -- what pickled events name
    encode_comment,
    encode_event,
)
from ._iter import aiter_events, iter_events

__all__ = [
    "IMPLEMENTATION",
    "EventTooLarge",
    "EventWriter",
    "MalformedLine",
    "SSEDecoder",
    "ServerSentEvent",
    "aiter_events",
    "encode_comment",
    "encode_event",
    "iter_events",
]
