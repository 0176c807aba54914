"""What a handler is given: who asks, from where, and a way to talk to them while it works."""

from __future__ import annotations

from typing import Any, Protocol

from ..errors import TransportClosed
from ..http.interface import Headers, Request
from ..jsonrpc import UNSET, RequestId, encode_notification
from .principal import Principal

__all__ = ["Channel", "Context", "Peer"]

DEFAULT_TIMEOUT_S = 60.0


class Peer:
    """What is known of a client: of a session's, or, without sessions, of the one that sent a request."""

    __slots__ = ("client_capabilities", "client_info", "principal", "protocol_version", "session_id")

    def __init__(
        self,
        session_id: str | None = None,
        principal: Principal | None = None,
        protocol_version: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.principal = principal
        self.protocol_version = protocol_version
        """The revision spoken; None until it was negotiated."""
        self.client_info: dict[str, Any] = {}
        self.client_capabilities: dict[str, Any] = {}


class Channel(Protocol):
    """Where what a handler says goes: the stream its request belongs to."""

    async def send(self, payload: bytes) -> None:
        """Send a notification, waiting while the client is too far behind.

        Raises:
            TransportClosed: the stream has ended.
        """

    async def call(self, method: str, params: dict[str, Any] | None, timeout: float) -> Any:
        """Send a request and return the client's result."""

    def close_stream(self, retry_ms: int | None) -> None:
        """End the connection the stream is on; the client takes it up again."""


class Context:
    """One request or notification as its handler sees it. Not to be used from other threads.

    After the request was answered or cancelled, :meth:`progress` does nothing and :meth:`notify` raises
    TransportClosed if there is no stream that it could still be sent on.
    """

    __slots__ = (
        "_channel",
        "_http_request",
        "_params",
        "is_cancelled",
        "is_done",
        "peer",
        "request_id",
        "state",
        "task",
    )

    def __init__(
        self,
        peer: Peer,
        channel: Channel,
        request: Request | None = None,
        request_id: RequestId | None = None,
        params: Any = UNSET,
        state: Any = None,
    ) -> None:
        self.peer = peer
        self._channel = channel
        self._http_request = request
        self.request_id = request_id
        """The JSON-RPC id; None for a notification."""
        self._params = params
        self.state = state
        """What the server's lifespan gave."""
        self.is_done = False
        """It was answered, or is owed no answer any more."""
        self.is_cancelled = False
        """The client gave it up, or has left. A handler that runs in a thread may look at this."""
        self.task: Any = None  # the asyncio.Task it runs in, for the dispatcher

    @property
    def request(self) -> ContextRequest:
        """Both the HTTP request that brought it, and the way to send the client a request.

        ``ctx.request.path``, ``ctx.request.client`` and so on tell of the first;
        ``await ctx.request("sampling/createMessage", {...}, timeout=60)`` does the second.
        """
        return ContextRequest(self._http_request, self._channel, self)

    @property
    def headers(self) -> Headers:
        """The header fields of the HTTP request that brought it."""
        return Headers([]) if self._http_request is None else self._http_request.headers

    @property
    def principal(self) -> Principal | None:
        """Who is behind the request; None without authentication."""
        return self.peer.principal

    @property
    def session_id(self) -> str | None:
        """The session's id. Keep it out of logs: it is all that ties a request to its session."""
        return self.peer.session_id

    @property
    def protocol_version(self) -> str | None:
        """The revision spoken with this client."""
        return self.peer.protocol_version

    @property
    def client_info(self) -> dict[str, Any]:
        """The client's name and version as it gave them; empty if it did not."""
        return self.peer.client_info

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """The client's capabilities as it gave them; empty if it did not."""
        return self.peer.client_capabilities

    @property
    def meta(self) -> dict[str, Any]:
        """The ``_meta`` of the params; empty if there is none."""
        params = self._params
        meta = params.get("_meta") if type(params) is dict else None
        return meta if type(meta) is dict else {}

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send the client a notification, waiting while it is too far behind.

        Raises:
            TransportClosed: the client has left, or has cancelled the request.
            ProtocolError: ``params`` cannot be JSON.
        """
        if self.is_cancelled:
            raise TransportClosed("the request was cancelled")
        await self._channel.send(encode_notification(method, UNSET if params is None else params))

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the work is. Does nothing if it did not ask, or has its answer.

        Args:
            done: must grow with every call (MCP, progress §Progress Flow).
            total: what ``done`` will be at the end, if known.
            message: a short text for the user.
        """
        token = self.meta.get("progressToken")
        if (type(token) is not str and type(token) is not int) or self.is_done:
            return
        params: dict[str, Any] = {"progressToken": token, "progress": done}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.notify("notifications/progress", params)

    def close_stream(self, *, retry_ms: int | None = None) -> None:
        """End the connection of this request's stream; the client takes it up again after ``retry_ms``.

        Raises:
            RuntimeError: the revision or transport has streams that end for good, such as HTTP+SSE.
        """
        self._channel.close_stream(retry_ms)


class ContextRequest(Request):
    """An HTTP request that can be called, to send a JSON-RPC request to the client behind it."""

    __slots__ = ("_channel", "_context")

    def __init__(self, request: Request | None, channel: Channel, context: Context) -> None:
        if request is None:
            super().__init__("", "/", "", Headers([]))
        else:
            for name in Request.__slots__:
                setattr(self, name, getattr(request, name))
        self._channel = channel
        self._context = context

    async def __call__(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float = DEFAULT_TIMEOUT_S
    ) -> Any:
        """Send the client a request and return its result.

        Args:
            timeout: seconds to wait for the answer. After it, or when the handler is cancelled meanwhile, the client
                is told that the request is cancelled.

        Raises:
            RPCError: the client answered with an error.
            RequestTimeout: it did not answer in time.
            TransportClosed: it has left, or has cancelled the request being handled.
            RuntimeError: the revision knows no requests from servers (2026-07-28).
        """
        if self._context.is_cancelled:
            raise TransportClosed("the request was cancelled")
        return await self._channel.call(method, params, timeout)
