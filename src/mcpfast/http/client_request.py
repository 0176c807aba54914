"""What a client asks for: an address, and a request's fixed part, checked and encoded once.

Everything that reaches the wire passes through here, so this is where line breaks and control
characters are refused: a header or address with one in it would be read as two by the server.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address
from typing import TypeAlias
from urllib.parse import quote, unquote, urljoin, urlsplit

from .interface import HeaderList

__all__ = ["URL", "HeadersInput", "RequestTemplate", "encode_fields", "header_list"]

HeadersInput: TypeAlias = "Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]"
"""Header fields as users give them. Text is sent as UTF-8."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
# RFC 3986: what may stand in a target as it is; '%' because escapes are there already.
_TARGET_SAFE = "%:/?@!$&'()*+,;=~-._[]"
# A backslash is a slash to some readers and part of a user name to others.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"[a-z0-9._~!$&'()*+,;=%-]+", re.ASCII)
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # RFC 9110 §5.5; NUL, CR and LF are the dangerous ones

# How a request is framed and how long its connection lives is the backend's, never a caller's.
_FRAMING = frozenset(
    [b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"upgrade", b"te", b"trailer", b"expect"]
)


class URL:
    """An absolute ``http`` or ``https`` address, taken apart.

    ``str()`` leaves out the query and any user name or password, which may be secrets: use it in
    messages and logs. ``text`` is what to ask for.

    Args:
        text: the address. A fragment is dropped; a host with other letters than ASCII becomes its IDNA
            form; a user name and password become ``authorization``.

    Raises:
        ValueError: it is not absolute, not http(s), has no host or no valid port, or holds white space,
            control characters or a backslash.
    """

    __slots__ = ("authorization", "host", "netloc", "origin", "path", "port", "scheme", "target", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"url must be a str, not {type(text).__name__}")
        if _FORBIDDEN.search(text):
            raise ValueError("url holds white space, control characters or a backslash")
        parts = urlsplit(text)
        if parts.scheme not in _DEFAULT_PORTS:
            raise ValueError(f"url must begin with http:// or https://, not {parts.scheme[:20]!r}")
        self.scheme = parts.scheme
        if "[" in parts.netloc and ":" not in (parts.hostname or ""):
            raise ValueError("url has brackets around what is no IPv6 address")
        self.host = _host(parts.hostname)
        """Without brackets, in lower case."""
        try:
            port = parts.port
        except ValueError:
            raise ValueError("url has a port that is no number from 1 to 65535") from None
        if port == 0:
            raise ValueError("url has port 0")
        self.port = _DEFAULT_PORTS[self.scheme] if port is None else port
        shown_host = f"[{self.host}]" if ":" in self.host else self.host
        self.netloc = shown_host if self.port == _DEFAULT_PORTS[self.scheme] else f"{shown_host}:{self.port}"
        """Host, and port unless it is the scheme's default: the ``Host`` field."""
        self.origin = f"{self.scheme}://{self.netloc}"
        self.path = quote(parts.path, safe=_TARGET_SAFE) or "/"
        has_query = "?" in text.partition("#")[0]  # an empty one is one too
        self.target = f"{self.path}?{quote(parts.query, safe=_TARGET_SAFE)}" if has_query else self.path
        """Path and query, as the request line has them."""
        self.text = self.origin + self.target
        self.authorization = _basic(parts.username, parts.password)
        """The ``Authorization`` value for a user name and password in the address, or None."""

    def join(self, reference: str) -> URL:
        """Resolve a reference against this address (RFC 3986 §5.2).

        Raises:
            ValueError: as for the constructor.
        """
        if _FORBIDDEN.search(reference):
            raise ValueError("url holds white space, control characters or a backslash")
        return URL(urljoin(self.text, reference))

    def may_redirect_to(self, other: URL) -> bool:
        """Tell whether a redirect may lead to ``other``: same origin, or https in place of http.

        The latter only between the default ports of one host, as nothing else tells that both are the
        same server's.
        """
        if self.origin == other.origin:
            return True
        return (
            self.host == other.host
            and (self.scheme, other.scheme) == ("http", "https")
            and (self.port, other.port) == (80, 443)
        )

    def __str__(self) -> str:
        return self.origin + self.path

    def __repr__(self) -> str:
        return f"<URL {self}>"


