"""Error codes of JSON-RPC 2.0 (section 5.1) and of MCP 2026-07-28 (basic, "Error Codes")."""

from __future__ import annotations

PARSE_ERROR = -32700
"""The bytes are not JSON."""

INVALID_REQUEST = -32600
"""JSON, but no well-formed message."""

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

HEADER_MISMATCH = -32020
"""An HTTP header of MCP is missing, malformed, or differs from the body."""

MISSING_CLIENT_CAPABILITY = -32021
"""The request needs a capability that the client did not declare; ``data`` names it."""

UNSUPPORTED_VERSION = -32022
"""The protocol revision asked for is not served; ``data`` lists those that are."""
