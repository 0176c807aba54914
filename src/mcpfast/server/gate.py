"""Who is let in: Origin and Host first, for every request; then authentication, if there is one."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from ..http.interface import Headers, Request, Responder
from ..protocol.bearer import challenge
from ..protocol.refusal import Refusal
from ..protocol.security import OriginAndHost
from .principal import Authenticate, Principal
from .stats import Stats

__all__ = ["Gate", "refuse"]

logger = logging.getLogger("mcpfast.server")

FAILED = Refusal(500, "internal_error", "internal error")


class Gate:
    """The checks of one app.

    Args:
        origin_and_host: the rules for browsers.
        authenticate: finds out who sent a request; None: nobody is asked.
        required_scopes: what everybody's credentials must allow.
        resource_metadata: the URL of the document that says where to get a token.
    """

    __slots__ = (
        "_authenticate",
        "_forbidden",
        "_invalid",
        "_missing",
        "_required_scopes",
        "_rules",
        "asks",
        "is_async",
    )

    def __init__(
        self,
        origin_and_host: OriginAndHost,
        authenticate: Authenticate | None,
        required_scopes: Sequence[str] = (),
        resource_metadata: str | None = None,
    ) -> None:
        self._rules = origin_and_host
        self._required_scopes = frozenset(required_scopes)

        def refusal(status: int, reason: str, message: str, error: str | None) -> Refusal:
            value = challenge(error, scopes=required_scopes, resource_metadata=resource_metadata)
            return Refusal(status, reason, message, headers=((b"www-authenticate", value),))

        self._missing = refusal(401, "unauthorized", "authentication is required", None)
        self._invalid = refusal(401, "unauthorized", "credentials are invalid or have expired", "invalid_token")
        self._forbidden = refusal(
            403, "insufficient_scope", "credentials do not allow what is asked for", "insufficient_scope"
        )
        self._authenticate = authenticate
        self.is_async = inspect.iscoroutinefunction(authenticate)
        """:meth:`principal` gives something to be awaited."""
        self.asks = authenticate is not None
        """There is authentication: :meth:`principal` must be asked."""

    def stranger(self, request: Request) -> Refusal | None:
        """Return why a request must not be looked at any further, or None."""
        headers = request.headers
        if headers.admitted_by is self:
            return None
        fields = headers.fields
        host, origin = fields.get(b"host"), fields.get(b"origin")
        if len(fields) != len(headers.raw):
            # One that came twice is read as the list it is (RFC 9110 §5.3), which is no host and no origin: readers
            # that take the first and readers that take the last must not be played off against each other.
            host, origin = _list(headers, "host"), _list(headers, "origin")
        refusal = self._rules.check(request.scheme, host, origin)
        if refusal is None:
            headers.admitted_by = self
        return refusal

    def principal(self, request: Request) -> Principal | Refusal | Awaitable[Principal | Refusal]:
        """Return who sent a request, or why it is refused."""
        assert self._authenticate is not None
        try:
            found: Any = self._authenticate(request)
        except Exception:
            logger.exception("authenticate failed")
            return FAILED
        return self._wait(found, request) if inspect.isawaitable(found) else self._judge(found, request)

    async def _wait(self, found: Awaitable[Any], request: Request) -> Principal | Refusal:
        try:
            return self._judge(await found, request)
        except Exception:
            logger.exception("authenticate failed")
            return FAILED

    def _judge(self, found: Any, request: Request) -> Principal | Refusal:
        if isinstance(found, Principal):
            return found if self._required_scopes <= found.scopes else self._forbidden
        if found is None:
            return self._missing if request.headers.find(b"authorization") is None else self._invalid
        logger.error("authenticate returned %s, expected a Principal or None", type(found).__name__)
        return FAILED


def _list(headers: Headers, name: str) -> bytes | None:
    values = headers.getall(name)
    return ", ".join(values).encode("latin-1") if values else None


def refuse(refusal: Refusal, responder: Responder, stats: Stats) -> None:
    """Answer a request with a refusal, and count it."""
    stats.refuse(refusal.reason)
    responder.respond(refusal.status, ((b"content-type", b"application/json"), *refusal.headers), refusal.body())
