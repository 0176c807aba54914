"""Which era a request belongs to, and so which machine serves it: sessions, or one exchange by itself.

Header and body decide together. Modern ``_meta`` in the body, or a version header of that revision, selects 2026-07-28,
where the two are then held against each other; everything else belongs to the revisions with ``initialize``. The header
alone must not decide, as a body that calls itself modern would be served under rules it does not follow.

Source: MCP 2026-07-28, basic/transports/streamable-http §Protocol Version Header, basic/versioning §Compatibility
Matrix (M26-S-28 to M26-S-31, M26-S-63); MCP 2025-11-25, basic/transports §Protocol Version Header (L25-S-22).
"""

from __future__ import annotations

from typing import Any, Final

from ..jsonrpc import UNSUPPORTED_VERSION, Message, RequestId
from .refusal import Refusal
from .revisions import LEGACY, REVISIONS

__all__ = ["SERVED", "VERSION_KEY", "is_modern", "legacy_version", "unsupported"]

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
"""The key of ``_meta`` under which a modern request names its revision."""

SERVED: Final = tuple(version for version, revision in reversed(REVISIONS.items()) if revision.is_streamable)
"""What one Streamable HTTP endpoint serves, newest first."""

# HTTP+SSE's revision counts too: clients that negotiated it over this transport exist, and send it back.
_LEGACY_HEADERS: Final = frozenset(version.encode("ascii") for version in LEGACY)
_MODERN_HEADERS: Final = frozenset(v.encode("ascii") for v, revision in REVISIONS.items() if not revision.has_sessions)


def is_modern(version: bytes | None, message: Any) -> bool:
    """Tell whether a message belongs to 2026-07-28.

    Args:
        version: the ``MCP-Protocol-Version`` header, or None.
        message: what the body holds: a message, or a batch of them.
    """
    if version in _MODERN_HEADERS:
        return True
    params = getattr(message, "params", None)
    if type(params) is not dict:
        return False
    meta = params.get("_meta")
    if type(meta) is not dict or VERSION_KEY not in meta:
        return False
    # A client of a session may name its revision in both places; that is no mixture.
    asked = meta[VERSION_KEY]
    return not (version in _LEGACY_HEADERS and type(asked) is str and asked.encode("utf-8", "replace") == version)


def legacy_version(version: bytes | None, message: Message | None = None) -> str | Refusal | None:
    """Return the revision a header of the older eras names; None without one, a Refusal if it is not served."""
    if version is None:
        return None
    if version in _LEGACY_HEADERS:
        return version.decode("ascii")
    return unsupported(version.decode("latin-1"), getattr(message, "id", None))


def unsupported(asked: str, id: RequestId | None) -> Refusal:
    """Refuse a revision that is not served, naming those that are (M26-S-29, L25-S-22)."""
    data = {"supported": list(SERVED), "requested": asked[:100]}
    return Refusal(400, "version", "protocol version is not served", UNSUPPORTED_VERSION, id, data=data)
