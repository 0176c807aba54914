"""Header values that MCP gives a meaning to: media types, Accept, session ids.

Source: RFC 9110 §5.5 (field values), §8.3.1 (media types), §12.5.1 (Accept); MCP 2025-11-25, basic/transports
§Session Management 1 (session ids are visible ASCII).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

__all__ = ["EVENT_STREAM", "JSON", "Accept", "MediaType", "is_field_value", "is_json", "is_session_id", "parse_accept"]

EVENT_STREAM = "text/event-stream"
JSON = "application/json"

MAX_SESSION_ID_CHARS = 256

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_MEDIA_TYPE = re.compile(rf"[ \t]*({_TOKEN})/({_TOKEN})[ \t]*(?:;|$)")
_QUALITY = re.compile(r";[ \t]*[qQ]=([01](?:\.[0-9]{0,3})?)[ \t]*(?:;|$)")
# A comma inside a quoted parameter does not end a media range.
_RANGE = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+')
_SESSION_ID = re.compile(r"[\x21-\x7e]+")
_FORBIDDEN_IN_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def is_json(content_type: bytes | None) -> bool:
    """Tell whether a Content-Type is JSON's, in any case and with any parameters.

    A charset is not looked at: JSON has no such parameter (RFC 8259 §11), and the body must be UTF-8 whatever it says.
    """
    if content_type == b"application/json":
        return True
    if content_type is None:
        return False
    return content_type.partition(b";")[0].strip(b" \t").lower() == b"application/json"


def is_session_id(text: str) -> bool:
    """Tell whether ``text`` can be a session id: visible ASCII, at most 256 characters."""
    return len(text) <= MAX_SESSION_ID_CHARS and _SESSION_ID.fullmatch(text) is not None


def is_field_value(value: bytes) -> bool:
    """Tell whether ``value`` may be sent as a header's: no control characters but tab, no white space around it."""
    return _FORBIDDEN_IN_VALUE.search(value) is None and value == value.strip(b" \t")


class MediaType(NamedTuple):
    """One media range of an Accept header, in lower case, with its weight from 0 to 1."""

    type: str
    subtype: str
    quality: float


class Accept:
    """What a client takes. Build it with :func:`parse_accept`."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: tuple[MediaType, ...]) -> None:
        self.ranges = ranges

    def quality(self, media_type: str) -> float:
        """Return the weight of ``media_type`` (lower case): that of the most specific range that covers it, or 0."""
        type_, _, subtype = media_type.partition("/")
        best, rank = 0.0, 0
        for item in self.ranges:
            if item.type == type_ and item.subtype == subtype:
                its_rank = 3
            elif item.type == type_ and item.subtype == "*":
                its_rank = 2
            elif item.type == item.subtype == "*":
                its_rank = 1
            else:
                continue
            if its_rank > rank:
                best, rank = item.quality, its_rank
            elif its_rank == rank:
                best = max(best, item.quality)
        return best


_ANYTHING = Accept((MediaType("*", "*", 1.0),))


@lru_cache(maxsize=256)
def parse_accept(value: str | None) -> Accept:
    """Read an Accept header: wildcards, weights, any case. A missing or empty one takes everything.

    Ranges that are malformed are skipped, a weight that is malformed counts as 1. Parameters are not compared: the
    types of MCP have none.
    """
    if value is None or not value.strip(" \t"):
        return _ANYTHING
    ranges = []
    for item in _RANGE.findall(value):
        found = _MEDIA_TYPE.match(item)
        if found is not None:
            weight = _QUALITY.search(item)
            quality = 1.0 if weight is None else min(float(weight[1]), 1.0)
            ranges.append(MediaType(found[1].lower(), found[2].lower(), quality))
    return Accept(tuple(ranges))
