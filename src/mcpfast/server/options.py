"""The options of ``serve()``, ``run()``, ``Server.asgi()`` and ``SSEHandler``, all in one place.

Sizes are in bytes, times in seconds. What belongs to connections (``max_connections`` and the like) is for ``serve()``
and ``run()`` only; an ASGI server has its own.
"""

from __future__ import annotations

import ssl as _ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

from ..http.limits import HTTPLimits
from ..protocol.bearer import is_scope
from ..protocol.event_store import EventStore
from ..protocol.headers import is_session_id
from .principal import Authenticate
from .resource_metadata import ResourceMetadata

__all__ = ["APP", "HANDLER", "LISTENER", "STREAMABLE", "Responses", "ServerOptions"]

Responses: TypeAlias = Literal["auto", "json", "sse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(HTTPLimits):
    """Everything that can be set, with its default. :class:`~mcpfast.http.limits.HTTPLimits` has those of HTTP."""

    # Where
    path: str | None = "/mcp"
    """Where Streamable HTTP is; None: nowhere."""
    sse_path: str | None = "/sse"
    """Where HTTP+SSE is; None: nowhere."""
    root_path: str = ""
    """The prefix that a proxy takes off our paths, such as ``"/api"``: clients are told paths with it."""

    # How Streamable HTTP answers
    responses: Responses = "auto"
    """``"json"``: every request is answered by one JSON object, what its handler says before is dropped; ``"sse"``: by
    a stream; ``"auto"``: by JSON unless its handler says something before or takes long. Accept counts too."""
    stream_after_s: float = 1.0
    """How long an answer may take before it becomes a stream."""
    stateless: bool = False
    """Serve clients of the revisions with ``initialize`` without sessions: no GET stream, no requests to the client,
    every process can answer. 2026-07-28 never has sessions."""
    event_store: EventStore | None = None
    """Where events of sessions are kept, so that a broken stream can be taken up again; None: nowhere."""
    retry_ms: int | None = None
    """How long clients shall wait before they take a stream up again, in milliseconds; needs ``event_store``."""
    session_idle_s: float = 1800.0
    """How long a session of Streamable HTTP lives without a request or an open stream."""
    session_follow_up_s: float = 30.0
    """How soon after ``initialize`` a client must come back."""
    tool_input_schema: Callable[[str], Mapping[str, Any] | None] | None = None
    """Gives the input schema of a tool by name. Its ``x-mcp-header`` marks are then held against the ``Mcp-Param-*``
    headers of 2026-07-28."""

    # Who
    allowed_hosts: Sequence[str] | None = None
    """Values of Host to answer to: ``"name"``, ``"name:port"``, ``"name:*"`` (any port or none), or ``"*"``. None: only
    names of this machine for ``serve()`` on loopback, any name elsewhere. Others get 421."""
    allowed_origins: Sequence[str] = ()
    """Values of Origin to answer to besides the server's own: ``"https://app.example.com"``, ``"http://localhost:*"``,
    or ``"*"``. Others get 403; requests without one pass."""
    authenticate: Authenticate | None = None
    """Finds out who sent a request, ``(request) -> Principal | None``, sync or async; None is answered with 401.
    A session then belongs to who opened it."""
    required_scopes: Sequence[str] = ()
    """What the ``scopes`` of every Principal must hold; others get 403. Challenges name them."""
    resource_metadata: ResourceMetadata | None = None
    """Who issues tokens for this server. Challenges point to it; ``serve()``, ``run()`` and ``asgi()`` publish it."""
    cors: bool = False
    """Let pages of the origins that are answered to read the answers."""

    # How much
    max_sessions: int = 10_000
    """Sessions open at one time; further ones get 503."""
    max_in_flight: int = 1_000
    """Requests in flight in one session; further ones get 503."""
    max_in_flight_total: int = 10_000
    """Requests in flight in this process; further ones get 503."""
    max_queued_messages: int = 100
    """Messages that wait for a reader of raw messages; further POSTs wait outside."""
    queue_timeout_s: float = 10.0
    """How long a POST waits for room; then it gets 503."""
    max_backlog_messages: int = 100
    """What ``publish`` may owe a reader that is ``max_unsent_bytes`` behind; then its stream is dropped."""

    # How long
    keepalive_s: float = 15.0
    """How long a stream may be quiet before a comment is sent; 0: none are sent."""
    shutdown_grace_s: float = 10.0
    """How long running requests may take once the server stops; then they are cancelled."""

    # Hooks
    session_id_factory: Callable[[], str] | None = None
    """Makes session ids, visible ASCII that cannot be guessed; None: 192 bits from ``secrets``."""
    on_connection: Callable[[Any], None] | None = None
    """Told of each session before its stream begins; what it raises refuses the session with 500."""
    no_server_status: int = 404
    """The answer where ``get_server`` gives None."""
    access_log: Callable[[Any], None] | None = None
    """Told of each answered request; see :class:`~mcpfast.http.native_server.NativeServer`."""

    # The listening socket
    ssl: _ssl.SSLContext | None = None
    """Serve TLS with this context."""
    unix_path: str | None = None
    """Listen on this Unix socket instead of host and port."""
    reuse_port: bool = False
    """Let several processes listen on one port (SO_REUSEPORT)."""
    backlog: int = 2048
    """Connections that the system keeps for us to accept."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith("max_") and (type(value) is not int or value < 1):
                raise ValueError(f"{field.name} must be an int of at least 1, not {value!r}")
            if field.name.endswith("_s") and (
                type(value) not in (int, float) or not value >= 0 or (value == 0 and field.name not in _MAY_BE_ZERO)
            ):
                raise ValueError(f"{field.name} must be a number of seconds, not {value!r}")
        if self.responses not in ("auto", "json", "sse"):
            raise ValueError(f"responses must be 'auto', 'json' or 'sse', not {self.responses!r}")
        if self.retry_ms is not None and (type(self.retry_ms) is not int or self.retry_ms < 0):
            raise ValueError(f"retry_ms must be a number of milliseconds, not {self.retry_ms!r}")
        if self.retry_ms is not None and self.event_store is None:
            raise ValueError("retry_ms needs event_store: without one no stream can be taken up again")
        if self.stateless and self.event_store is not None:
            raise ValueError("stateless and event_store exclude each other: events are stored by session")
        if isinstance(self.required_scopes, str) or not all(map(is_scope, self.required_scopes)):
            raise ValueError(f"required_scopes must be a list of scopes, not {self.required_scopes!r}")
        if self.required_scopes and self.authenticate is None:
            raise ValueError("required_scopes needs authenticate, which tells the scopes of a request")
        for name in ("path", "sse_path"):
            value = getattr(self, name)
            if value is not None and (type(value) is not str or not value.startswith("/")):
                raise ValueError(f"{name} must begin with '/', not {value!r}")
        if self.root_path and not self.root_path.startswith("/"):
            raise ValueError(f"root_path must begin with '/', not {self.root_path!r}")
        if self.sse_path == self.path:
            raise ValueError(f"path and sse_path are both {self.path!r}")

    @classmethod
    def of(cls, options: Mapping[str, Any], allowed: frozenset[str], what: str) -> ServerOptions:
        """Return the options given by keyword to ``what``.

        Raises:
            TypeError: one is not in ``allowed``; the message names those that are.
            ValueError: a value is out of range.
        """
        unknown = sorted(set(options) - allowed)
        if unknown:
            raise TypeError(f"{what} has no option {unknown[0]!r}; it has {', '.join(sorted(allowed))}")
        return cls(**options)

    def http_limits(self) -> HTTPLimits:
        """Return the part that is the shell's."""
        return HTTPLimits(**{field.name: getattr(self, field.name) for field in fields(HTTPLimits)})

    def new_session_id(self) -> str:
        """Make a session id.

        Raises:
            ValueError: the factory gave one that is no id.
        """
        if self.session_id_factory is None:
            from secrets import token_urlsafe

            return token_urlsafe(24)
        id = self.session_id_factory()
        if not is_session_id(id):
            raise ValueError("session_id_factory gave an id that is not visible ASCII of at most 256 characters")
        return id


_MAY_BE_ZERO: Final = frozenset({"keepalive_s", "shutdown_grace_s", "queue_timeout_s", "stream_after_s"})

HANDLER: Final = frozenset(
    {
        "allowed_hosts",
        "allowed_origins",
        "authenticate",
        "keepalive_s",
        "max_backlog_messages",
        "max_body_bytes",
        "max_in_flight",
        "max_in_flight_total",
        "max_queued_messages",
        "max_sessions",
        "max_unsent_bytes",
        "no_server_status",
        "on_connection",
        "queue_timeout_s",
        "required_scopes",
        "resource_metadata",
        "root_path",
        "session_id_factory",
        "shutdown_grace_s",
    }
)
"""What one handler of HTTP+SSE takes."""

STREAMABLE: Final = (HANDLER - {"max_queued_messages", "queue_timeout_s", "root_path"}) | {
    "cors",
    "event_store",
    "responses",
    "retry_ms",
    "session_follow_up_s",
    "session_idle_s",
    "stateless",
    "stream_after_s",
    "tool_input_schema",
}
"""What one handler of Streamable HTTP takes."""

APP: Final = ((HANDLER | STREAMABLE) - {"no_server_status"}) | {
    "body_timeout_s",
    "path",
    "slow_reader_timeout_s",
    "sse_path",
}
"""What an ASGI application takes."""

LISTENER: Final = frozenset(field.name for field in fields(ServerOptions)) - {"no_server_status"}
"""What a listener takes."""
