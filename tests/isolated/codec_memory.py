"""Memory stays flat over ten million events, and over a stream of 1 GiB."""

from __future__ import annotations

import sys

from codec_parts import load, peak_bytes

MIB = 1 << 20

codec = load()
# The pure implementation gets a share: a leak would show as well, and it takes far longer.
share = 1 if sys.argv[1] == "cython" else 25


def decode(chunk: bytes, times: int) -> int:
    """Decode a stream of ``times`` chunks, and read some of its data."""
    decoder = codec["SSEDecoder"]()
    count = 0
    for _ in range(times):
        events = decoder.feed(chunk)
        count += len(events)
        assert all((events[0].data, events[1].data_bytes))
    return count


# Events of several lines, and chunks that end inside one.
stream = (
    b"a 0123456789\n\nid: 12345\nevent: tick\ndata: 0123456789\ndata: x\n\n" * 1200
    + b"id: 6\nevent: e\ndata: cut off with "
)
decode(stream, 100)
before = peak_bytes()
count = 0
while count < 10_000_000 // share:
    count += decode(stream, 100)
grown = peak_bytes() - before
assert grown < 4 * MIB, f"{count} events made memory grow by {grown / MIB:.1f} MiB"

# Events of 1 KiB in chunks of 64 KiB that end inside one.
event = b"data: " + b"x" * 1016 + b"\n\n"
first = event * 64 + event[:100]
later = event[100:] + event * 63 + event[:100]
before = peak_bytes()
decoder = codec["SSEDecoder"]()
total = count = 0
while total < (1 << 30) // share:
    chunk = later if total else first
    for decoded in decoder.feed(chunk):
        count += 1
        assert len(decoded.data) == 1016
    total += len(chunk)
grown = peak_bytes() - before
assert count == total // 1024
assert grown < 64 * MIB, f"a stream of {total / MIB:.0f} MiB made memory grow by {grown / MIB:.1f} MiB"
