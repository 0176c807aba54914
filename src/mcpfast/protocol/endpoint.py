"""The endpoint URI of HTTP+SSE: built by the server, resolved and judged by the client.

Source: MCP 2024-11-05, basic/transports §HTTP with SSE ("an `endpoint` event containing a URI"); RFC 3986 §5.2
(resolution) and RFC 6454 §4 (origin).
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from ..errors import EndpointMissing

__all__ = ["SESSION_PARAMETER", "Origin", "build_endpoint", "origin_of", "resolve_endpoint"]

SESSION_PARAMETER = "sessionid"
"""The query parameter that ties a POST to its stream."""

MAX_ENDPOINT_BYTES = 8192
"""Longest URI a client takes from a server: what HTTP servers commonly take as a request target."""

# RFC 3986 §3.3: what may stand in a path as it is. '%' is absent, as the path given is decoded.
_PATH_SAFE = "/:@!$&'()*+,;=~-._"
# For a URI that is encoded already: every reserved character, and '%' of its escapes.
_URI_SAFE = "%:/?#[]@!$&'()*+,;=~-._"

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Scheme, host in lower case without brackets, and port (the scheme's default filled in)."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        if _DEFAULT_PORTS.get(self.scheme) == self.port:
            return f"{self.scheme}://{host}"
        return f"{self.scheme}://{host}:{self.port}"


def origin_of(url: str) -> Origin:
    """Return the origin of an absolute http or https URL.

    Raises:
        ValueError: ``url`` is not absolute, not http(s), or its port is no number.
    """
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("not an absolute http or https URL")
    port = parts.port
    return Origin(parts.scheme, parts.hostname, _DEFAULT_PORTS[parts.scheme] if port is None else port)


def build_endpoint(path: str, session_id: str, root_path: str = "") -> str:
    """Return the URI to send in the ``endpoint`` event: the request's path with ``?sessionid=…``.

    It is a path without scheme and host, so that it stays right behind a proxy that changes either.

    Args:
        path: the request's path, percent-decoded, below ``root_path``.
        session_id: what the client must send back.
        root_path: the prefix a mount or a proxy put before us, percent-decoded.
    """
    # One leading slash exactly: '//host/x' would name another host (RFC 3986 §4.2).
    whole = "/" + (root_path.rstrip("/") + path).lstrip("/")
    return f"{quote(whole, safe=_PATH_SAFE)}?{SESSION_PARAMETER}={quote(session_id, safe='')}"


def resolve_endpoint(stream_url: str, data: str) -> str:
    """Return the absolute URL to POST to, from the ``endpoint`` event's data.

    Nothing is guessed: a path beginning with ``/`` counts from the host's root, as RFC 3986 says.

    Args:
        stream_url: the absolute URL the stream was read from, after redirects.
        data: the event's data.

    Raises:
        EndpointMissing: the data is empty, too long, no URI, or of another origin (both are named).
    """
    if not data:
        raise EndpointMissing("endpoint event is empty, expected a URI")
    if len(data) > MAX_ENDPOINT_BYTES:
        raise EndpointMissing(f"endpoint holds {len(data)} characters, limit is {MAX_ENDPOINT_BYTES}")
    if any(c <= " " or c in '\x7f\\"<>^`{|}' for c in data):
        # urllib removes line breaks and tabs in silence, and some clients read a backslash as a slash.
        raise EndpointMissing(f"endpoint is no URI: {_shown(data)}")
    base = origin_of(stream_url)
    try:
        url = urljoin(stream_url, quote(data, safe=_URI_SAFE))
        origin = origin_of(url)
        parts = urlsplit(url)
    except ValueError:  # a UnicodeError (a lone surrogate) is one too
        raise EndpointMissing(f"endpoint is no http URI: {_shown(data)}") from None
    if origin != base:
        raise EndpointMissing(f"endpoint is at {_shown(str(origin))}, but must be of the stream's origin {base}")
    if "@" in parts.netloc and parts.netloc.rpartition("@")[0] != urlsplit(stream_url).netloc.rpartition("@")[0]:
        raise EndpointMissing("endpoint names credentials of its own")
    return urlunsplit((parts.scheme, parts.netloc, parts.path or "/", parts.query, ""))


def _shown(text: str) -> str:
    """Quote the start of a peer's text for an error message, escaped; what follows ``?`` may be a secret."""
    text = text.partition("?")[0][:100]
    return "'" + text.encode("unicode_escape").decode("ascii") + "'"
