"""Decoding a chunked request body (RFC 9112 §7.1), to the letter and within limits.

httptools could do it, but it does not say where the body ended, hands trailers out as if they were
header fields, and puts no bound on chunk extensions.
"""

from __future__ import annotations

import re

__all__ = ["ChunkedDecoder", "MalformedChunk"]

# Eight digits are 4 GiB less one, far over any limit of ours: a longer size is refused as malformed.
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_SIZE_LINE_WITH_EXTENSION = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*;[^\r\n\0]*\r\n")
_TRAILER_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*\r\n")

_MAX_LINE_BYTES = 4096
# Framing that is more than so much over 16 bytes for each chunk and the size of its data is no
# honest client's: without a bound, extensions let a peer send for ever and never count (CVE-2023-39326).
_MAX_EXCESS_BYTES = 16 << 10
_MAX_TRAILER_BYTES = 16 << 10

# Chunks decoded in one call: one byte each at the worst, so that a call stays under 10 ms.
_CHUNKS_PER_CALL = 4096


class MalformedChunk(Exception):
    """The body breaks the rules of the chunked coding; its end cannot be known."""


class ChunkedDecoder:
    """Takes a chunked body out of a connection's input, piece by piece."""

    __slots__ = ("_excess", "_in_trailers", "_left", "_trailer_bytes", "body", "is_complete", "max_bytes", "size")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.body = bytearray()
        """The data so far; no more is added once ``size`` is over ``max_bytes``."""
        self.size = 0
        """Bytes of data so far, whether they are kept or not."""
        self.is_complete = False
        self._left = 0  # of a chunk's data and the CRLF after it; 0: a size line comes next
        self._excess = 0
        self._in_trailers = False
        self._trailer_bytes = 0

    def feed(self, data: bytes | bytearray, pos: int) -> int:
        """Decode ``data`` from ``pos`` on and return where it stopped.

        It stops at the end of the body (``is_complete``), where more input is needed, or, to let others
        have a turn, after some thousand chunks: then call again with the rest.

        Raises:
            MalformedChunk: the rules are broken, or the framing is out of proportion to the data.
        """
        end = len(data)
        for _ in range(_CHUNKS_PER_CALL):
            if self._left:
                pos = self._take_rest(data, pos)
                if self._left:
                    return pos
            if self._in_trailers:
                return self._skip_trailers(data, pos)
            found = _SIZE_LINE.match(data, pos)
            if found is None:
                found = self._size_line_with_extension(data, pos)
                if found is None:
                    return pos
            size = int(found[1], 16)
            pos = found.end()
            if size == 0:
                self._in_trailers = True
                continue
            self.size += size
            data_end = pos + size
            if data_end + 2 <= end and data[data_end : data_end + 2] == b"\r\n":
                if self.size <= self.max_bytes:
                    self.body += data[pos:data_end]
                pos = data_end + 2
            else:
                self._left = size + 2
        return pos

    def _take_rest(self, data: bytes | bytearray, pos: int) -> int:
        """Take what is here of a chunk whose size line was read, and of the CRLF after it."""
        end = len(data)
        left = self._left
        if left > 2:
            taken = min(left - 2, end - pos)
            if self.size <= self.max_bytes:
                self.body += data[pos : pos + taken]
            pos += taken
            left -= taken
        while 0 < left <= 2 and pos < end:
            if data[pos] != (13 if left == 2 else 10):
                raise MalformedChunk("chunk data is not followed by CRLF")
            pos += 1
            left -= 1
        self._left = left
        return pos

    def _size_line_with_extension(self, data: bytes | bytearray, pos: int) -> re.Match[bytes] | None:
        """Match a size line with an extension; None if it is not all here yet."""
        found = _SIZE_LINE_WITH_EXTENSION.match(data, pos)
        if found is not None:
            size = found.end() - pos
            self._excess = max(self._excess + size - 16 - 2 * int(found[1], 16), 0)
            if size > _MAX_LINE_BYTES or self._excess > _MAX_EXCESS_BYTES:
                raise MalformedChunk("chunk extensions are too large")
            return found
        line_end = data.find(b"\n", pos, pos + _MAX_LINE_BYTES)
        if line_end >= 0 or len(data) - pos >= _MAX_LINE_BYTES:
            raise MalformedChunk("malformed chunk size line")
        return None

    def _skip_trailers(self, data: bytes | bytearray, pos: int) -> int:
        """Drop trailer fields: nothing in MCP uses them, and merging them into the head is a known hole."""
        while True:
            line_end = data.find(b"\n", pos)
            if self._trailer_bytes + (line_end if line_end >= 0 else len(data)) - pos > _MAX_TRAILER_BYTES:
                raise MalformedChunk("trailers are too large")
            if line_end < 0:
                return pos
            line_end += 1
            if line_end - pos == 2 and data[pos] == 13:
                self.is_complete = True
                return line_end
            if _TRAILER_LINE.fullmatch(data, pos, line_end) is None:
                raise MalformedChunk("malformed trailer field")
            self._trailer_bytes += line_end - pos
            pos = line_end
