"""Any bytes give events or a documented error, the same from both implementations and the oracle, however cut.

With atheris (coverage-guided; Linux and macOS)::

    python -m tests.fuzz.fuzz_codec -max_total_time=600 corpus/

Inputs it finds become vectors.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

from mcpfast._switches import load_extension
from mcpfast.codec import _decoder_py, _encoder_py
from tests.codec.streams import decode, facts
from tests.reference import sse_oracle

_compiled = load_extension("mcpfast.codec._codec_c")
DECODERS: list[Any] = [_decoder_py.SSEDecoder]
ENCODERS: list[Any] = [_encoder_py.encode_event]
if _compiled is not None:
    DECODERS.append(_compiled.SSEDecoder)
    ENCODERS.append(_compiled.encode_event)


def check(data: bytes) -> None:
    """Read options and cuts from the first four bytes, and the stream from the rest."""
    options, limit, first, step = (data[:4] + bytes(4))[:4]
    stream = data[4:]
    fields: dict[str, Any] = {"strict": bool(options & 1)}
    if options & 2:
        fields["max_event_bytes"] = limit + 1
    flush = bool(options & 4)
    want = sse_oracle.decode(
        stream,
        limit=fields.get("max_event_bytes", sse_oracle.DEFAULT_LIMIT),
        strict=fields["strict"],
        flush=flush,
    )
    edges = [0, *range(first, len(stream), step + 1), len(stream)]
    chunks = [stream[start:stop] for start, stop in itertools.pairwise(edges)]
    for decoder in DECODERS:
        assert decode(decoder(**fields), [stream], flush=flush) == want
        assert decode(decoder(**fields), chunks, flush=flush) == want

    frames = {encode(stream, event="e", id="i", retry=limit) for encode in ENCODERS}
    assert len(frames) == 1
    (frame,) = frames
    for decoder in DECODERS:
        (event,) = decoder().feed(frame)
        assert event.data_bytes == stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        assert facts(event) == sse_oracle.Event("e", event.data, "i", limit)


def main() -> None:
    import atheris

    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
