"""The server side of MCP (draft)."""

from .application import Server
from .context import Context
from .listener import run, serve
from .principal import Principal
from .sse_handler import SSEHandler
from .sse_transport import SSEServerTransport

__all__ = ["Context", "Principal", "SSEHandler", "SSEServerTransport", "Server", "run", "serve"]
