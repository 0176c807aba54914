"""The native server: HTTP/1.1 on asyncio or uvloop, one request at a time per connection.

::

    server = NativeServer(handler)
    await server.start(host="127.0.0.1", port=0)
    ...
    await server.drain(grace=10.0)

It keeps connections open, answers pipelined requests in order, speaks TLS and listens on TCP or Unix
sockets. It holds every limit of :class:`HTTPLimits` and counts what it refuses and closes. What it
leaves to handlers: paths, methods, Origin and Host rules, authorization.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl as ssl_module
from collections import Counter
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ._h1_connection import H1Connection
from ._sockets import bind_tcp, bind_unix, set_peer_options, unlink_unix
from .deadlines import Deadlines
from .interface import Handler
from .limits import HTTPLimits

if TYPE_CHECKING:
    from ._h1_responder import H1Responder

__all__ = ["AccessRecord", "NativeServer"]

# asyncio accepts up to ``backlog`` connections in a turn of the loop. Where descriptors have run out it reports an
# error, and sets a timer to go on with, for each that it tries.
_ACCEPTED_PER_TURN = 32

# Tasks that were cancelled get so long to end.
_CANCEL_WAIT_S = 1.0


class AccessRecord(NamedTuple):
    """One line of an access log. It holds no query and no header: those carry session ids and tokens."""

    client: tuple[str, int] | None
    method: str
    path: str
    status: int
    bytes_sent: int
    """Size of the answer's body."""
    seconds: float
    """From the request's head to the end of the answer."""


class NativeServer:
    """Serves ``handler`` on one event loop. Start it once, drain it once."""

    def __init__(
        self,
        handler: Handler,
        *,
        limits: HTTPLimits | None = None,
        access_log: Callable[[AccessRecord], object] | None = None,
        ssl: ssl_module.SSLContext | None = None,
    ) -> None:
        """
        Args:
            access_log: called after each answer that was completed.
            ssl: a server-side context; None for plain HTTP.
        """
        self.handler = handler
        self.limits = limits or HTTPLimits()
        self.access_log = access_log
        self.scheme = "http" if ssl is None else "https"
        self.is_draining = False
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set by start()
        self.deadlines: Deadlines = None  # type: ignore[assignment]
        self.connections: set[H1Connection] = set()
        self.tasks: set[asyncio.Future[None]] = set()
        self.requests = 0
        self.sockets: list[socket.socket] = []
        """The sockets listened on."""
        self._ssl = ssl
        self._servers: list[asyncio.Server] = []
        self._unix: tuple[str, int] | None = None
        self._accepted = 0
        self._bytes_in = 0  # of connections that are gone
        self._bytes_out = 0
        self._refused: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        self._all_gone: asyncio.Event | None = None

    async def start(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        path: str | None = None,
        sock: socket.socket | None = None,
        reuse_port: bool = False,
        backlog: int = 2048,
    ) -> None:
        """Listen on ``host`` and ``port`` (0: any free one), on a Unix socket at ``path``, or on ``sock``.

        Args:
            sock: bound by the caller; the server listens on it and closes it.
            reuse_port: let other processes listen on the same port and share its connections.
            backlog: connections the system holds until they are accepted.

        Raises:
            OSError: the address cannot be listened on.
        """
        self.loop = asyncio.get_running_loop()
        self.deadlines = Deadlines.for_loop(self.loop)
        if sock is not None:
            self.sockets = [sock]
        elif path is not None:
            self.sockets = [bind_unix(path)]
            self._unix = path, os.stat(path).st_ino
        else:
            self.sockets = bind_tcp(host, port, reuse_port=reuse_port)
        for listening in self.sockets:
            set_peer_options(listening, self.limits)
            options: dict[str, Any] = {"sock": listening, "backlog": min(backlog, _ACCEPTED_PER_TURN)}
            if self._ssl is not None:
                options.update(ssl=self._ssl, ssl_handshake_timeout=self.limits.head_timeout_s)
            if listening.family == getattr(socket, "AF_UNIX", None):
                self._servers.append(await self.loop.create_unix_server(self._connect, **options))
            else:
                self._servers.append(await self.loop.create_server(self._connect, **options))
            listening.listen(backlog)  # what the system holds is another matter

    def _connect(self) -> H1Connection:
        return H1Connection(self)

    def stats(self) -> dict[str, Any]:
        """Return counts since the start: connections (open now), requests, bytes and reasons.

        ``refused`` counts requests and connections turned away by a rule or limit, ``closed`` why
        connections ended: ``client``, ``idle``, ``done`` (not to be kept), ``shutdown``,
        ``slow_reader``, a reason of ``refused``, or one that a handler gave to ``abort``.
        """
        return {
            "connections": len(self.connections),
            "connections_total": self._accepted,
            "requests": self.requests,
            "bytes_in": self._bytes_in + sum(connection.bytes_in for connection in self.connections),
            "bytes_out": self._bytes_out + sum(connection.bytes_out for connection in self.connections),
            "refused": dict(self._refused),
            "closed": dict(self._closed),
        }

    async def drain(self, grace: float) -> None:
        """Stop: accept no more, let answers be completed for ``grace`` seconds, then cut them off.

        Connections without a request are closed at once, others after their answer, which says
        ``connection: close``. After the grace, handlers are cancelled and connections dropped.
        Streams end when their handlers end them: tell those first.
        """
        self.is_draining = True
        for server in self._servers:
            server.close()
        if self._unix is not None:
            unlink_unix(*self._unix)
            self._unix = None
        for connection in list(self.connections):
            connection.begin_drain()
        await self._wait_until_gone(grace)
        for connection in list(self.connections):
            connection.abort("shutdown")
        for task in list(self.tasks):
            task.cancel()
        await self._wait_until_gone(_CANCEL_WAIT_S)

    async def _wait_until_gone(self, seconds: float) -> None:
        self._all_gone = asyncio.Event()
        if not self.connections and not self.tasks:
            return
        deadline = self.deadlines.after(seconds, self._all_gone.set)
        await self._all_gone.wait()
        deadline.cancel()

    # Connections call these

    def admit(self, connection: H1Connection) -> bool:
        """Take a new connection in, unless there are too many."""
        if len(self.connections) >= self.limits.max_connections:
            self._refused["connections"] += 1
            return False
        if self.is_draining:
            return False
        self._accepted += 1
        self.connections.add(connection)
        return True

    def dismiss(self, connection: H1Connection, reason: str) -> None:
        """Forget a connection that was lost."""
        if connection in self.connections:
            self.connections.discard(connection)
            self._bytes_in += connection.bytes_in
            self._bytes_out += connection.bytes_out
            self._closed[reason] += 1
            self.check_gone()

    def check_gone(self) -> None:
        """Tell :meth:`drain` when nothing is left to wait for."""
        if self._all_gone is not None and not self.connections and not self.tasks:
            self._all_gone.set()

    def count_refused(self, reason: str) -> None:
        self._refused[reason] += 1

    def log_access(self, responder: H1Responder) -> None:
        assert self.access_log is not None
        seconds = perf_counter() - responder.started_at
        request = responder.request
        record = AccessRecord(
            request.client, request.method, request.path, responder.status, responder.bytes_sent, seconds
        )
        try:
            self.access_log(record)
        except Exception as error:
            self.loop.call_exception_handler({"message": "the access log failed", "exception": error})
