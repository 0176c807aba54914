"""Our handlers as an ASGI 3 application: under uvicorn, granian, hypercorn, in Starlette and FastAPI.

::

    app = ASGIApp(handler)
    app = ASGIApp(handler, lifespan=lifespan)     # lifespan(): an async context manager; request.state
    Starlette(routes=[Mount("/api", app)], lifespan=app.lifespan)

A parent application does not run the lifespans of what is mounted in it: hand it ``app.lifespan``.

Differences from the native server: the ASGI server owns the connection, so limits on heads, idle
connections and dead peers are its own. A request that the ASGI server cancels (uvicorn does so when
``timeout_graceful_shutdown`` is over) is completed: a stream ends, a call is answered with 503.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from ._asgi_exchange import ASGIExchange, Receive, Scope, Send
from ._long_waits import LongWaits
from .deadlines import Deadlines
from .interface import Handler
from .limits import HTTPLimits

__all__ = ["ASGIApp"]


class ASGIApp:
    """An ASGI 3 application that serves ``handler``."""

    def __init__(
        self,
        handler: Handler,
        *,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        limits: HTTPLimits | None = None,
        on_cut_off: Callable[[], None] | None = None,
    ) -> None:
        """
        Args:
            lifespan: entered when the ASGI server starts, left when it stops. What it yields is every
                request's ``state``.
            limits: those on bodies and on slow readers hold here.
            on_cut_off: called when the ASGI server has cancelled a request, as it does at the end of its grace.
        """
        self.handler = handler
        self.limits = limits or HTTPLimits()
        self.state: Any = None
        self.bytes_in = 0
        self.bytes_out = 0
        self._lifespan = lifespan
        self._lifespan_depth = 0
        self._on_cut_off = on_cut_off
        self._requests = 0
        self._in_flight = 0
        self._refused: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        self.loop: asyncio.AbstractEventLoop | None = None  # of the requests of late; the next three are its own
        self.deadlines: Deadlines = None  # type: ignore[assignment]
        self.long_waits: LongWaits = None  # type: ignore[assignment]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            self._requests += 1
            self._in_flight += 1
            try:
                await ASGIExchange(self, scope, receive, send).run()
            finally:
                self._in_flight -= 1
        elif kind == "lifespan":
            await self._run_lifespan(receive, send)
        elif kind == "websocket":
            # Before it is accepted this makes the server answer the handshake with 403.
            await receive()
            await send({"type": "websocket.close", "code": 1000})
        else:
            raise ValueError(f"scope type is {kind!r}, only http and lifespan are served")

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Run the application's lifespan, for a parent application to enter when it starts.

        Entered again while it runs (by a parent and by the ASGI server), it does nothing more.

        Args:
            app: the parent application, as frameworks pass it; not used.
        """
        if self._lifespan is None or self._lifespan_depth:
            self._lifespan_depth += 1
            try:
                yield
            finally:
                self._lifespan_depth -= 1
            return
        async with self._lifespan() as state:
            self._lifespan_depth += 1
            self.state = state
            try:
                yield
            finally:
                self.state = None
                self._lifespan_depth -= 1

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        phase = "startup"
        await receive()
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except Exception as error:
            # The message goes to the server's log, which belongs to whoever wrote the lifespan.
            await send({"type": f"lifespan.{phase}.failed", "message": f"{type(error).__name__}: {error}"})
            return
        await send({"type": "lifespan.shutdown.complete"})

    def stats(self) -> dict[str, Any]:
        """Return counts since the start, named as the native server's.

        ``connections`` are requests in flight here, and ``closed`` counts only those whose answer was
        not completed; bytes are those of bodies.
        """
        return {
            "connections": self._in_flight,
            "requests": self._requests,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "refused": dict(self._refused),
            "closed": dict(self._closed),
        }

    # Exchanges call these

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the timers of ``loop``: nearly always the one of all requests, but tests run many."""
        self.loop = loop
        self.deadlines = Deadlines.for_loop(loop)
        self.long_waits = LongWaits(self.deadlines)

    def cut_off(self) -> None:
        if self._on_cut_off is not None:
            self._on_cut_off()

    def count_refused(self, reason: str) -> None:
        self._refused[reason] += 1

    def count_closed(self, reason: str) -> None:
        self._closed[reason] += 1
