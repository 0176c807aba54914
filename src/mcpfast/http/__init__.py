"""HTTP/1.1 on asyncio, as thin as MCP allows.

=================  ==========================================================================
``deadlines``      coarse timers, one set per event loop
``interface``      Request, Responder and Headers: all that transports know of HTTP
=================  ==========================================================================
"""

from .interface import Request, Responder

__all__ = ["Request", "Responder"]
