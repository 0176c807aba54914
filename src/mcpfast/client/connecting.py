"""``connect()``: from an address to a client that is ready for calls."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ..protocol.revisions import MODERN, REVISIONS
from .client import Client, RestartHandler
from .detection import Plan, reach
from .session import NotificationHandler, RequestHandler, Session
from .sse import SSEClientTransport
from .streamable import StreamableHTTPClientTransport

__all__ = ["Connecting", "connect"]

_STREAMABLE = ("streamable-http", "http")
# What both transports take; a server that is found to be an old one gets these.
_SHARED = frozenset(
    {"auth", "connect_timeout", "header_func", "headers", "http_client", "idle_timeout", "max_event_bytes", "timeout"}
)


def connect(
    url: str,
    transport: str | None = None,
    protocol_version: str | None = None,
    *,
    client_info: dict[str, Any] | None = None,
    capabilities: dict[str, Any] | None = None,
    on_notification: NotificationHandler | None = None,
    on_request: RequestHandler | None = None,
    handshake: bool = True,
    reinitialize: bool = True,
    on_session_restarted: RestartHandler | None = None,
    **options: Any,
) -> Connecting:
    """Connect to an MCP server: ``async with connect(url) as client: ...``.

    What the server speaks is found out: 2026-07-28, else a session of an older revision, else HTTP+SSE. It is
    remembered for the address as long as the process lives. A server that cannot be reached, or refuses us, is an
    error.

    Args:
        url: of the server's endpoint.
        transport: ``"streamable-http"`` (or ``"http"`` for short) or ``"sse"`` (HTTP+SSE, 2024-11-05); None to find
            out.
        protocol_version: the revision to speak; None to find out. One with sessions is asked for in ``initialize``,
            to which the server may answer with another. Without ``transport``, ``"2024-11-05"`` means HTTP+SSE.
        client_info: name and version to tell the server; this package's by default.
        capabilities: what this client offers the server, such as ``{"sampling": {}}``.
        on_notification, on_request: handlers as for :class:`Client`, in place before the first message.
        handshake: False to leave ``initialize``, ``discover`` or ``speak`` to you; needs ``transport``.
        reinitialize: begin a new session when the server has ended the present one; the message that it refused is
            sent again, once.
        on_session_restarted: called, or awaited, with the client once there is a new session.
        options: for the transport, see :class:`StreamableHTTPClientTransport` and :class:`SSEClientTransport`. With
            ``session_id`` and ``protocol_version`` an existing session is taken up, without a handshake.

    Raises:
        ValueError, TypeError: an argument is not valid. Here; all that follows is raised on entering.
    """
    if transport not in (None, "sse", *_STREAMABLE):
        raise ValueError(f"transport must be 'streamable-http', 'http', 'sse' or None, not {transport!r}")
    if protocol_version is not None and protocol_version not in REVISIONS:
        raise ValueError(f"protocol version {protocol_version!r} is not known, those that are: {', '.join(REVISIONS)}")
    streamable = sse = None
    session_id = options.get("session_id")
    if transport == "sse":
        if protocol_version in MODERN:
            raise ValueError(f"protocol version {protocol_version} has no initialize, and is not spoken over HTTP+SSE")
        sse = SSEClientTransport(url, **options)
    else:
        if session_id is not None:
            options["protocol_version"] = protocol_version
        streamable = StreamableHTTPClientTransport(url, **options)
        if transport is None and session_id is None:
            sse = SSEClientTransport(url, **{name: value for name, value in options.items() if name in _SHARED})
    if not handshake and streamable is not None and sse is not None:
        raise ValueError("handshake=False needs transport, as nothing is asked that could tell")
    face = {"reinitialize": reinitialize, "on_session_restarted": on_session_restarted}
    hello = {"client_info": client_info, "capabilities": capabilities}
    opener = _Opener(face, on_notification, on_request)
    plan = Plan(
        (streamable or sse).url,  # type: ignore[union-attr]  # one of them is there
        None if streamable is None else lambda: opener.open(streamable),
        None if sse is None else lambda: opener.open(sse),
        protocol_version,
        hello,
    )
    return Connecting(plan, asks=handshake and session_id is None)


class _Opener:
    """Makes clients that have not yet shaken hands."""

    def __init__(
        self, face: dict[str, Any], on_notification: NotificationHandler | None, on_request: RequestHandler | None
    ) -> None:
        self._face = face
        self._on_notification = on_notification
        self._on_request = on_request

    async def open(self, transport: StreamableHTTPClientTransport | SSEClientTransport) -> Client:
        session = Session(transport.channel())
        client = Client(session, **self._face)
        client.on_notification(self._on_notification)
        client.on_request(self._on_request)
        await session.open()
        return client


class Connecting:
    """What :func:`connect` returns: enter it for the client. Each entering makes a connection of its own."""

    def __init__(self, plan: Plan, *, asks: bool) -> None:
        self._plan = plan
        self._asks = asks
        self._entered: list[Client] = []

    async def __aenter__(self) -> Client:
        plan = self._plan
        if self._asks:
            client = await reach(plan)
        else:
            opener = plan.streamable or plan.sse
            assert opener is not None
            client = await opener()
        self._entered.append(client)
        return client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._entered.pop().close()

    def __repr__(self) -> str:
        return f"<Connecting to {self._plan.url}>"
