"""Who is behind a request, and who may use what somebody opened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..http.interface import Request

__all__ = ["Authenticate", "Principal", "is_owner"]


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody whose credentials were found good.

    A session belongs to who opened it: subject, issuer and client must be the same on every later request. Scopes and
    claims may differ, as they do after a token was renewed.

    Attributes:
        subject: who it is, such as the ``sub`` of a token.
        issuer: who vouches for that, such as the ``iss`` of a token.
        client_id: the application that acts for the subject.
        scopes: what the credentials allow.
        claims: whatever else the application wants to know in its handlers. Never logged.
    """

    subject: str
    issuer: str | None = None
    client_id: str | None = None
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


Authenticate: TypeAlias = Callable[[Request], Principal | Awaitable[Principal | None] | None]
"""Finds out who sent a request, from its headers; None means it is nobody we know, and is answered with 401."""


def is_owner(owner: Principal | None, principal: Principal | None) -> bool:
    """Tell whether ``principal`` may use what ``owner`` opened. Without authentication both are None."""
    if owner is principal:
        return True
    if owner is None or principal is None:
        return False
    return (owner.subject, owner.issuer, owner.client_id) == (
        principal.subject,
        principal.issuer,
        principal.client_id,
    )
