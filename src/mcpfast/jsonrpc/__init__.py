"""JSON-RPC 2.0 messages as MCP uses them: bytes to messages and back, without I/O.

- ``_messages.py``: the four kinds of message, and ``UNSET`` for a member that is absent.
- ``_wire.py``: decoding and encoding, with the rules of what is well-formed.
- ``_codes.py``: the error codes of JSON-RPC and MCP.

The JSON itself is exact: see ``mcpfast/_json_py.py`` for what that means.
"""

from __future__ import annotations

from ._codes import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)
from ._messages import UNSET, ErrorResponse, Message, Notification, Request, RequestId, Response, UnsetType
from ._wire import (
    MAX_BATCH,
    decode_message,
    encode_error,
    encode_message,
    encode_notification,
    encode_request,
    encode_response,
    is_request_id,
    message_from_value,
    message_to_value,
)

__all__ = [
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "MAX_BATCH",
    "METHOD_NOT_FOUND",
    "MISSING_CLIENT_CAPABILITY",
    "PARSE_ERROR",
    "UNSET",
    "UNSUPPORTED_VERSION",
    "ErrorResponse",
    "Message",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "UnsetType",
    "decode_message",
    "encode_error",
    "encode_message",
    "encode_notification",
    "encode_request",
    "encode_response",
    "is_request_id",
    "message_from_value",
    "message_to_value",
]
