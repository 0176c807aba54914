"""``StreamableHTTPClientTransport``: one URL, each message a POST (2025-03-26 to 2026-07-28)."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any

from ..codec import SSEDecoder
from ..http.client_request import URL, HeadersInput
from ..protocol.connection import Connection
from ..protocol.reconnection import DEFAULT_RETRY, RetryPolicy
from ..protocol.revisions import REVISIONS
from .connection import MessageConnection
from .sender import HeaderFunc, Sender
from .streamable_channel import StreamableChannel, StreamableOptions

__all__ = ["StreamableHTTPClientTransport"]


class StreamableHTTPClientTransport:
    """The client side of Streamable HTTP: raw messages to and from one server.

    ::

        async with StreamableHTTPClientTransport("https://example.com/mcp") as connection:
            await connection.send(Request(1, "initialize", {...}))
            answer = await connection.recv()

    Messages are sent as they are. From them the transport takes the headers: it keeps the session id and the revision
    that the answer to ``initialize`` brings, and mirrors a message whose ``_meta`` names 2026-07-28. After
    ``notifications/initialized`` it listens on a GET stream; broken streams are resumed. A 404 for the session raises
    SessionTerminated. For calls, handlers, time-outs and a new session use :func:`~mcpfast.connect`.

    Args:
        url: of the endpoint, used exactly as given.
        http_client: an ``AsyncClient`` of httpx or httpx2, used for every request, or a
            :class:`~mcpfast.http.native_client.NativeClient`. By default a native client of its own, or httpx if a
            proxy is set in the environment. A client that is given is never closed.
        headers: for every request; they win over the transport's own.
        header_func: called, or awaited, for the headers of each request, in the context of the call that makes it;
            they win over ``headers``.
        auth: an ``Auth`` object of httpx or httpx2.
        connect_timeout: seconds for a new TCP or TLS connection.
        timeout: seconds for the POST of a notification or response to be accepted. Requests wait as long as their
            caller does.
        idle_timeout: seconds a stream may be silent, comments counting as a sign of life, before it counts as lost and
            is resumed where it can be. None for no limit.
        max_event_bytes: size of one event, as for :class:`~mcpfast.codec.SSEDecoder`.
        max_response_bytes: size of one JSON answer.
        continuous_listening: keep a GET stream open in sessions; True always, False never, None once there is a
            session id.
        session_id: of a session that exists already: it is listened to at once. Needs ``protocol_version``.
        protocol_version: the revision that every message belongs to; by default ``initialize`` and the messages
            themselves tell.
        terminate_on_close: end the session on the server at close, with a DELETE that takes at most 5 s; by default
            unless ``session_id`` was given.
        retry: how often and how soon streams are taken up again.
        logger: where to log; ``mcpfast.client`` by default. Never payloads, tokens or session ids.

    Raises:
        ValueError, TypeError: an argument is not valid.
    """

    def __init__(
        self,
        url: str,
        *,
        http_client: Any = None,
        headers: HeadersInput | None = None,
        header_func: HeaderFunc | None = None,
        auth: Any = None,
        connect_timeout: float = 10.0,
        timeout: float = 60.0,
        idle_timeout: float | None = 300.0,
        max_event_bytes: int = 16 << 20,
        max_response_bytes: int = 16 << 20,
        continuous_listening: bool | None = None,
        session_id: str | None = None,
        protocol_version: str | None = None,
        terminate_on_close: bool | None = None,
        retry: RetryPolicy = DEFAULT_RETRY,
        logger: logging.Logger | None = None,
    ) -> None:
        for name, value in (("connect_timeout", connect_timeout), ("timeout", timeout), ("idle_timeout", idle_timeout)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive")
        if max_response_bytes < 1:
            raise ValueError("max_response_bytes must be positive")
        SSEDecoder(max_event_bytes=max_event_bytes)  # refuses a bad limit here and now
        if protocol_version is not None:
            revision = REVISIONS.get(protocol_version)
            if revision is None:
                known = ", ".join(REVISIONS)
                raise ValueError(f"protocol version {protocol_version!r} is not known, those that are: {known}")
            if session_id is not None and not revision.has_sessions:
                raise ValueError(f"protocol version {protocol_version} has no sessions, so no session_id")
        elif session_id is not None:
            raise ValueError("session_id needs protocol_version, which was agreed on when the session began")
        self.url = URL(url)
        self._sender_options = {
            "http_client": http_client,
            "headers": headers,
            "header_func": header_func,
            "auth": auth,
            "connect_timeout": connect_timeout,
        }
        # Refuses what is wrong with the rest, here and now.
        fields = [] if session_id is None else [("mcp-session-id", session_id)]
        Sender(self.url, **self._sender_options).template("GET", self.url, fields)
        self._options = StreamableOptions(
            timeout=timeout,
            idle_timeout=idle_timeout,
            max_event_bytes=max_event_bytes,
            max_response_bytes=max_response_bytes,
            continuous_listening=continuous_listening,
            session_id=session_id,
            protocol_version=protocol_version,
            terminate_on_close=session_id is None if terminate_on_close is None else terminate_on_close,
            retry=retry,
            logger=logging.getLogger("mcpfast.client") if logger is None else logger,
        )
        self._entered: list[Connection] = []

    def channel(self) -> StreamableChannel:
        """Return a new channel, not yet open."""
        return StreamableChannel(self.url, Sender(self.url, **self._sender_options), self._options)

    async def connect(self) -> Connection:
        """Return a connection. Nothing is sent yet, except that a session which exists already is listened to."""
        return await MessageConnection.open(self.channel())

    async def __aenter__(self) -> Connection:
        connection = await self.connect()
        self._entered.append(connection)
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._entered.pop().close()

    def __repr__(self) -> str:
        return f"<StreamableHTTPClientTransport {self.url}>"
