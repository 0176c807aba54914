"""Which Server a request is for, ready to serve: what ``get_server`` says, with its lifespan entered."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ..http.interface import Request, Responder
from ..protocol.refusal import Refusal
from .application import Server
from .gate import FAILED, refuse
from .hosting import Hosted
from .shared import Shared

__all__ = ["Finder", "GetStreamableServer"]

logger = logging.getLogger("mcpfast.server")

GetStreamableServer: TypeAlias = "Callable[[Request], Server | Awaitable[Server | None] | None]"
Then: TypeAlias = "Callable[[Hosted], Awaitable[None] | None]"


class Finder:
    """Finds servers for one handler."""

    __slots__ = ("_get_server", "_shared")

    def __init__(self, shared: Shared, get_server: GetStreamableServer) -> None:
        self._shared = shared
        self._get_server = get_server

    def find(self, request: Request) -> Hosted | Awaitable[Hosted | Refusal] | Refusal:
        """Return the server of a request, or why there is none; awaitable where something is to be waited for."""
        try:
            server = self._get_server(request)
        except Exception:
            logger.exception("get_server failed")
            return FAILED
        if isinstance(server, Server):
            hosted = self._shared.hosting.get(server)
            if hosted is not None:
                return hosted
        return self._find_later(server)

    async def _find_later(self, server: Server | Awaitable[Server | None] | None) -> Hosted | Refusal:
        shared = self._shared
        try:
            if not isinstance(server, Server) and inspect.isawaitable(server):
                server = await server
            if server is None:
                return Refusal(shared.options.no_server_status, "no_server", "there is no server here")
            if not isinstance(server, Server):
                raise TypeError(f"get_server gave {type(server).__name__}, expected a Server")
            return await shared.hosting.enter(server)
        except Exception:
            logger.exception("the server of a request could not be found or started")
            return FAILED

    def go_on(self, then: Then, request: Request, responder: Responder) -> Awaitable[None] | None:
        """Go on with the server of a request, or refuse it; without a task where nothing is to be waited for."""
        found = self.find(request)
        if isinstance(found, Hosted):
            return then(found)
        return self.go_on_later(found, then, responder)

    async def go_on_later(self, found: Awaitable[Hosted | Refusal] | Refusal, then: Then, responder: Responder) -> None:
        """Go on when the server was found."""
        hosted = found if isinstance(found, Refusal) else await found
        if isinstance(hosted, Refusal):
            refuse(hosted, responder, self._shared.stats)
            return
        waiting = then(hosted)
        if waiting is not None:
            await waiting
