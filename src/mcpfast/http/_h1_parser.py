"""Parsing request heads with httptools, one whole head at a time.

httptools checks and splits the fields; what it lets through is caught here and in ``_h1_head``. It is
only given heads that are whole and within limits, and bodies whose length is known: how much input
there may be, and where a message ends, is decided by its caller.
"""

from __future__ import annotations

from typing import Any

import httptools

from ._h1_head import BadRequest, read_content_length, read_framing, split_request_line, split_target
from .interface import Headers

__all__ = ["Head", "HeadParser"]


class Head:
    """A request's head, read and checked."""

    __slots__ = (
        "content_length",
        "expects_continue",
        "headers",
        "is_chunked",
        "is_http10",
        "keep_alive",
        "method",
        "path",
        "query",
        "raw",
    )

    raw: bytes
    """As it came, with the empty line that ends it."""
    method: str
    path: str
    """Percent-decoded; ``*`` in ``OPTIONS *``."""
    query: str
    headers: Headers
    """Requests of the same head share them."""
    is_http10: bool
    keep_alive: bool
    """What the client asks for: its version, and its Connection field."""
    content_length: int
    is_chunked: bool
    expects_continue: bool


class HeadParser:
    """One per connection. Call :meth:`close` in the end: it and httptools' parser hold each other.

    Clients repeat themselves: on one connection mostly all of a head but the length of the body is as
    it was before. Such a head is not parsed again, which saves half the time of a small request.
    """

    __slots__ = ("_fields", "_head_count", "_keep_alive", "_length_at", "_parser", "last", "takes_body")

    def __init__(self) -> None:
        self.last: Head | None = None
        """The head that came last: input that begins with its ``raw`` begins with the same head again."""
        self.takes_body = False
        """httptools waits for the body of the head it parsed last: :meth:`skip` it."""
        self._parser: Any = httptools.HttpRequestParser(self)
        self._fields: list[tuple[bytes, bytes]] = []
        self._head_count = 0
        self._keep_alive = True
        # Where in the last head the digits of its length are, and which field it is; None: not looked for yet.
        self._length_at: tuple[int, int, int] | None = None

    def parse(self, raw: bytes, max_fields: int) -> Head:
        """Read ``raw``, a head with the empty line that ends it.

        Raises:
            BadRequest: it breaks the grammar (a bare LF, a folded line, NUL, a blank before the colon),
                could be read in two ways (two lengths, a length and a coding, two hosts), asks for what
                is not served here, or has too many fields.
        """
        last = self.last
        if last is not None and (raw == last.raw or self._take_new_length(raw, last)):
            return last
        self.last = None
        head = Head()
        method, target, head.is_http10 = split_request_line(raw)
        fields = self._parse_fields(raw, method, max_fields)
        head.keep_alive = self._keep_alive
        headers = Headers(tuple(fields))
        head.content_length, head.is_chunked, head.expects_continue = read_framing(headers, head.is_http10)
        if not head.content_length and not head.is_chunked:
            self.takes_body = False
        if target == b"*" and method == b"OPTIONS":
            head.path, head.query = "*", ""
        else:
            head.path, head.query, authority = split_target(target)
            if authority is not None:
                # The target's authority stands in for the Host field (RFC 9112 §3.2.2).
                headers = Headers(tuple([(name, authority if name == b"host" else value) for name, value in fields]))
        head.method = method.decode("ascii")
        head.headers = headers
        head.raw = raw
        self.last = head
        self._length_at = None
        return head

    def skip(self, body: bytes) -> None:
        """Let httptools know of the body after the head, so that it expects a head again."""
        if self.takes_body:
            self.takes_body = False
            self._parser.feed_data(body)

    def skip_unseen(self) -> None:
        """The same for a body that is not here, or whose end httptools could not tell."""
        if self.takes_body:
            self.takes_body = False
            self._parser = httptools.HttpRequestParser(self)

    def close(self) -> None:
        self._parser = None

    def _parse_fields(self, raw: bytes, method: bytes, max_fields: int) -> list[tuple[bytes, bytes]]:
        fields = self._fields = []
        self._head_count = 0
        self.takes_body = True
        try:
            self._parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            # An offer that may be ignored (RFC 9110 §7.8). httptools takes the head for all it gets of
            # this request, and is ready for the next one.
            self.takes_body = False
        except httptools.HttpParserInvalidMethodError:
            raise BadRequest(501 if method.isalpha() and method.isupper() else 400) from None
        except httptools.HttpParserError:
            raise BadRequest(400) from None
        if method == b"CONNECT":
            raise BadRequest(501)
        if self._head_count != 1:
            raise BadRequest(400)
        if len(fields) > max_fields:
            raise BadRequest(431, "head_too_large")
        if b" \r\n" in raw or b"\t\r\n" in raw:
            # httptools leaves white space after values where it was.
            fields = [(name, value.rstrip(b" \t")) for name, value in fields]
        return fields

    def _take_new_length(self, raw: bytes, last: Head) -> bool:
        """If only the digits of the length differ, make ``last`` the head of ``raw``."""
        old = last.raw
        if self._length_at is None:
            self._length_at = _find_length(old, last)
        start, end, index = self._length_at
        if not start:
            return False
        new_end = end + len(raw) - len(old)
        digits = raw[start:new_end]
        if not digits.isdigit() or raw[:start] != old[:start] or raw[new_end:] != old[end:]:
            return False
        last.content_length = read_content_length(digits)
        fields = list(last.headers.raw)
        fields[index] = b"content-length", digits
        last.headers = Headers(tuple(fields))
        last.raw = raw
        self._length_at = start, new_end, index
        return True

    # httptools calls these

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._head_count += 1
        self._keep_alive = self._parser.should_keep_alive()


def _find_length(raw: bytes, head: Head) -> tuple[int, int, int]:
    """Return (start, end) of the digits of the content-length in ``raw`` and the field's index; zeros if none."""
    for index, (name, value) in enumerate(head.headers.raw):
        if name == b"content-length":
            start = raw.index(value, raw.lower().index(b"\r\ncontent-length:") + 17)
            return start, start + len(value), index
    return 0, 0, 0
