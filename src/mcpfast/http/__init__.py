"""HTTP/1.1 on asyncio, as thin as MCP allows.

=================  ==========================================================================
``deadlines``      coarse timers, one set per event loop
``interface``      Request, Responder and Headers: all that transports know of HTTP
``limits``         HTTPLimits: what a server takes, and for how long it waits
``native_server``  NativeServer: our own listener; its connections, with their heads, bodies and
                   answers, are in ``_h1_connection``, ``_h1_head``, ``_h1_body``,
                   ``_h1_chunked``, ``_h1_responder``, its sockets in ``_sockets``
=================  ==========================================================================
"""

from .interface import Request, Responder

__all__ = ["Request", "Responder"]
