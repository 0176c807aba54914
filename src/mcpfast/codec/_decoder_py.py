"""Bytes to events, in pure Python: the reference for the compiled twin.

Line ends are made LF first, chunk by chunk, and a chunk is split into lines at once. What is left of it goes
to ``_tail`` (the unfinished line) and to the fields of the open block, and is never searched again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from mcpfast.errors import EventTooLarge, MalformedLine, MCPFastError

from ._common import DEFAULT_MAX_EVENT_BYTES, MAX_RETRY_MS, as_bytes, check_size, refuse_closed
from ._event_py import ServerSentEvent, from_wire

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BOM = b"\xef\xbb\xbf"
_MESSAGE_LINE = b"event: message"
_FIELDS = frozenset([b"data", b"event", b"id", b"retry"])


class SSEDecoder:
    """Turns an event stream, cut anywhere, into events. Owned by one task at a time.

    Args:
        max_event_bytes: how much of one event may be held: its data lines joined, plus the line being read,
            comments too. 16 MiB unless given.
        strict: make a line without a colon that is no field name a :class:`~mcpfast.errors.MalformedLine`.
            The standard ignores it.

    Raises:
        TypeError, ValueError: max_event_bytes is no int of at least 1.

    Source: WHATWG HTML, 9.2.5 "Parsing an event stream" and 9.2.6 "Interpreting an event stream".
    """

    __slots__ = (
        "_bom",
        "_closed",
        "_data",
        "_event",
        "_fault",
        "_id",
        "_last_event_id",
        "_limit",
        "_plain",
        "_retry",
        "_retry_here",
        "_skip_lf",
        "_strict",
        "_tail",
    )

    _fault: tuple[type[Exception], tuple[Any, ...]] | None  # what every further call raises
    _closed: bool
    _bom: int  # bytes of a BOM seen and held back at the start of the stream; -1 once past it
    _skip_lf: bool  # the last chunk ended in CR: drop one LF if it comes first
    _tail: bytearray  # the unfinished line
    _plain: bool  # the block has at most one data line, and nothing else that counts
    _data: bytes | bytearray | None  # the block's data lines, joined; a bytearray from the second on
    _event: str  # the block's event type, "" if none
    _id: str  # the last event id as the next blank line will set it
    _retry_here: int | None  # the block's reconnection time

    def __init__(self, *, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES, strict: bool = False) -> None:
        self._limit = check_size("max_event_bytes", max_event_bytes)
        self._strict = bool(strict)
        self._last_event_id = ""
        self._retry: int | None = None
        self.reset()

    @property
    def last_event_id(self) -> str:
        """The last event id of the last block that ended; ``""`` until the stream sets one."""
        return self._last_event_id

    @property
    def retry(self) -> int | None:
        """The last reconnection time the stream set, in milliseconds; None until then.

        Digits beyond ``2**63 - 1`` are read as that.
        """
        return self._retry

    def feed(self, chunk: Buffer) -> list[ServerSentEvent]:
        """Decode the next piece of a stream and return the events it completes.

        Args:
            chunk: any contiguous bytes-like object, cut anywhere, even inside CRLF or a UTF-8 character. It is
                not kept after the call.

        Returns:
            Completed events in stream order; empty while an event is unfinished. Events that stand before a
            fault are returned, and the next call raises it.

        Raises:
            EventTooLarge: an event is over ``max_event_bytes``. Raised by the call after the one that met it,
                and by every further one until :meth:`reset`.
            MalformedLine: likewise, with ``strict``.
            MemoryError: likewise, where an event could not be built.
            RuntimeError: the decoder is closed.
            TypeError: chunk is no bytes-like object.
            BufferError: chunk is not contiguous in memory.
        """
        if type(chunk) is not bytes:
            chunk = as_bytes("chunk", chunk)
        if self._fault is not None:
            self._raise_fault()
        if self._closed:
            refuse_closed("decoder")
        events: list[ServerSentEvent] = []
        try:
            self._decode(chunk, events)
        except (MCPFastError, MemoryError) as error:
            self._fail(error)
        return events

    def close(self, *, flush: bool = False) -> list[ServerSentEvent]:
        """Say that the stream has ended. Closing twice is fine.

        Args:
            flush: return an event that the end of the stream cut off, as if its line and block had ended.
                The standard drops it, and with it the id its block would have set.

        Returns:
            The cut-off event if there is one and ``flush`` asks for it.

        Raises:
            EventTooLarge, MalformedLine, MemoryError: as :meth:`feed`.
        """
        if self._fault is not None:
            self._raise_fault()
        events: list[ServerSentEvent] = []
        if self._closed:
            return events
        try:
            if self._bom > 0:
                self._grow(_BOM[: self._bom])
            if flush:
                if self._tail:
                    self._finish_line()
                self._dispatch(events)
        except (MCPFastError, MemoryError) as error:
            self._fail(error)
            self._raise_fault()
        self._clear()
        self._closed = True
        return events

    def reset(self) -> None:
        """Begin a new connection: forget what is unfinished, and any fault; keep last_event_id and retry."""
        self._fault = None
        self._closed = False
        self._bom = 0
        self._skip_lf = False
        self._clear()

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle 'SSEDecoder' object")

    def _clear(self) -> None:
        self._tail = bytearray()
        self._id = self._last_event_id
        self._end_block()

    def _end_block(self) -> None:
        self._plain = True
        self._data = None
        self._event = ""
        self._retry_here = None

    def _fail(self, error: Exception) -> None:
        # Type and facts only: a kept traceback would keep the chunk.
        self._fault = (type(error), error.args)
        self._clear()

    def _raise_fault(self) -> NoReturn:
        assert self._fault is not None
        kind, facts = self._fault
        raise kind(*facts)

    def _decode(self, chunk: bytes, events: list[ServerSentEvent]) -> None:
        if self._bom >= 0:
            chunk = self._drop_bom(chunk)
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._skip_lf = chunk[-1] == 0x0D
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

        if self._tail:
            end = chunk.find(b"\n")
            if end < 0:
                self._grow(chunk)
                return
            self._grow(chunk[:end])
            self._finish_line()
            chunk = chunk[end + 1 :]
        lines = _split(chunk)
        rest = lines.pop()
        if lines:
            self._lines(lines, events)
        if rest:
            self._grow(rest)

    def _drop_bom(self, chunk: bytes) -> bytes:
        """Hold back what may be a BOM at the start of the stream; return the rest of the chunk."""
        held = self._bom
        start = _BOM[:held] + chunk[: 3 - held]
        if start == _BOM:
            self._bom = -1
            return chunk[3 - held :]
        if _BOM.startswith(start):
            self._bom = len(start)
            return b""
        self._bom = -1
        return _BOM[:held] + chunk

    def _grow(self, piece: bytes) -> None:
        """Add to the unfinished line."""
        tail = self._tail
        if len(tail) + len(piece) + (len(self._data) if self._data is not None else 0) > self._limit:
            self._refuse_size()
        tail += piece

    def _finish_line(self) -> None:
        """The unfinished line, never an empty one, has come to its end."""
        tail = self._tail
        self._tail = bytearray()
        if tail.startswith(b"data:"):
            del tail[: 6 if tail.startswith(b" ", 5) else 5]  # moves no bytes: the value is copied once
            self._add_data(bytes(tail))
        else:
            self._line(bytes(tail))

    def _lines(self, lines: list[bytes], events: list[ServerSentEvent]) -> None:
        """Read whole lines, given without their ends."""
        limit = self._limit
        data = self._data
        for line in lines:
            if not line:
                if self._plain:
                    if type(data) is bytes:
                        events.append(from_wire("message", data, self._last_event_id, None))
                else:
                    self._data = data
                    self._dispatch(events)
                data = None
            # Nearly all lines are the first data line of their block, with a space.
            elif data is None and line.startswith(b"data: ") and len(line) <= limit:
                data = line[6:]
            # As MCP's streams have it: names the type that a plain block has anyway.
            elif line == _MESSAGE_LINE and data is None and self._plain and len(line) <= limit:
                pass
            else:
                self._data = data
                self._line(line)
                data = self._data
        self._data = data

    def _line(self, line: bytes) -> None:
        data = self._data
        if len(line) + (len(data) if data is not None else 0) > self._limit:
            self._refuse_size()
        name, colon, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._add_data(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
            self._plain = False
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
                self._plain = False
        elif name == b"retry":
            if value.isdigit():  # of bytes: ASCII digits, at least one
                self._retry = self._retry_here = _milliseconds(value)
                self._plain = False
        elif self._strict and not colon:
            raise MalformedLine(line)

    def _add_data(self, value: bytes) -> None:
        data = self._data
        if data is None:
            self._data = value
        elif type(data) is bytes:
            self._data = bytearray(b"%b\n%b" % (data, value))
            self._plain = False
        else:
            data += b"\n"
            data += value

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        """A blank line: the block has ended."""
        self._last_event_id = self._id
        if self._data is not None:
            events.append(from_wire(self._event or "message", bytes(self._data), self._id, self._retry_here))
        self._end_block()

    def _refuse_size(self) -> NoReturn:
        # The first byte too many is where counting ends, so that the figure does not depend on the cuts.
        raise EventTooLarge(self._limit + 1, self._limit)


def _split(chunk: bytes) -> list[bytes]:
    """Split at LF. bytes.split looks at each byte, find at many at once, which pays when lines are long."""
    if chunk.count(b"\n", 0, 1000) > 3:
        return chunk.split(b"\n")
    lines = []
    start = 0
    stop = chunk.find(b"\n")
    while stop >= 0:
        lines.append(chunk[start:stop])
        start = stop + 1
        stop = chunk.find(b"\n", start)
    lines.append(chunk[start:])
    return lines


def _milliseconds(digits: bytes) -> int:
    digits = digits.lstrip(b"0")
    if len(digits) > 19:  # int() refuses thousands of digits
        return MAX_RETRY_MS
    return min(int(digits or b"0"), MAX_RETRY_MS)
