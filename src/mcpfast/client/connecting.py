"""``connect()``: from an address to an initialized client."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ..errors import MCPFastError
from .client import Client
from .session import NotificationHandler, RequestHandler, Session
from .sse import SSEClientTransport

__all__ = ["Connecting", "connect"]


def connect(
    url: str,
    transport: str | None = None,
    protocol_version: str | None = None,
    *,
    client_info: dict[str, Any] | None = None,
    capabilities: dict[str, Any] | None = None,
    on_notification: NotificationHandler | None = None,
    on_request: RequestHandler | None = None,
    **options: Any,
) -> Connecting:
    """Connect to an MCP server: ``async with connect(url) as client: ...``.

    Args:
        url: of the server's endpoint.
        transport: ``"sse"`` for HTTP+SSE (2024-11-05), the one transport there is so far; None for the
            same.
        protocol_version: the revision to ask for in ``initialize``; the latest by default.
        client_info: name and version to tell the server; this package's by default.
        capabilities: what this client offers the server, such as ``{"sampling": {}}``.
        on_notification, on_request: handlers as for :class:`Client`, in place before the first message.
        options: for the transport, see :class:`SSEClientTransport`.

    Raises:
        ValueError, TypeError: an argument is not valid. Here; all that follows is raised on entering.
        MCPFastError: the transport is one this version does not have.
    """
    if transport in ("http", "streamable-http"):
        raise MCPFastError(f"transport {transport!r} is not in this version, only 'sse' is")
    if transport not in (None, "sse"):
        raise ValueError(f"transport must be 'sse' or None, not {transport!r}")
    handshake = {"protocol_version": protocol_version, "client_info": client_info, "capabilities": capabilities}
    return Connecting(SSEClientTransport(url, **options), handshake, on_notification, on_request)


class Connecting:
    """What :func:`connect` returns: enter it for the client. Each entering makes a connection of its own."""

    def __init__(
        self,
        transport: SSEClientTransport,
        handshake: dict[str, Any],
        on_notification: NotificationHandler | None,
        on_request: RequestHandler | None,
    ) -> None:
        self._transport = transport
        self._handshake = handshake
        self._on_notification = on_notification
        self._on_request = on_request
        self._entered: list[Client] = []

    async def __aenter__(self) -> Client:
        session = Session(self._transport.channel())
        client = Client(session)
        client.on_notification(self._on_notification)
        client.on_request(self._on_request)
        await session.open()
        try:
            await client.initialize(**self._handshake)
        except BaseException:
            await client.close()
            raise
        self._entered.append(client)
        return client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._entered.pop().close()

    def __repr__(self) -> str:
        return f"<Connecting to {self._transport.url}>"
