"""Events to bytes, in pure Python: the reference for the compiled twin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ._common import as_bytes, check_retry, data_type_error, encode_name, encode_text

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LINE_END = re.compile(rb"\r\n|\r|\n")


def encode_event(
    data: str | Buffer | None = None, *, event: str | None = None, id: str | None = None, retry: int | None = None
) -> bytes:
    """Return one event as it goes on the wire, ready to be sent in one piece.

    Lines end in LF, which every receiver takes, and stand in the order event, id, retry, data. A space follows
    the colon, except that an empty event or id ends at it.

    Args:
        data: the payload, text or contiguous bytes-like. CR, LF and CRLF end its lines, and each line becomes a
            ``data:`` line, so receivers get LF for all three. Bytes are passed on as they are; what is no UTF-8 in
            them becomes U+FFFD at the receiver. None writes no such line, and receivers dispatch no event.
        event: the event's type; None writes none.
        id: the last event id; None writes none, ``""`` clears the receiver's.
        retry: reconnection time in milliseconds; None writes none.

    Returns:
        The frame, with the blank line that ends it. With no argument at all just that line.

    Raises:
        TypeError: a field is of another type (a bool is no retry).
        ValueError: CR or LF in event or id, NUL in id, a lone surrogate anywhere, a retry below 0 or over
            ``2**63 - 1``.
        BufferError: data is not contiguous in memory.

    Source: WHATWG HTML, 9.2.5 "Parsing an event stream".
    """
    # Every argument is checked before anything is built, in the order they are written here.
    payload = None if data is None else _payload(data)
    head = b""
    if event is not None:
        value = encode_name("event", event)
        head = b"event: %b\n" % value if value else b"event:\n"
    if id is not None:
        value = encode_name("id", id)
        head += b"id: %b\n" % value if value else b"id:\n"
    milliseconds = check_retry(retry)
    if milliseconds is not None:
        head += b"retry: %d\n" % milliseconds
    if payload is None:
        return head + b"\n"
    if b"\r" in payload:
        payload = _LINE_END.sub(b"\ndata: ", payload)
    elif b"\n" in payload:
        payload = payload.replace(b"\n", b"\ndata: ")
    return b"%bdata: %b\n\n" % (head, payload)


def encode_comment(text: str = "") -> bytes:
    """Return a comment, which receivers ignore: it keeps a quiet connection from being cut.

    Each line of ``text`` becomes a line of its own. No blank line follows, so the comment may also stand
    inside an event, and a receiver that reports something at every blank line has nothing to report.

    Raises:
        TypeError: text is no str.
        ValueError: it holds a lone surrogate.
    """
    lines = _LINE_END.split(encode_text("text", text))
    return b"".join(b": %b\n" % line if line else b":\n" for line in lines)


def _payload(data: str | Buffer) -> bytes:
    if isinstance(data, str):
        return encode_text("data", data)
    if type(data) is bytes:
        return data
    try:
        return as_bytes("data", data)
    except TypeError:
        raise data_type_error(data) from None
