"""Heads of HTTP/1.1 messages: a request's target and fields read, an answer's status and fields written.

Functions without state. Field syntax is httptools' work; what it lets through is caught here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from time import gmtime, time
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from .interface import HeaderList, Headers

__all__ = [
    "NO_BODY_STATUSES",
    "BadRequest",
    "date_now",
    "encode_head",
    "encode_whole_head",
    "read_content_length",
    "read_framing",
    "split_request_line",
    "split_target",
    "status_line",
]


class BadRequest(Exception):
    """A request that is refused before its handler is called.

    Attributes:
        status: what to answer.
        reason: what is counted in the statistics.
    """

    def __init__(self, status: int, reason: str = "bad_request") -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


# A request target is visible ASCII, without a fragment (RFC 9112 §3.2); anything else comes from no
# client that encodes its URLs, and two readers would take it in two ways.
_ABSOLUTE_PATH = re.compile(rb"/[!\"$-~]*")
_ABSOLUTE_FORM = re.compile(rb"https?://([^/#@\s]+)(/[!\"$-~]*)?", re.IGNORECASE)
_QUERY = re.compile(rb"[!\"$-~]*")
# host[:port] of RFC 3986 §3.2.2, user information excluded (RFC 9110 §4.2.4).
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~%!$&'()*+,;=]*)(?::[0-9]*)?")


def split_request_line(head: bytes) -> tuple[bytes, bytes, bool]:
    """Return (method, target, whether the version is HTTP/1.0) from the first line of ``head``.

    httptools takes line breaks before the method, several spaces, a line without version, and other protocols;
    RFC 9112 §3 does not.

    Raises:
        BadRequest: it is no request line, or one of a version not spoken here.
    """
    parts = head[: head.index(b"\r\n")].split(b" ")
    if len(parts) != 3:
        raise BadRequest(400)
    method, target, version = parts
    if method != method.strip():
        raise BadRequest(400)
    if version == b"HTTP/1.1":
        return method, target, False
    if version == b"HTTP/1.0":
        return method, target, True
    raise BadRequest(505 if _VERSION.fullmatch(version) else 400)


_VERSION = re.compile(rb"HTTP/[0-9]\.[0-9]")


def split_target(target: bytes) -> tuple[str, str, bytes | None]:
    """Return (path percent-decoded, query as it came, authority if the target named one).

    Raises:
        BadRequest: it is no origin-form or absolute-form target (RFC 9112 §3.2).
    """
    path, mark, query = target.partition(b"?")
    if mark and _QUERY.fullmatch(query) is None:
        raise BadRequest(400)
    text, authority = _read_path(path)
    return text, query.decode("ascii"), authority


@lru_cache(256)
def _read_path(path: bytes) -> tuple[str, bytes | None]:
    """The part of :func:`split_target` that most requests share; a query may be a secret, and is not kept."""
    authority = None
    if _ABSOLUTE_PATH.fullmatch(path) is None:
        found = _ABSOLUTE_FORM.fullmatch(path)
        if found is None or not _is_host(found[1]):
            raise BadRequest(400)
        authority = found[1]
        path = found[2] or b"/"
    text = path.decode("ascii")
    return unquote(text, errors="replace") if "%" in text else text, authority


def read_framing(headers: Headers, is_http10: bool) -> tuple[int, bool, bool]:
    """Return (content-length or 0, whether the body is chunked, whether 100 Continue is waited for).

    Raises:
        BadRequest: no Host or two (RFC 9112 §3.2), a length or coding that two readers could take in
            two ways (§6.3), an expectation other than 100-continue (RFC 9110 §10.1.1).
    """
    values = headers.fields
    if len(values) != len(headers.raw):
        names = [name for name, _ in headers.raw]
        if any(names.count(name) > 1 for name in _ONCE_ONLY):
            raise BadRequest(400)
    host = values.get(b"host")
    if not (is_http10 if host is None else _is_host(host)):
        raise BadRequest(400)
    length = values.get(b"content-length")
    coding = values.get(b"transfer-encoding")
    expected = values.get(b"expect")
    if coding is not None:
        if length is not None or is_http10:
            raise BadRequest(400)
        if coding.lower() != b"chunked":
            raise BadRequest(501)
    if expected is not None and expected.lower() != b"100-continue":
        raise BadRequest(417)
    return (
        0 if length is None else read_content_length(length),
        coding is not None,
        expected is not None and not is_http10,
    )


_ONCE_ONLY = (b"host", b"content-length", b"transfer-encoding", b"expect")


def read_content_length(value: bytes) -> int:
    """Return the number; raise BadRequest for anything but digits, such as a sign or a list."""
    # 18 digits are beyond any limit; isdigit() of bytes takes ASCII only.
    if not value.isdigit() or len(value) > 18:
        raise BadRequest(400)
    return int(value)


@lru_cache(256)
def _is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None


NO_BODY_STATUSES = frozenset({204, 304})
"""Answers that end with their head, whatever it says (RFC 9112 §6.3)."""


def status_line(status: int) -> bytes:
    """Return the first line of an answer, with its CRLF."""
    line = _status_lines.get(status)
    if line is None:
        if not 200 <= status <= 599:
            raise ValueError(f"status is {status}, a final one lies between 200 and 599")
        line = _status_lines[status] = b"HTTP/1.1 %d \r\n" % status
    return line


_status_lines = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode("ascii"))
    for status in HTTPStatus
    if 200 <= status.value <= 599
}
# RFC 9110's names, which older Pythons do not know yet.
_status_lines[413] = b"HTTP/1.1 413 Content Too Large\r\n"
_status_lines[414] = b"HTTP/1.1 414 URI Too Long\r\n"


def encode_head(status: int, headers: HeaderList) -> bytes:
    """Return status line and ``headers`` as they go on the wire, without the shell's own fields.

    Servers answer with the same few heads over and over: those given as tuples are kept.

    Raises:
        ValueError: the status is no final one, or a name or value holds CR, LF or NUL: it would end the
            field, or the head.
    """
    if type(headers) is tuple:
        known = _heads.get((status, headers))
        if known is not None:
            return known
    fields = b"".join([b"%b: %b\r\n" % field for field in headers])
    # One look at the whole instead of one for each value.
    if fields.count(b"\n") != len(headers) or fields.count(b"\r") != len(headers) or b"\0" in fields:
        raise ValueError("a header field holds CR, LF or NUL")
    head = status_line(status) + fields
    if type(headers) is tuple:
        if len(_heads) >= 256:
            _heads.clear()
        _heads[status, headers] = head
    return head


_heads: dict[tuple[int, tuple[tuple[bytes, bytes], ...]], bytes] = {}


def encode_whole_head(status: int, headers: HeaderList, size: int) -> bytes:
    """Return the head of an answer with ``size`` bytes of body, on an HTTP/1.1 connection that is kept.

    Those with ``headers`` given as a tuple are kept as long as their date is right.

    Raises:
        ValueError: as for :func:`encode_head`.
    """
    global _whole_second
    second = int(time())
    if second != _whole_second or len(_whole_heads) >= 256:
        _whole_heads.clear()
        _whole_second = second
    if type(headers) is not tuple:
        return b"%bcontent-length: %d\r\ndate: %b\r\n\r\n" % (encode_head(status, headers), size, date_now())
    key = status, headers, size
    head = _whole_heads.get(key)
    if head is None:
        head = b"%bcontent-length: %d\r\ndate: %b\r\n\r\n" % (encode_head(status, headers), size, date_now())
        _whole_heads[key] = head
    return head


_whole_heads: dict[tuple[int, tuple[tuple[bytes, bytes], ...], int], bytes] = {}
_whole_second = 0


def date_now() -> bytes:
    """Return the time as the Date field wants it, made once a second (RFC 9110 §6.6.1)."""
    global _date_second, _date
    now = int(time())
    if now != _date_second:
        year, month, day, hour, minute, second, weekday, *_ = gmtime(now)
        _date = b"%b, %02d %b %d %02d:%02d:%02d GMT" % (
            _DAYS[weekday],
            day,
            _MONTHS[month - 1],
            year,
            hour,
            minute,
            second,
        )
        _date_second = now
    return _date


_date_second = 0
_date = b""
# Not strftime, whose names follow the locale.
_DAYS = (b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun")
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
