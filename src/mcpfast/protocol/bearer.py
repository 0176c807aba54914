"""Bearer tokens: where they stand, and the challenges that say which is wanted.

Source: RFC 6750 §2.1, §3; RFC 9728 §5.1; MCP 2026-07-28, basic/authorization §Token Requirements, §Runtime Insufficient
Scope Errors, §Scope Selection Strategy (M26-S-64, M26-S-66, M26-S-67).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["bearer_token", "challenge", "is_scope"]

_CREDENTIALS = re.compile(rb"bearer +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def bearer_token(authorization: bytes | None) -> str | None:
    """Return the token of an Authorization header; None if it holds none.

    It is the one place a token is taken from: one in the query would end up in logs.
    """
    found = _CREDENTIALS.fullmatch(authorization) if authorization is not None else None
    return None if found is None else found[1].decode("ascii")


def is_scope(text: str) -> bool:
    """Tell whether ``text`` is one scope (RFC 6749 §3.3)."""
    return _SCOPE.fullmatch(text) is not None


def challenge(error: str | None = None, *, scopes: Iterable[str] = (), resource_metadata: str | None = None) -> bytes:
    """Return the value of ``WWW-Authenticate``.

    Args:
        error: ``"invalid_token"`` or ``"insufficient_scope"``; None for a request without a token.
        scopes: what the token must allow.
        resource_metadata: the URL of the protected resource's metadata.
    """
    scope = " ".join(scopes)
    parameters = {"error": error, "scope": scope or None, "resource_metadata": resource_metadata}
    shown = ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value is not None)
    return f"Bearer {shown}".rstrip().encode("ascii")
