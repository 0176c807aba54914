"""Parsing request heads with httptools, one whole head at a time.

The parser is only given heads that are whole and within limits, and bodies whose length is known:
how much input there may be, and where a message ends, is decided by its caller.
"""

from __future__ import annotations

from typing import Any

import httptools

from ._h1_head import BadRequest

__all__ = ["HeadParser"]


class HeadParser:
    """One per connection. Call :meth:`close` in the end: it and httptools' parser hold each other."""

    __slots__ = ("_fields", "_head_count", "_parser", "_takes_body", "keep_alive")

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpRequestParser(self)
        self._fields: list[tuple[bytes, bytes]] = []
        self._head_count = 0
        self._takes_body = True
        self.keep_alive = True
        """What the last head asked for: its version, and its Connection field."""

    def parse(self, head: bytes, method: bytes, max_fields: int) -> list[tuple[bytes, bytes]]:
        """Return the fields of ``head``: names in lower case, values without white space around them.

        Raises:
            BadRequest: it breaks the grammar (a bare LF, a folded line, NUL, a blank before the colon),
                holds two lengths or a length and a coding, or has too many fields.
        """
        fields = self._fields = []
        self._head_count = 0
        self._takes_body = True
        try:
            self._parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            # An offer that may be ignored (RFC 9110 §7.8). The parser takes the head for all it gets of
            # this request, and is ready for the next one.
            self._takes_body = False
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
        if b" \r\n" in head or b"\t\r\n" in head:
            # httptools leaves white space after values where it was.
            fields = [(name, value.rstrip(b" \t")) for name, value in fields]
        return fields

    def skip(self, body: bytes) -> None:
        """Let the parser know of the body after the head, so that it expects a head again."""
        if self._takes_body:
            self._parser.feed_data(body)

    def restart(self) -> None:
        """Expect a head next, whatever came before."""
        self._parser = httptools.HttpRequestParser(self)

    def close(self) -> None:
        self._parser = None

    # httptools calls these

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._head_count += 1
        self.keep_alive = self._parser.should_keep_alive()
