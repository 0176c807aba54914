"""What the transports and sessions of one app share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from ..errors import TransportClosed
from ..protocol.security import OriginAndHost
from .gate import Gate
from .hosting import Hosting
from .keepalive import KeepAlive
from .load import PROCESS
from .options import ServerOptions
from .patience import Patience
from .stats import Stats

__all__ = ["Shared"]

logger = logging.getLogger("mcpfast.server")


class Shared:
    """Options, checks, counters and timers of one app. It comes to life in a running loop, at the first request.

    Args:
        allowed_hosts: what Host may be where the options do not say.
    """

    def __init__(self, options: ServerOptions, *, allowed_hosts: tuple[str, ...] | None = None) -> None:
        self.options = options
        hosts = options.allowed_hosts if options.allowed_hosts is not None else allowed_hosts
        self.rules = OriginAndHost(hosts, options.allowed_origins)
        metadata = options.resource_metadata
        self.gate = Gate(
            self.rules, options.authenticate, options.required_scopes, None if metadata is None else metadata.url
        )
        self.stats = Stats()
        self.load = PROCESS
        self.hosting = Hosting(
            max_backlog_messages=options.max_backlog_messages, max_backlog_bytes=options.max_unsent_bytes
        )
        self._keepalive: KeepAlive | None = None
        self._patience: Patience | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that nobody waits for."""
        task = self.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        # A client that leaves before it could be told something is no failure of ours.
        if error is not None and not isinstance(error, TransportClosed):
            logger.error("background work failed", exc_info=error)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop the app runs on."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    @property
    def patience(self) -> Patience:
        """The answers of Streamable HTTP that have not begun."""
        if self._patience is None:
            self._patience = Patience(self.options.stream_after_s, self.loop)
        return self._patience

    @property
    def keepalive(self) -> KeepAlive:
        """The app's one ticker."""
        if self._keepalive is None:
            self._keepalive = KeepAlive(self.options.keepalive_s, self.loop)
        return self._keepalive
