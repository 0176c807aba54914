"""Heads of HTTP/1.1 messages: a request's target and fields read, an answer's status and fields written.

Functions without state. Field syntax is httptools' work; what it lets through is caught here.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from time import gmtime, time
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from .interface import HeaderList

__all__ = [
    "NO_BODY_STATUSES",
    "BadRequest",
    "Framing",
    "date_now",
    "encode_fields",
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
_ORIGIN_FORM = re.compile(rb"/[!\"$-~]*")
_ABSOLUTE_FORM = re.compile(rb"https?://([^/?#@\s]+)([/?][!\"$-~]*)?", re.IGNORECASE)
# host[:port] of RFC 3986 §3.2.2, user information excluded (RFC 9110 §4.2.4).
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~%!$&'()*+,;=]*)(?::[0-9]*)?")


def split_request_line(head: bytes) -> tuple[bytes, bytes, bool]:
    """Return (method, target, whether the version is HTTP/1.0) from the first line of ``head``.

    httptools takes several spaces, a line without version, and other protocols; RFC 9112 §3 does not.

    Raises:
        BadRequest: it is no request line, or one of a version not spoken here.
    """
    parts = head[: head.index(b"\r\n")].split(b" ")
    if len(parts) != 3:
        raise BadRequest(400)
    method, target, version = parts
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
    authority = None
    if _ORIGIN_FORM.fullmatch(target) is None:
        found = _ABSOLUTE_FORM.fullmatch(target)
        if found is None or _HOST.fullmatch(found[1]) is None:
            raise BadRequest(400)
        authority = found[1]
        target = found[2] or b"/"
        if target[:1] == b"?":
            target = b"/" + target
    path, _, query = target.decode("ascii").partition("?")
    if "%" in path:
        path = unquote(path, errors="replace")
    return path, query, authority


class Framing:
    """What a request's head says of its body and its host."""

    __slots__ = ("content_length", "expects_continue", "is_chunked")

    def __init__(self) -> None:
        self.content_length = 0
        self.is_chunked = False
        self.expects_continue = False


NO_BODY = Framing()
_FRAMING_FIELDS = frozenset({b"content-length", b"expect", b"host", b"transfer-encoding"})


def read_framing(fields: list[tuple[bytes, bytes]], is_http10: bool) -> Framing:
    """Check the fields that decide where the request ends and whom it is for.

    Raises:
        BadRequest: no Host or two (RFC 9112 §3.2), a length or coding that two readers could take in
            two ways (§6.3), an expectation other than 100-continue (RFC 9110 §10.1.1).
    """
    framing = NO_BODY
    hosts = lengths = 0
    for name, value in fields:
        if name not in _FRAMING_FIELDS:
            continue
        if name == b"host":
            hosts += 1
            if _HOST.fullmatch(value) is None:
                raise BadRequest(400)
            continue
        if framing is NO_BODY:
            framing = Framing()
        if name == b"content-length":
            lengths += 1
            # 18 digits are beyond any limit; isdigit() of bytes takes ASCII only, and no sign or blank.
            if not value.isdigit() or len(value) > 18:
                raise BadRequest(400)
            framing.content_length = int(value)
        elif name == b"transfer-encoding":
            if framing.is_chunked or is_http10:
                raise BadRequest(400)
            if value.lower() != b"chunked":
                raise BadRequest(501)
            framing.is_chunked = True
        elif value.lower() != b"100-continue":
            raise BadRequest(417)
        else:
            framing.expects_continue = not is_http10
    if hosts != 1 and (hosts or not is_http10):
        raise BadRequest(400)
    if lengths > 1 or (lengths and framing.is_chunked):
        raise BadRequest(400)
    return framing


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


def encode_fields(headers: HeaderList) -> bytes:
    """Return ``headers`` as they go on the wire, each with its CRLF.

    Raises:
        ValueError: a name or value holds CR, LF or NUL: it would end the field, or the head.
    """
    fields = b"".join([b"%b: %b\r\n" % field for field in headers])
    # One look at the whole instead of one for each value.
    if fields.count(b"\n") != len(headers) or fields.count(b"\r") != len(headers) or b"\0" in fields:
        raise ValueError("a header field holds CR, LF or NUL")
    return fields


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
