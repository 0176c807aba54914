"""A new session where the server has ended the present one, and the refused message sent again, once (row B4).

Many calls may learn of the end at the same time; one of them begins the new session, all wait for it.

Source: MCP 2025-11-25, basic/transports §Session Management 4 (L25-C-10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import SessionTerminated
from ..http.client_request import HeadersInput
from .modern_calls import remaining
from .session import ProgressHandler, Session

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Restarter"]

Begin: TypeAlias = "Callable[[Client], Awaitable[Any]]"


class Restarter:
    """Begins new sessions for one client.

    Args:
        session: the client's calls, whatever session of the protocol they belong to.
        on_restarted: called with the client once a new session is there.
    """

    def __init__(self, session: Session, on_restarted: Callable[[Client], Awaitable[None] | None] | None) -> None:
        self._session = session
        self._on_restarted = on_restarted
        self._begin: Begin | None = None
        self._had_id = False
        self._generation = 0
        self._task: asyncio.Task[None] | None = None

    def began(self, begin: Begin) -> None:
        """A session has begun; ``begin`` begins another like it."""
        self._begin = begin
        self._had_id = self._session.channel.session_id is not None
        self._generation += 1

    async def request(
        self,
        client: Client,
        method: str,
        params: Any,
        timeout: float | None,
        headers: HeadersInput | None,
        on_progress: ProgressHandler | None,
    ) -> Any:
        """Make a call; see :meth:`Client.request`."""
        session = self._session
        started = asyncio.get_running_loop().time()
        if self._is_lost:
            await self._restart(client, self._generation)
            timeout = remaining(timeout, started, method)
        generation = self._generation
        try:
            return await session.request(method, params, timeout=timeout, headers=headers, on_progress=on_progress)
        except SessionTerminated as error:
            if not error.was_refused or self._begin is None:
                raise
        await self._restart(client, generation)
        timeout = remaining(timeout, started, method)
        return await session.request(method, params, timeout=timeout, headers=headers, on_progress=on_progress)

    async def notify(self, client: Client, method: str, params: Any, headers: HeadersInput | None) -> None:
        """Send a notification; see :meth:`Client.notify`."""
        if self._is_lost:
            await self._restart(client, self._generation)
        generation = self._generation
        try:
            await self._session.notify(method, params, headers=headers)
            return
        except SessionTerminated:
            if self._begin is None:
                raise
        await self._restart(client, generation)
        await self._session.notify(method, params, headers=headers)

    @property
    def _is_lost(self) -> bool:
        """The server ended the session while an answer was awaited, or when we listened."""
        return self._had_id and self._session.channel.session_id is None

    async def _restart(self, client: Client, generation: int) -> None:
        if self._generation != generation:
            return  # another call has done it
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(client))
            self._task.add_done_callback(_retrieve)
        # A caller that is cancelled leaves it to the others.
        await asyncio.shield(self._task)

    async def _run(self, client: Client) -> None:
        assert self._begin is not None
        try:
            await self._begin(client)
        finally:
            self._task = None
        if self._on_restarted is not None:
            self._session.call_handler(self._on_restarted, client)

    async def aclose(self) -> None:
        """Wait for what is under way, after the session was closed, which makes it fail at once."""
        if self._task is not None:
            await asyncio.wait({self._task})


def _retrieve(task: asyncio.Task[None]) -> None:
    """Its error is for those who wait; with nobody waiting any more it is of no interest."""
    if not task.cancelled():
        task.exception()
