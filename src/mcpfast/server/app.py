"""One served Server: which path goes where, its lifespan, its end. All transports of an app share their parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ..http.interface import Handler, Request, Responder
from ..protocol.refusal import Refusal
from ..protocol.security import LOCAL_HOSTS
from .application import Server
from .cors import admit
from .gate import refuse
from .options import APP, ServerOptions
from .resource_metadata import WELL_KNOWN
from .shared import Shared
from .sse_handler import SSEHandler
from .streamable import StreamableHTTPHandler

if TYPE_CHECKING:
    from ..http.asgi import ASGIApp

__all__ = ["App", "asgi_app"]

logger = logging.getLogger("mcpfast.server")

# A request cancelled so shortly before the lifespan is left was cancelled because the server stops.
_CUT_OFF_S = 1.0


class App:
    """The Handler of a whole server.

    Args:
        is_local: the server can be reached from this machine only, so that Host must be a name of it.

    Raises:
        ValueError: nothing would be served.
    """

    def __init__(self, server: Server, options: ServerOptions, *, is_local: bool = False) -> None:
        self.server = server
        self.options = options
        self.shared = Shared(options, allowed_hosts=LOCAL_HOSTS if is_local else None)
        self._gate = self.shared.gate
        self._sse = SSEHandler.on(self.shared, lambda request: server)
        self._routes: dict[str, Handler] = {}
        self._streamable = StreamableHTTPHandler.on(self.shared, lambda request: server)
        here = []
        for name, path, handler in (
            ("Streamable HTTP", options.path, self._streamable.serve),
            ("HTTP+SSE", options.sse_path, self._sse.serve),
        ):
            if path is not None:
                self._route(path, handler)
                here.append(f"{name} is at {options.root_path}{path}")
        if not here:
            raise ValueError("path and sse_path are both None: nothing would be served")
        if options.resource_metadata is not None:
            # At the resource's own path and, for clients that look there only, at the host's.
            for path in {options.resource_metadata.path, WELL_KNOWN}:
                self._route(path, self._serve_metadata)
        self._not_found = Refusal(404, "not_found", f"there is nothing at this path; {', '.join(here)}")
        warning = self.shared.rules.startup_warning()
        if warning is not None:
            logger.warning("%s", warning)

    def _route(self, path: str, handler: Handler) -> None:
        # With and without the slash at the end: a redirect would lose the body, or the proxy's prefix (C079).
        self._routes[path] = handler
        self._routes[path.rstrip("/") + "/"] = handler

    def __call__(self, request: Request, responder: Responder) -> Awaitable[None] | None:
        """Serve one request: see :data:`~mcpfast.http.interface.Handler`."""
        stranger = self._gate.stranger(request)
        if stranger is not None:
            refuse(stranger, responder, self.shared.stats)
            return None
        if self.options.cors:
            admitted = admit(request, responder)
            if admitted is None:
                return None
            responder = admitted
        handler = self._routes.get(request.path)
        if handler is None:
            refuse(self._not_found, responder, self.shared.stats)
            return None
        return handler(request, responder)

    def _serve_metadata(self, request: Request, responder: Responder) -> None:
        assert self.options.resource_metadata is not None
        refusal = self.options.resource_metadata.serve(request, responder)
        if refusal is not None:
            refuse(refusal, responder, self.shared.stats)

    async def start(self) -> None:
        """Enter the server's lifespan. Raises what it raises."""
        await self.shared.hosting.enter(self.server)

    async def drain(self, grace_s: float | None = None) -> None:
        """End all sessions; see :meth:`SSEHandler.drain`."""
        await asyncio.gather(self._streamable.drain(grace_s), self._sse.drain(grace_s))

    def hurry(self) -> None:
        """End the sessions that :meth:`drain` still waits for."""
        self._streamable.hurry()
        self._sse.hurry()

    async def stop(self) -> None:
        """Leave the server's lifespan. Raises what it raises."""
        await self.shared.hosting.aclose()

    def stats(self, shell: dict[str, Any]) -> dict[str, Any]:
        """Return the shell's statistics with ours added."""
        return self.shared.stats.merged(shell)


def asgi_app(server: Server, options: Mapping[str, Any]) -> ASGIApp:
    """Return an ASGI application; see :meth:`Server.asgi`."""
    from ..http.asgi import ASGIApp

    handler = _AppOfLoop(server, ServerOptions.of(options, APP, "asgi()"))
    return ASGIApp(handler, lifespan=handler.lifespan, limits=handler.options.http_limits(), on_cut_off=handler.cut_off)


class _AppOfLoop:
    """An App for the running loop, made anew for each: an application may outlive its loop, as it does in tests."""

    def __init__(self, server: Server, options: ServerOptions) -> None:
        self.server = server
        self.options = options
        self._app = App(server, options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cut_off_at: float | None = None
        self._is_draining = False

    def __call__(self, request: Request, responder: Responder) -> Awaitable[None] | None:
        loop = asyncio._get_running_loop()
        if loop is not self._loop:
            self._renew(loop)
        return self._app(request, responder)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        app = self._renew(loop)
        await app.start()
        try:
            yield
        finally:
            # An ASGI server leaves the lifespan when its requests have ended. If it had to cancel some, its own grace
            # is over, and a second one would only make it late (C074): nobody is there to take what still runs.
            is_late = self._cut_off_at is not None and loop.time() - self._cut_off_at < _CUT_OFF_S
            self._is_draining = True
            try:
                await app.drain(0.0 if is_late else None)
                await app.stop()
            finally:
                self._is_draining = False

    def cut_off(self) -> None:
        """The ASGI server has cancelled a request: because it stops, if it leaves the lifespan as well."""
        self._cut_off_at = asyncio.get_running_loop().time()
        if self._is_draining:
            self._app.hurry()

    def _renew(self, loop: asyncio.AbstractEventLoop | None) -> App:
        if self._loop is not None:
            self._app = App(self.server, self.options)
        self._loop = loop
        self._cut_off_at = None
        return self._app
