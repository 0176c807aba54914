"""MCP's rules for HTTP without I/O: no clock, no randomness, no sockets; all of these are passed in.

=====================  ==========================================================================
``bearer``             bearer tokens and the challenges that ask for them
``connection``         Connection, the shape of session transports and clients
``endpoint``           the endpoint URI of HTTP+SSE: building, resolving, refusing
``envelope``           what a client of 2026-07-28 puts around each call
``era``                which era a request belongs to, by header and body together
``event_store``        the contract of event stores, and the one in memory
``headers``            media types, Accept, session ids, what a field value may hold
``http_session``       the machine of one Streamable HTTP session (2025-03-26 to 2025-11-25)
``modern``             the machine of one exchange of 2026-07-28
``reconnection``       when a client takes up a stream that ended, and with which event id
``refusal``            the HTTP status and JSON-RPC error a request is refused with
``revisions``          what each protocol revision has, as data; version negotiation
``security``           Origin and Host
``sse_session``        the machine of one HTTP+SSE session (2024-11-05)
``standard_headers``   Mcp-Method, Mcp-Name and Mcp-Param-* held against the body
``subscriptions``      what a subscriptions/listen stream of 2026-07-28 carries
=====================  ==========================================================================
"""

from .connection import Connection

__all__ = ["Connection"]
