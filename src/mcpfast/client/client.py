"""The client as applications see it: calls, notifications, handlers."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ..errors import ProtocolError
from ..http.client_request import HeadersInput
from ..protocol.revisions import LATEST_LEGACY, LEGACY
from .session import NotificationHandler, ProgressHandler, RequestHandler, Session

__all__ = ["Client"]


class Client:
    """A connection to one MCP server. Made by :func:`~mcpfast.connect`, already initialized.

    Calls may be made by many tasks at once. Dropping the last reference closes the client.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._initialized: dict[str, Any] = {}
        self._version = ""

    async def initialize(
        self,
        *,
        protocol_version: str | None = None,
        client_info: dict[str, Any] | None = None,
        capabilities: dict[str, Any] | None = None,
        timeout: float = 60.0,
    ) -> dict[str, Any]:
        """Shake hands with a server of a revision before 2026-07-28; ``connect`` has done it.

        Args:
            protocol_version: the revision to ask for; the latest with a handshake by default.
            client_info: name and version to give; this package's by default.
            capabilities: what this client offers the server.
            timeout: seconds.

        Returns:
            The server's answer.

        Raises:
            ProtocolError: the answer is malformed, or names a revision we do not know.
            MCPFastError, ConnectionError: as for :meth:`request`.
        """
        asked = LATEST_LEGACY if protocol_version is None else protocol_version
        if asked not in LEGACY:
            raise ValueError(f"protocol version {asked!r} has no initialize, those that do are {', '.join(LEGACY)}")
        params = {
            "protocolVersion": asked,
            "capabilities": {} if capabilities is None else capabilities,
            "clientInfo": _own_info() if client_info is None else client_info,
        }
        result = await self._session.request("initialize", params, timeout=timeout)
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if not isinstance(version, str):
            raise ProtocolError("answer to initialize has no protocolVersion")
        if version not in LEGACY:
            raise ProtocolError(
                f"server chose protocol version {version[:40]!r}, this client knows {', '.join(LEGACY)}"
            )
        self._initialized = result
        self._version = version
        await self._session.notify("notifications/initialized")
        return self._initialized

    async def request(
        self,
        method: str,
        params: dict[str, Any] | list[Any] | None = None,
        *,
        timeout: float | None = 60.0,
        headers: HeadersInput | None = None,
        on_progress: ProgressHandler | None = None,
    ) -> Any:
        """Call a method of the server and return its result.

        Being cancelled tells the server so, and so does running out of time.

        Args:
            method: such as ``"tools/call"``.
            params: any JSON object (or array).
            timeout: seconds from the call to its answer, whatever progress is made; None for no limit.
            headers: HTTP header fields for this call only.
            on_progress: called, or awaited, with progress, total (or None) and message (or None).

        Raises:
            RPCError: the server answered with an error.
            RequestTimeout: no answer in time.
            TransportClosed: the client is closed, or the connection ended; its cause says why.
            AuthorizationRequired, HTTPStatusError: the server refused the HTTP request.
            ConnectionError: the request may not have arrived. It is not sent again.
            ProtocolError: ``params`` cannot be JSON, or the answer is malformed.
        """
        return await self._session.request(method, params, timeout=timeout, headers=headers, on_progress=on_progress)

    async def notify(
        self, method: str, params: dict[str, Any] | list[Any] | None = None, *, headers: HeadersInput | None = None
    ) -> None:
        """Send a notification; returns when the server has taken it.

        Raises:
            As for :meth:`request`, but for RPCError.
        """
        await self._session.notify(method, params, headers=headers)

    def on_notification(self, handler: NotificationHandler | None) -> None:
        """Have ``handler`` called, or awaited, with each :class:`~mcpfast.jsonrpc.Notification` of the server.

        In order, one at a time. Progress that a call's ``on_progress`` gets does not come here. What it
        raises is logged.
        """
        self._session.on_notification = handler

    def on_request(self, handler: RequestHandler | None) -> None:
        """Have ``handler`` called, or awaited, with each :class:`~mcpfast.jsonrpc.Request` of the server.

        It returns the result. An RPCError it raises is the answer; anything else is logged and answered
        with -32603. Each request runs in a task, which is cancelled if the server cancels the request.
        Pings are answered without it.
        """
        self._session.on_request = handler

    @property
    def protocol_version(self) -> str:
        """The revision both sides speak, such as ``"2025-11-25"``."""
        return self._version

    @property
    def server_info(self) -> dict[str, Any]:
        """The server's name, version and so on, as it gave them."""
        return _object(self._initialized.get("serverInfo"))

    @property
    def server_capabilities(self) -> dict[str, Any]:
        """What the server says it can do."""
        return _object(self._initialized.get("capabilities"))

    @property
    def instructions(self) -> str | None:
        """The server's hints on how to use it, or None."""
        text = self._initialized.get("instructions")
        return text if isinstance(text, str) else None

    @property
    def session_id(self) -> str | None:
        """The ``Mcp-Session-Id``, a secret; None on HTTP+SSE, which has none."""
        return self._session.channel.session_id

    async def close(self) -> None:
        """End the connection; calls that wait fail with TransportClosed. Repeatable, from any task."""
        await self._session.aclose()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        self._session.drop()


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _own_info() -> dict[str, Any]:
    from importlib.metadata import version

    return {"name": "mcpfast", "version": version("mcpfast")}
