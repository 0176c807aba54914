"""MCP's rules for HTTP without I/O: no clock, no randomness, no sockets; all of these are passed in.

=================  ==========================================================================
``connection``     Connection, the shape of session transports and clients
``endpoint``       the endpoint URI of HTTP+SSE: building, resolving, refusing
``headers``        media types, Accept, session ids, what a field value may hold
``refusal``        the HTTP status and JSON-RPC error a request is refused with
``revisions``      what each protocol revision has, as data; version negotiation
``security``       Origin and Host
``sse_session``    the machine of one HTTP+SSE session (2024-11-05)
=================  ==========================================================================
"""

from .connection import Connection

__all__ = ["Connection"]
