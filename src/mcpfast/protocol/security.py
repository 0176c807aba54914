"""Who may talk to a server from a browser: the rules for Origin and Host.

A page of a foreign site may make a browser send requests to a server on the user's machine or network. ``Origin`` tells
where the page is from, so when it is there it must be the server's own or be listed. A page can also be served under a
name that is then pointed at 127.0.0.1 (DNS rebinding); then Origin and Host agree, and only the Host is wrong. So a
server bound to loopback takes names of this machine only, and any other takes what ``allowed_hosts`` says.

Source: MCP, basic/transports §Security Warning of every revision (H24-S-01, L25-S-02, M26-S-02, M26-S-03); RFC 6454.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from .refusal import Refusal

__all__ = ["LOCAL_HOSTS", "OriginAndHost", "is_loopback"]

LOCAL_HOSTS = ("localhost:*", "127.0.0.1:*", "[::1]:*")
"""What a server on loopback answers to unless told otherwise."""

_DEFAULT_PORTS = {"http": "80", "https": "443"}

# Pairs of (scheme, Host, Origin) found good, so that the hot path is one look-up. Bounded, since clients choose them.
_MAX_REMEMBERED = 256


class OriginAndHost:
    """The check of one server.

    Args:
        allowed_hosts: values of Host to answer to, ``"api.example.com"`` or ``"api.example.com:8443"``, in any case;
            ``"name:*"`` takes the name with any port and with none, ``"*"`` takes all. None: Host is not looked at.
        allowed_origins: origins let in besides the server's own, ``"https://app.example.com"``, in any case;
            ``"http://localhost:*"`` takes any port and none, ``"*"`` takes all.

    Raises:
        ValueError: an entry can never match, such as a host with a path or an origin without a scheme.
    """

    __slots__ = ("_any_host", "_any_origin", "_good", "_host_names", "_hosts", "_origin_names", "_origins")

    def __init__(self, allowed_hosts: Iterable[str] | None = None, allowed_origins: Iterable[str] = ()) -> None:
        if isinstance(allowed_hosts, str) or isinstance(allowed_origins, str):
            raise ValueError("allowed_hosts and allowed_origins take a list of values, not one")
        hosts = None if allowed_hosts is None else [_checked_host(entry) for entry in allowed_hosts]
        origins = [_checked_origin(entry) for entry in allowed_origins]
        self._any_host = hosts is None or "*" in hosts
        self._hosts = {entry for entry in hosts or () if not entry.endswith(":*")}
        self._host_names = {entry[:-2] for entry in hosts or () if entry.endswith(":*")}
        self._any_origin = "*" in origins
        self._origins = {entry for entry in origins if not entry.endswith(":*")}
        self._origin_names = {entry[:-2] for entry in origins if entry.endswith(":*")}
        self._good: set[tuple[str, bytes | None, bytes | None]] = set()

    def startup_warning(self) -> str | None:
        """Return what to say, loudly, when a server starts with a setting that refuses everybody."""
        if self._any_host or self._hosts or self._host_names:
            return None
        return (
            "allowed_hosts is empty: every request will be refused with 421; list the names this server is reached by"
        )

    def check(self, scheme: str, host: bytes | None, origin: bytes | None) -> Refusal | None:
        """Return why a request is refused, or None.

        Args:
            scheme: ``"http"`` or ``"https"``, as the connection came to us.
            host: the Host header.
            origin: the Origin header, or None.
        """
        key = (scheme, host, origin)
        if key in self._good:
            return None
        refusal = self._check(scheme, host, origin)
        if refusal is None and len(self._good) < _MAX_REMEMBERED:
            self._good.add(key)
        return refusal

    def _check(self, scheme: str, host: bytes | None, origin: bytes | None) -> Refusal | None:
        authority = (host or b"").decode("latin-1").lower()
        if not self._any_host and authority not in self._hosts and _split_port(authority)[0] not in self._host_names:
            message = f"host {_shown(authority)} is not among allowed_hosts"
            return Refusal(421, "host", message)
        if origin is None or self._any_origin:
            return None
        text = origin.decode("latin-1").lower()
        if text in self._origins or _split_port(text)[0] in self._origin_names:
            return None
        origin_scheme, _, origin_authority = text.partition("://")
        # Behind a proxy that ends TLS we see http where the page was https, never the other way round.
        is_schemes_own = origin_scheme == scheme or (origin_scheme == "https" and scheme == "http")
        if is_schemes_own and authority and _is_authority(origin_authority):
            default = _DEFAULT_PORTS[origin_scheme]
            if _with_port(origin_authority, default) == _with_port(authority, default):
                return None
        message = f"origin {_shown(text)} is neither this server's own nor among allowed_origins"
        return Refusal(403, "origin", message)


def is_loopback(host: str) -> bool:
    """Tell whether a bind address is reached from this machine only."""
    host = host.strip("[]").lower()
    return host in ("localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdigit())


def _split_port(text: str) -> tuple[str, str]:
    """Cut ``:port`` off an authority or origin. A port that is no number makes all of it the name."""
    name, colon, port = text.rpartition(":")
    if not colon or port.endswith("]") or "/" in port:  # 'name', '[::1]', 'http://name'
        return text, ""
    if not (port.isascii() and port.isdigit()):
        return text, ""
    return name, port


def _with_port(authority: str, default: str) -> tuple[str, str]:
    name, port = _split_port(authority)
    return name, port or default


def _is_authority(text: str) -> bool:
    return bool(text) and not any(c in text for c in "/?#@\\, ")


def _checked_host(entry: str) -> str:
    entry = entry.strip().lower()
    if entry == "*":
        return entry
    name = entry.removesuffix(":*")
    if not _is_authority(name) or "*" in name:
        raise ValueError(f"allowed_hosts takes 'name', 'name:port', 'name:*' or '*', not {entry!r}")
    return entry


def _checked_origin(entry: str) -> str:
    entry = entry.strip().lower().removesuffix("/")
    if entry == "*":
        return entry
    bare = entry.removesuffix(":*")
    parts = urlsplit(bare)
    if not parts.scheme or "://" not in bare or not _is_authority(parts.netloc) or parts.path or "*" in bare:
        raise ValueError(f"allowed_origins takes 'scheme://name', with ':port' or ':*', or '*', not {entry!r}")
    return entry


def _shown(text: str) -> str:
    return "'" + text[:100].encode("unicode_escape").decode("ascii") + "'"
