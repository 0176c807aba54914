"""The client as applications see it: calls, notifications, handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, TypeAlias

from ..errors import ProtocolError
from ..http.client_request import HeadersInput
from ..protocol.envelope import Envelope
from ..protocol.modern import SERVER_INFO_KEY
from ..protocol.revisions import LATEST, LATEST_LEGACY, LEGACY, MODERN
from .listen import Listening
from .modern_calls import ModernCalls
from .restarting import Restarter
from .session import NotificationHandler, ProgressHandler, RequestHandler, Session

__all__ = ["Client", "RestartHandler"]

RestartHandler: TypeAlias = "Callable[[Client], Awaitable[None] | None]"


class Client:
    """A connection to one MCP server. Made by :func:`~mcpfast.connect`, ready for calls.

    Calls may be made by many tasks at once. Dropping the last reference closes the client.

    Args:
        session: its calls.
        reinitialize: start a new session when the server has ended the present one.
        on_session_restarted: called, or awaited, with the client once a new session is there.
    """

    def __init__(
        self,
        session: Session,
        *,
        reinitialize: bool = True,
        on_session_restarted: RestartHandler | None = None,
    ) -> None:
        self._session = session
        self._result: dict[str, Any] = {}
        self._server_info: dict[str, Any] = {}
        self._version = session.channel.protocol_version or ""
        self._modern: ModernCalls | None = None
        self._restarter = Restarter(session, on_session_restarted) if reinitialize else None

    # The handshake

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
        session = self._session
        session.envelope = self._modern = None
        session.channel.use(None)
        params = {
            "protocolVersion": asked,
            "capabilities": {} if capabilities is None else capabilities,
            "clientInfo": _own_info() if client_info is None else client_info,
        }
        result = await session.request("initialize", params, timeout=timeout)
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if not isinstance(version, str):
            raise ProtocolError("answer to initialize has no protocolVersion")
        if version not in LEGACY:
            raise ProtocolError(
                f"server chose protocol version {version[:40]!r}, this client knows {', '.join(LEGACY)}"
            )
        self._result = result
        self._server_info = _object(result.get("serverInfo"))
        self._version = version
        await session.notify("notifications/initialized")
        if self._restarter is not None:
            again: dict[str, Any] = {
                "protocol_version": asked,
                "client_info": client_info,
                "capabilities": capabilities,
            }
            self._restarter.began(lambda client: client.initialize(**again, timeout=timeout))
        return self._result

    async def discover(
        self,
        *,
        protocol_version: str = LATEST,
        client_info: dict[str, Any] | None = None,
        capabilities: dict[str, Any] | None = None,
        timeout: float = 60.0,
    ) -> dict[str, Any]:
        """Ask a server of 2026-07-28 what it is, and speak that revision from now on; ``connect`` has done it.

        Args:
            protocol_version: the revision to speak.
            client_info: name and version to give with every request; this package's by default.
            capabilities: what this client offers the server.
            timeout: seconds.

        Returns:
            The server's answer. It may not list the revision: then none is spoken, and calls are not possible before
            :meth:`initialize`.

        Raises:
            ProtocolError: the answer is malformed, or this transport has no such revision.
            RPCError: the server does not serve the revision (-32022), or is an older one.
            MCPFastError, ConnectionError: as for :meth:`request`.
        """
        self.speak(protocol_version, client_info, capabilities)
        is_there = False
        try:
            result = await self._session.request("server/discover", None, timeout=timeout)
            supported = result.get("supportedVersions") if isinstance(result, dict) else None
            if not isinstance(supported, list):
                raise ProtocolError("answer to server/discover has no list supportedVersions")
            is_there = protocol_version in supported
        finally:
            if not is_there:
                self._session.envelope = self._modern = None
                self._session.channel.use(None)
                self._version = ""
        self._result = result
        meta = _object(result.get("_meta"))
        self._server_info = _object(meta.get(SERVER_INFO_KEY) or result.get("serverInfo"))
        return self._result

    def speak(
        self,
        protocol_version: str = LATEST,
        client_info: dict[str, Any] | None = None,
        capabilities: dict[str, Any] | None = None,
    ) -> None:
        """Speak 2026-07-28 from now on without asking the server; arguments as for :meth:`discover`.

        Raises:
            ProtocolError: this transport has no such revision.
        """
        if protocol_version not in MODERN:
            raise ValueError(f"protocol version {protocol_version!r} has sessions, those without: {', '.join(MODERN)}")
        session = self._session
        session.channel.use(protocol_version)
        info = _own_info() if client_info is None else client_info
        session.envelope = Envelope(protocol_version, info, {} if capabilities is None else capabilities)
        self._modern = ModernCalls(session)
        self._version = protocol_version

    # Calls

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

        Being cancelled tells the server so, and so does running out of time. Where the server has ended the session
        (and ``reinitialize`` is not off), a new one is begun and the request sent again, once.

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
            SessionTerminated: the server ended the session, and the request may have been carried out, or a new
                session was ended too.
            AuthorizationRequired, HTTPStatusError, UnexpectedContentType: the server refused the HTTP request.
            EventTooLarge, ResponseTooLarge: the answer is over a limit.
            ConnectionError: the request may not have arrived. It is not sent again.
            ProtocolError: ``params`` cannot be JSON, or the answer is malformed.
        """
        if self._modern is not None:
            return await self._modern.request(method, params, timeout, headers, on_progress)
        if self._restarter is None:
            return await self._session.request(
                method, params, timeout=timeout, headers=headers, on_progress=on_progress
            )
        return await self._restarter.request(self, method, params, timeout, headers, on_progress)

    async def notify(
        self, method: str, params: dict[str, Any] | list[Any] | None = None, *, headers: HeadersInput | None = None
    ) -> None:
        """Send a notification; returns when the server has taken it.

        Raises:
            As for :meth:`request`, but for RPCError.
        """
        if self._restarter is None or self._modern is not None:
            await self._session.notify(method, params, headers=headers)
        else:
            await self._restarter.notify(self, method, params, headers)

    def listen(self, notifications: dict[str, Any] | None = None, *, reconnect: bool = True) -> Listening:
        """Listen to changes on the server (``subscriptions/listen``, 2026-07-28)::

            async for message in client.listen({"toolsListChanged": True}):
                ...

        Args:
            notifications: what to listen to, as the specification has it: ``toolsListChanged``, ``promptsListChanged``,
                ``resourcesListChanged`` and ``resourceSubscriptions`` (a list of URIs). By default the first three.
            reconnect: listen again when the stream is lost; what happened meanwhile is missed.

        Returns:
            An async iterator of :class:`~mcpfast.jsonrpc.Notification`. It ends when the server ends the subscription.
            Leave it early with ``aclose()`` or ``async with``.

        Raises:
            ProtocolError: the server speaks an older revision, which has no such thing.
        """
        if self._modern is None:
            raise ProtocolError(f"subscriptions/listen is not part of revision {self._version or 'unknown'}")
        asked = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
        return Listening(self._session, asked if notifications is None else notifications, reconnect=reconnect)

    # Handlers

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
        Pings are answered without it. Servers of 2026-07-28 send none.
        """
        self._session.on_request = handler

    # What is known of the server

    @property
    def protocol_version(self) -> str:
        """The revision both sides speak, such as ``"2025-11-25"``."""
        return self._version

    @property
    def server_info(self) -> dict[str, Any]:
        """The server's name, version and so on, as it gave them."""
        return self._server_info

    @property
    def server_capabilities(self) -> dict[str, Any]:
        """What the server says it can do."""
        return _object(self._result.get("capabilities"))

    @property
    def instructions(self) -> str | None:
        """The server's hints on how to use it, or None."""
        text = self._result.get("instructions")
        return text if isinstance(text, str) else None

    @property
    def session_id(self) -> str | None:
        """The ``Mcp-Session-Id``, a secret; None where there is no session, and on HTTP+SSE."""
        return self._session.channel.session_id

    # The end

    async def close(self) -> None:
        """End the connection; calls that wait fail with TransportClosed. Repeatable, from any task."""
        await self._session.aclose()
        if self._restarter is not None:
            await self._restarter.aclose()

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
