"""Who is let in: Origin and Host first, for every request; then authentication, if there is one."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable
from typing import Any

from ..http.interface import Request, Responder
from ..protocol.refusal import Refusal
from ..protocol.security import OriginAndHost
from .principal import Authenticate, Principal
from .stats import Stats

__all__ = ["Gate", "refuse"]

logger = logging.getLogger("mcpfast.server")

UNAUTHORIZED = Refusal(401, "unauthorized", "authentication is required", headers=((b"www-authenticate", b"Bearer"),))
FAILED = Refusal(500, "internal_error", "internal error")


class Gate:
    """The checks of one app.

    Args:
        origin_and_host: the rules for browsers.
        authenticate: finds out who sent a request; None: nobody is asked.
    """

    __slots__ = ("_authenticate", "_rules", "is_async")

    def __init__(self, origin_and_host: OriginAndHost, authenticate: Authenticate | None) -> None:
        self._rules = origin_and_host
        self._authenticate = authenticate
        self.is_async = inspect.iscoroutinefunction(authenticate)
        """:meth:`principal` gives something to be awaited."""

    def stranger(self, request: Request) -> Refusal | None:
        """Return why a request must not be looked at any further, or None."""
        host = origin = None
        for name, value in request.headers.raw:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        return self._rules.check(request.scheme, host, origin)

    @property
    def asks(self) -> bool:
        """There is authentication: :meth:`principal` must be asked."""
        return self._authenticate is not None

    def principal(self, request: Request) -> Principal | Refusal | Awaitable[Principal | Refusal]:
        """Return who sent a request, or why it is refused."""
        assert self._authenticate is not None
        try:
            found: Any = self._authenticate(request)
        except Exception:
            logger.exception("authenticate failed")
            return FAILED
        return self._wait(found) if inspect.isawaitable(found) else _judge(found)

    async def _wait(self, found: Awaitable[Any]) -> Principal | Refusal:
        try:
            return _judge(await found)
        except Exception:
            logger.exception("authenticate failed")
            return FAILED


def _judge(found: Any) -> Principal | Refusal:
    if isinstance(found, Principal):
        return found
    if found is None:
        return UNAUTHORIZED
    logger.error("authenticate returned %s, expected a Principal or None", type(found).__name__)
    return FAILED


def refuse(refusal: Refusal, responder: Responder, stats: Stats) -> None:
    """Answer a request with a refusal, and count it."""
    stats.refuse(refusal.reason)
    responder.respond(refusal.status, ((b"content-type", b"application/json"), *refusal.headers), refusal.body())
