"""The native HTTP client: a bounded pool of keep-alive connections on asyncio.

It does what MCP needs of HTTP/1.1 and nothing else: no HTTP/2, no compression, no cookies, no cache, no
redirects (the transport's business), no proxies (httpx's, see ``backends``).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import OrderedDict
from functools import partial

from ..errors import RequestTimeout, TransportClosed
from .client_interface import ClientResponse, OnResponse
from .client_request import URL, RequestTemplate
from .deadlines import Deadline, Deadlines
from .interface import HeaderList
from .native_connection import ClientConnection, KnownHead

__all__ = ["NativeClient", "NativeExchange"]

MAX_CONNECTIONS = 100
"""Connections to one origin, those of streams included; urgent requests may have as many again."""

IDLE_S = 4.0
"""How long a quiet connection is kept unless the server says (``Keep-Alive: timeout=``).

Below the 5 s after which uvicorn and Node close theirs: a POST sent just then is lost and, as it may
have been read, cannot be sent again.
"""

SWEEP_S = 1.0  # how often quiet connections are looked at

# A kept connection that was used this recently is taken without asking the system whether it still is one.
_TRUSTED_S = 0.05
_TCP_USER_TIMEOUT_S = 30
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class NativeClient:
    """An HTTP/1.1 client, the default backend of the client transports. Owned by one event loop.

    Args:
        ssl_context: for https; by default one that trusts the system's CAs.
        uds: path of a Unix socket to connect to, whatever the address says.
        max_connections: connections to one origin at a time. A request beyond it waits, except that
            urgent ones may have as many again.
    """

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        uds: str | None = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        if max_connections < 1:
            raise ValueError("max_connections must be at least 1")
        self._ssl_context = ssl_context
        self._uds = uds
        self._max_connections = max_connections
        self._pools: dict[str, _Pool] = {}
        self._is_closed = False

    def start(
        self,
        template: RequestTemplate,
        on_response: OnResponse,
        body: bytes = b"",
        extra: HeaderList = (),
        *,
        connect_timeout: float = 10.0,
        urgent: bool = False,
    ) -> NativeExchange:
        if self._is_closed:
            raise TransportClosed("http client is closed")
        pool = self._pools.get(template.url.origin)
        if pool is None:
            pool = self._pools[template.url.origin] = _Pool(
                template.url, self._ssl_context, self._uds, self._max_connections
            )
        method = template.method
        if body or method not in ("GET", "HEAD", "DELETE"):
            data = b"%bcontent-length: %d\r\n\r\n%b" % (template.head(extra), len(body), body)
        else:
            data = template.head(extra) + b"\r\n"
        exchange = NativeExchange(pool, method, data, on_response, connect_timeout, urgent)
        pool.submit(exchange)
        return exchange

    async def aclose(self) -> None:
        """Give up every request and close every connection. Repeatable.

        Callbacks of requests under way get TransportClosed; bodies under way end with it.
        """
        self._is_closed = True
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()
        if pools:
            # Closing takes a turn of the loop; after it no transport is left to warn about.
            await asyncio.sleep(0)


class NativeExchange:
    """A request under way; see :class:`~mcpfast.http.client_interface.Exchange`."""

    __slots__ = (
        "_connection",
        "_on_response",
        "_pool",
        "connect_timeout",
        "data",
        "method",
        "retried",
        "task",
        "urgent",
    )

    def __init__(
        self,
        pool: _Pool,
        method: str,
        data: bytes,
        on_response: OnResponse,
        connect_timeout: float,
        urgent: bool,
    ) -> None:
        self._pool = pool
        self._on_response: OnResponse | None = on_response
        self._connection: ClientConnection | None = None
        self.method = method
        self.data = data
        self.connect_timeout = connect_timeout
        self.urgent = urgent
        self.retried = False
        self.task: asyncio.Task[None] | None = None
        """Makes a connection for it, where there was none."""

    @property
    def is_over(self) -> bool:
        """It was answered, failed or cancelled."""
        return self._on_response is None

    @property
    def is_sent(self) -> bool:
        return self._on_response is None or self._connection is not None

    def cancel(self) -> None:
        if self._on_response is not None:
            self._on_response = None
            self._pool.forget(self)
            if self._connection is not None:
                self._connection.abort()
                self._connection = None

    # For the pool and the connection

    def send_on(self, connection: ClientConnection) -> None:
        self._connection = connection
        connection.send(self, self.data)

    def respond(self, response: ClientResponse) -> None:
        on_response, self._on_response = self._on_response, None
        self._connection = None
        self.data = b""
        if on_response is not None:
            on_response(response, None)

    def fail(self, error: Exception) -> None:
        on_response, self._on_response = self._on_response, None
        self._connection = None
        self.data = b""
        if on_response is not None:
            on_response(None, error)

    def connection_lost(self, connection: ClientConnection, error: ConnectionError) -> None:
        """The connection went before anything of the answer came."""
        self._connection = None
        if self._on_response is None:
            return
        if self.method == "GET" and connection.is_untouched and not self.retried:
            # The server closed a kept connection just as we used it. A GET may be asked twice (RFC 9110
            # §9.2.2); a POST may have been carried out, so its caller must hear of it.
            self.retried = True
            self._pool.submit(self, fresh=True)
        else:
            self.fail(error)


class _Pool:
    """The connections to one origin."""

    __slots__ = (
        "_busy",
        "_connecting",
        "_deadlines",
        "_heads",
        "_idle",
        "_is_closed",
        "_loop",
        "_max",
        "_ssl",
        "_sweep_timer",
        "_uds",
        "_url",
        "_waiting",
        "_waiting_urgent",
    )

    def __init__(self, url: URL, context: ssl.SSLContext | None, uds: str | None, max_connections: int) -> None:
        self._url = url
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines.for_loop(self._loop)
        if context is None and url.scheme == "https":
            context = ssl.create_default_context()
        self._ssl = context if url.scheme == "https" else None
        self._uds = uds
        self._max = max_connections
        self._idle: list[ClientConnection] = []  # the one used last is taken first
        self._busy: set[ClientConnection] = set()
        self._heads: dict[bytes, KnownHead] = {}
        self._connecting: set[NativeExchange] = set()
        # In the order they came; any of them may leave, and thousands at once when their time is up.
        self._waiting: OrderedDict[NativeExchange, None] = OrderedDict()
        self._waiting_urgent: OrderedDict[NativeExchange, None] = OrderedDict()
        self._sweep_timer: Deadline | None = None
        self._is_closed = False

    def submit(self, exchange: NativeExchange, *, fresh: bool = False) -> None:
        """Give the request a kept connection, or a new one, or have it wait."""
        if not fresh:
            connection = self._take()
            if connection is not None:
                self._busy.add(connection)
                exchange.send_on(connection)
                return
        if self._has_room(exchange.urgent):
            self._connect_for(exchange)
        else:
            self._queue_of(exchange)[exchange] = None

    def forget(self, exchange: NativeExchange) -> None:
        """A request was cancelled: stop making or waiting for its connection."""
        if exchange.task is not None:
            exchange.task.cancel()
        else:
            self._queue_of(exchange).pop(exchange, None)

    def close(self) -> None:
        self._is_closed = True
        error = TransportClosed("http client is closed")
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for exchange in [*self._connecting, *self._waiting_urgent, *self._waiting]:
            self.forget(exchange)
            exchange.fail(error)
        for connection in [*self._idle, *self._busy]:
            connection.give_up(error)

    def _has_room(self, urgent: bool) -> bool:
        count = len(self._busy) + len(self._connecting) + len(self._idle)
        return count < (2 * self._max if urgent else self._max)

    def _queue_of(self, exchange: NativeExchange) -> OrderedDict[NativeExchange, None]:
        return self._waiting_urgent if exchange.urgent else self._waiting

    def _take(self) -> ClientConnection | None:
        now = self._deadlines.now()
        idle = self._idle
        while idle:
            connection = idle.pop()
            if not connection.is_usable:
                continue
            if now - connection.idle_since > _TRUSTED_S and connection.is_stale:
                connection.abort()
                continue
            return connection
        return None

    # Making connections

    def _connect_for(self, exchange: NativeExchange) -> None:
        self._connecting.add(exchange)
        exchange.task = self._loop.create_task(self._connect(exchange))

    async def _connect(self, exchange: NativeExchange) -> None:
        task = asyncio.current_task()
        assert task is not None
        is_late = False

        def too_late() -> None:
            nonlocal is_late
            is_late = True
            task.cancel()

        timer = self._deadlines.after(exchange.connect_timeout, too_late)
        try:
            connection = await self._open()
        except asyncio.CancelledError:
            if not is_late:
                raise
            exchange.fail(
                RequestTimeout(
                    f"connecting to {self._url.netloc} took longer than {exchange.connect_timeout:g} s",
                    seconds=exchange.connect_timeout,
                )
            )
        except (OSError, ValueError) as error:  # ValueError: certificate and host name trouble of ssl
            fault = ConnectionError(f"cannot connect to {self._url.netloc}: {error}")
            fault.__cause__ = error
            exchange.fail(fault)
        else:
            if self._is_closed:
                connection.abort()
            elif exchange.is_over:
                self._busy.add(connection)
                self._free(connection)
            else:
                self._busy.add(connection)
                exchange.send_on(connection)
        finally:
            timer.cancel()
            exchange.task = None
            self._connecting.discard(exchange)
            self._serve_waiting()

    async def _open(self) -> ClientConnection:
        loop, url = self._loop, self._url
        factory = partial(ClientConnection, url.origin, self._free, self._lost, self._heads)
        server_hostname = url.host if self._ssl is not None else None
        if self._uds is not None:
            _, connection = await loop.create_unix_connection(
                factory, self._uds, ssl=self._ssl, server_hostname=server_hostname
            )
        else:
            _, connection = await loop.create_connection(
                factory, url.host, url.port, ssl=self._ssl, server_hostname=server_hostname
            )
            _set_socket_options(connection.transport.get_extra_info("socket"))
        return connection

    # The life of connections

    def _free(self, connection: ClientConnection) -> None:
        """A connection can carry another request."""
        self._busy.discard(connection)
        if self._waiting_urgent or self._waiting:
            exchange = (self._waiting_urgent or self._waiting).popitem(last=False)[0]
            self._busy.add(connection)
            exchange.send_on(connection)
            return
        connection.idle_since = self._deadlines.now()
        if self._is_closed or len(self._idle) >= self._max:
            connection.abort()
            return
        self._idle.append(connection)
        if self._sweep_timer is None:
            self._sweep_timer = self._deadlines.after(SWEEP_S, self._sweep)

    def _lost(self, connection: ClientConnection) -> None:
        if connection in self._busy:
            self._busy.discard(connection)
        elif connection in self._idle:
            self._idle.remove(connection)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        for waiting, urgent in ((self._waiting_urgent, True), (self._waiting, False)):
            while waiting and self._has_room(urgent):
                self._connect_for(waiting.popitem(last=False)[0])

    def _sweep(self) -> None:
        """Close connections that have been quiet for too long; as long as there are any."""
        now = self._deadlines.now()
        kept = []
        for connection in self._idle:
            limit = IDLE_S if connection.idle_s is None else connection.idle_s
            if connection.is_usable and now - connection.idle_since < limit:
                kept.append(connection)
            else:
                connection.abort()
        self._idle = kept
        self._sweep_timer = self._deadlines.after(SWEEP_S, self._sweep) if kept else None


def _set_socket_options(sock: socket.socket | None) -> None:
    """Find a dead peer: 30 s for what we sent to be confirmed, keepalive while nothing is sent."""
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_S * 1000)
