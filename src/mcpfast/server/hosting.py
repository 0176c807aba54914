"""What one app keeps for each Server it serves: the value of its lifespan, and the listeners of its publish()."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from .application import Server
from .audience import HostedAudience
from .broadcast import Broadcast

__all__ = ["Hosted", "Hosting"]


class Hosted:
    """A Server that is ready to serve."""

    __slots__ = ("audience", "broadcast", "server", "state")

    def __init__(self, server: Server, state: Any, audience: HostedAudience) -> None:
        self.server = server
        self.state = state
        self.audience = audience
        self.broadcast = audience.broadcast


class Hosting:
    """The Servers of one app, each with its lifespan entered once.

    Args:
        max_backlog_messages, max_backlog_bytes: see :class:`Broadcast`.
    """

    def __init__(self, *, max_backlog_messages: int, max_backlog_bytes: int) -> None:
        self._max_messages = max_backlog_messages
        self._max_bytes = max_backlog_bytes
        self._hosted: dict[Server, Hosted] = {}
        self._lifespans: dict[Server, _LifespanTask] = {}

    def get(self, server: Server) -> Hosted | None:
        """Return a Server that is ready, or that needs nothing to be; None if :meth:`enter` must be awaited."""
        hosted = self._hosted.get(server)
        if hosted is None and server.lifespan is None:
            hosted = self._add(server, None)
        return hosted

    async def enter(self, server: Server) -> Hosted:
        """Return ``server`` ready to serve, entering its lifespan if that was not done. Raises what that raises."""
        hosted = self.get(server)
        if hosted is not None:
            return hosted
        lifespan = self._lifespans.get(server)
        if lifespan is None:
            lifespan = self._lifespans[server] = _LifespanTask(server)
        try:
            # Others may wait for the same one: a client that leaves must not stop it.
            state = await asyncio.shield(lifespan.state)
        except Exception:
            self._lifespans.pop(server, None)  # the next request tries again
            raise
        return self.get(server) or self._add(server, state)

    def _add(self, server: Server, state: Any) -> Hosted:
        loop = asyncio.get_running_loop()
        broadcast = Broadcast(loop, max_messages=self._max_messages, max_bytes=self._max_bytes)
        audience = HostedAudience(loop, broadcast)
        server.add_audience(audience)
        hosted = self._hosted[server] = Hosted(server, state, audience)
        return hosted

    async def aclose(self) -> None:
        """Leave every lifespan. The first error is raised, after all were left."""
        self._hosted.clear()
        lifespans, self._lifespans = list(self._lifespans.values()), {}
        errors = await asyncio.gather(*(lifespan.leave() for lifespan in lifespans), return_exceptions=True)
        for error in errors:
            if error is not None:
                raise error


class _LifespanTask:
    """Enters and leaves a lifespan in one task, as cancel scopes inside it may need, whoever asks for it."""

    def __init__(self, server: Server) -> None:
        loop = asyncio.get_running_loop()
        self.state: asyncio.Future[Any] = loop.create_future()
        self._over = asyncio.Event()
        self._task = loop.create_task(self._run(server), name="mcpfast-lifespan")

    async def _run(self, server: Server) -> None:
        factory: Any = server.lifespan
        try:
            manager = factory(server) if _takes_an_argument(factory) else factory()
            state = await manager.__aenter__()
        except BaseException as error:
            if self.state.done():
                return
            if not isinstance(error, Exception):
                self.state.cancel()
                raise
            self.state.set_exception(error)
            self.state.exception()  # seen: whoever waited may have left
            return
        self.state.set_result(state)
        try:
            await self._over.wait()
        finally:
            await manager.__aexit__(None, None, None)

    async def leave(self) -> None:
        self._over.set()
        if not self.state.done():
            self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()


def _takes_an_argument(factory: Any) -> bool:
    try:
        inspect.signature(factory).bind(None)
    except TypeError:
        return False
    return True