def _host(host: str | None) -> str:
    if not host:
        raise ValueError("url has no host")
    if ":" in host:
        address = IPv6Address(host)  # a ValueError of its own if it is none
        if address.scope_id is not None:
            raise ValueError("url has an IPv6 address with a zone, which a Host header cannot hold")
        return host
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            raise ValueError("url has a host that is no domain name") from None
    if not _HOST.fullmatch(host):
        raise ValueError("url has a host that is no domain name")
    return host


def _basic(user: str | None, password: str | None) -> bytes | None:
    if user is None and password is None:
        return None
    return b"Basic " + b64encode(f"{unquote(user or '')}:{unquote(password or '')}".encode())


def header_list(headers: HeadersInput | None) -> list[tuple[bytes, bytes]]:
    """Return header fields as the wire has them: names in lower case, white space around values removed.

    Raises:
        ValueError: a name is no token, a value holds a control character such as a line break, or the
            field is about framing, which is not the caller's.
        TypeError: a name or value is neither str nor bytes.
    """
    if not headers:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    fields = []
    for name, value in pairs:
        raw_name = _as_bytes(name).lower()
        raw_value = _as_bytes(value).strip(b" \t")
        if not _TOKEN.fullmatch(raw_name):
            raise ValueError(f"header name {raw_name[:40]!r} is no token")
        if _BAD_VALUE.search(raw_value):
            raise ValueError(f"value of header {raw_name.decode()!r} holds a control character")
        if raw_name in _FRAMING:
            raise ValueError(f"header {raw_name.decode()!r} is set by the client itself")
        fields.append((raw_name, raw_value))
    return fields


def _as_bytes(text: str | bytes) -> bytes:
    if isinstance(text, str):
        return text.encode("utf-8")
    if isinstance(text, bytes):
        return text
    raise TypeError(f"header name or value must be str or bytes, not {type(text).__name__}")


def encode_fields(fields: HeaderList) -> bytes:
    """Return fields that :func:`header_list` checked as lines of a head."""
    return b"".join([b"%b: %b\r\n" % field for field in fields])


class RequestTemplate:
    """A request that is sent again and again: all of it but the body and a call's own headers.

    Args:
        method: such as ``"POST"``.
        url: where to.
        headers: fields for each request; the last of one name wins, and the later ones of ``start``
            win over these. ``accept-encoding: identity`` is added, as bodies are read raw.

    Raises:
        ValueError, TypeError: as for :func:`header_list`.
    """

    __slots__ = ("_head", "fields", "method", "url")

    def __init__(self, method: str, url: URL, headers: HeadersInput | None = None) -> None:
        self.method = method
        self.url = url
        fields = dict([(b"accept-encoding", b"identity"), *header_list(headers)])
        self.fields: tuple[tuple[bytes, bytes], ...] = tuple(fields.items())
        self._head: bytes | None = None

    def merged(self, extra: HeaderList) -> HeaderList:
        """Return the fields of one request, ``extra`` winning over those of the template."""
        return list(dict([*self.fields, *extra]).items()) if extra else self.fields

    def head(self, extra: HeaderList = ()) -> bytes:
        """Return the head for HTTP/1.1 without framing fields and without the empty line at its end."""
        if not extra:
            if self._head is None:
                self._head = self._encode(self.fields)
            return self._head
        known = {b"host", b"user-agent", *[name for name, _ in self.fields]}
        if any(name in known for name, _ in extra):
            return self._encode(self.merged(extra))
        return self.head() + encode_fields(extra)

    def _encode(self, fields: HeaderList) -> bytes:
        own = dict(fields)
        host = own.pop(b"host", self.url.netloc.encode("ascii"))
        own.setdefault(b"user-agent", b"mcpfast")  # gatekeepers tend to turn away requests without one
        line = f"{self.method} {self.url.target} HTTP/1.1\r\n".encode("ascii")
        return line + encode_fields([(b"host", host), *own.items()])

    def at(self, url: URL) -> RequestTemplate:
        """Return the same request to another address, after a redirect we may follow."""
        template = RequestTemplate(self.method, url)
        template.fields = self.fields
        return template

    def __repr__(self) -> str:
        return f"<RequestTemplate {self.method} {self.url}>"
