"""The wire layer of the Model Context Protocol at C speed.

Public names load on first use (PEP 562), so importing ``mcpfast`` or ``mcpfast.codec`` loads no I/O library.

=============  ==================================================================================
``errors``     every error this package raises
``codec``      Server-Sent Events: bytes <-> events
``jsonrpc``    JSON-RPC 2.0: bytes <-> messages
``protocol``   MCP's HTTP rules without I/O
``http``       HTTP/1.1 on asyncio: native server and client, ASGI, httpx
``server``     application API, one handler per transport, listener, workers
``client``     transports, Client, connect()
=============  ==================================================================================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors
    from .client import connect
    from .codec import (
        IMPLEMENTATION,
        EventWriter,
        ServerSentEvent,
        SSEDecoder,
        aiter_events,
        encode_comment,
        encode_event,
        iter_events,
    )
    from .errors import (
        AuthorizationRequired,
        EndpointMissing,
        EventTooLarge,
        HTTPStatusError,
        MalformedLine,
        MCPFastError,
        MethodNotAllowed,
        ProtocolError,
        RequestTimeout,
        ResponseTooLarge,
        RPCError,
        SessionTerminated,
        TransportClosed,
        UnexpectedContentType,
    )
    from .protocol import Connection
    from .server import Context, Server, run, serve

_HOMES = {
    "codec": (
        "IMPLEMENTATION",
        "EventWriter",
        "SSEDecoder",
        "ServerSentEvent",
        "aiter_events",
        "encode_comment",
        "encode_event",
        "iter_events",
    ),
    "errors": (
        "AuthorizationRequired",
        "EndpointMissing",
        "EventTooLarge",
        "HTTPStatusError",
        "MCPFastError",
        "MalformedLine",
        "MethodNotAllowed",
        "ProtocolError",
        "RPCError",
        "RequestTimeout",
        "ResponseTooLarge",
        "SessionTerminated",
        "TransportClosed",
        "UnexpectedContentType",
    ),
    "server": ("Context", "Server", "run", "serve"),
    "client": ("connect",),
    "protocol": ("Connection",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_LAYERS = ("client", "codec", "errors", "http", "jsonrpc", "protocol", "server")

__all__ = [  # noqa: RUF022 -- ordered by layer, as the table above
    "errors",
    "AuthorizationRequired",
    "EndpointMissing",
    "EventTooLarge",
    "HTTPStatusError",
    "MCPFastError",
    "MalformedLine",
    "MethodNotAllowed",
    "ProtocolError",
    "RPCError",
    "RequestTimeout",
    "ResponseTooLarge",
    "SessionTerminated",
    "TransportClosed",
    "UnexpectedContentType",
    "IMPLEMENTATION",
    "EventWriter",
    "SSEDecoder",
    "ServerSentEvent",
    "aiter_events",
    "encode_comment",
    "encode_event",
    "iter_events",
    "Context",
    "Server",
    "run",
    "serve",
    "Connection",
    "connect",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("mcpfast")
    elif name in _HOME_OF:
        value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    elif name in _LAYERS:
        value = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAYERS})
