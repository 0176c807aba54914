"""Events to a byte sink, in pure Python: the reference for the compiled twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from ._common import DEFAULT_FLUSH_BYTES, as_bytes, check_callable, check_size, refuse_closed
from ._encoder_py import encode_comment, encode_event

if TYPE_CHECKING:
    from typing_extensions import Buffer


class EventWriter:
    """Encodes events into one buffer and hands it on in one piece. Owned by one task at a time.

    The buffer goes to ``write`` at :meth:`flush`; once it holds ``flush_bytes``; and, with a loop's
    ``call_soon``, at the end of the loop's turn, for which it is asked at most once per turn. Without
    ``call_soon`` every call that adds something flushes.

    Nothing is lost in silence. What ``write`` raises reaches the caller of the flush (the loop's exception
    handler, if that was the loop), and the bytes it was given stay buffered, first in line for the next flush.
    A call with a bad argument leaves the buffer as it was. ``write`` may call back: what it sends follows what
    it is writing.

    Args:
        write: takes bytes, such as a transport's ``write``. Its result is ignored.
        flush_bytes: how many buffered bytes force a flush. 64 KiB unless given.
        call_soon: takes a callable to be called later, once, such as ``loop.call_soon``.

    Raises:
        TypeError: write or call_soon is not callable, or flush_bytes no int.
        ValueError: flush_bytes is less than 1.
    """

    __slots__ = ("_again", "_buffer", "_call_soon", "_closed", "_flush_bytes", "_scheduled", "_write", "_writing")

    _buffer: bytearray  # frames not yet handed to write
    _scheduled: bool  # call_soon was asked, and has not called yet
    _writing: bool  # inside write
    _again: bool  # a flush was wanted inside write: do it when write returns

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        flush_bytes: int = DEFAULT_FLUSH_BYTES,
        call_soon: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        check_callable("write", write)
        if call_soon is not None:
            check_callable("call_soon", call_soon)
        self._write = write
        self._flush_bytes = check_size("flush_bytes", flush_bytes)
        self._call_soon = call_soon
        self._buffer = bytearray()
        self._closed = False
        self._scheduled = False
        self._writing = False
        self._again = False

    @property
    def buffered(self) -> int:
        """How many bytes wait to be written."""
        return len(self._buffer)

    def send(
        self,
        data: str | Buffer | None = None,
        *,
        event: str | None = None,
        id: str | None = None,
        retry: int | None = None,
    ) -> None:
        """Send one event, as :func:`~mcpfast.codec.encode_event` encodes it.

        Raises:
            RuntimeError: the writer is closed.
            TypeError, ValueError, BufferError: as ``encode_event``.
        """
        if self._closed:
            refuse_closed("writer")
        self._add(encode_event(data, event=event, id=id, retry=retry))

    def send_encoded(self, frame: Buffer) -> None:
        """Send a frame that is encoded already, so that one event for many receivers is encoded once.

        Args:
            frame: what ``encode_event`` or ``encode_comment`` returned; it is not looked into.
        """
        if self._closed:
            refuse_closed("writer")
        self._add(frame if type(frame) is bytes else as_bytes("frame", frame))

    def comment(self, text: str = "") -> None:
        """Send a comment, as :func:`~mcpfast.codec.encode_comment` encodes it."""
        if self._closed:
            refuse_closed("writer")
        self._add(encode_comment(text))

    def flush(self) -> None:
        """Write what is buffered, in one piece. Also after :meth:`close`, if its own flush failed."""
        if self._writing:
            self._again = True
            return
        while self._buffer:
            piece = bytes(self._buffer)
            self._buffer = bytearray()
            self._writing = True
            self._again = False
            try:
                self._write(piece)
            except BaseException:
                self._buffer[:0] = piece
                raise
            finally:
                self._writing = False
            if not self._again:
                break

    def close(self) -> None:
        """Flush, then refuse everything but :meth:`flush`. Closing twice is fine."""
        if not self._closed:
            self._closed = True
            self.flush()

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle 'EventWriter' object")

    def _add(self, frame: bytes) -> None:
        self._buffer += frame
        if self._call_soon is None or len(self._buffer) >= self._flush_bytes:
            self.flush()
        elif not self._scheduled:
            self._call_soon(self._turn_over)
            self._scheduled = True

    def _turn_over(self) -> None:
        self._scheduled = False
        self.flush()
