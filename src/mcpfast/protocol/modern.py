"""The machine of 2026-07-28: one request is complete in itself. Judge it, and give its answer status and shape.

Source: MCP 2026-07-28, basic/index §`_meta`, §Error Codes, §Result Responses; basic/transports/streamable-http
§Sending Messages, §Server Validation; basic/versioning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .._json import dumps
from ..jsonrpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Notification,
    Request,
    RequestId,
    encode_response,
)
from .era import VERSION_KEY, unsupported
from .refusal import Refusal
from .revisions import REVISIONS
from .standard_headers import SINGLE_HEADERS, VERSION_HEADER, check_standard_headers, find_repeated

__all__ = [
    "CAPABILITIES_KEY",
    "CLIENT_INFO_KEY",
    "NOT_A_MESSAGE",
    "REMOVED_METHODS",
    "SERVER_INFO_KEY",
    "check_notification",
    "check_request",
    "encode_result",
    "mismatch",
    "result_prefix",
    "status_of",
    "wire_code",
]

CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_KEY: Final = "io.modelcontextprotocol/clientInfo"
SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"

REMOVED_METHODS: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
"""Methods of older revisions that this one knows no more (M26-S-45)."""

CACHEABLE: Final = frozenset(
    {
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)
"""Methods whose results must say how long and by whom they may be kept."""

NOT_A_MESSAGE = Refusal(400, "malformed", "a body holds one request or one notification", INVALID_REQUEST)
"""A batch or a posted response (M26-S-06)."""

_STATUS: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
_DEFINED = frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_VERSION})
_OLD_RESOURCE_NOT_FOUND, _OLD_URL_ELICITATION = -32002, -32042
_VERSIONS = {v.encode("ascii"): v for v, revision in REVISIONS.items() if revision.has_standard_headers}


def check_request(
    message: Request, fields: Mapping[bytes, bytes], raw: Sequence[tuple[bytes, bytes]]
) -> dict[str, Any] | Refusal:
    """Return the ``_meta`` of a request that may be served, else why not. The first failure counts.

    Args:
        fields: header values by name in lower case.
        raw: the header fields as they came, in which a repeated one can be seen.
    """
    params = message.params
    meta = params.get("_meta") if type(params) is dict else None
    if len(fields) != len(raw):
        repeated = find_repeated(raw, SINGLE_HEADERS)
        if repeated is not None:
            return mismatch(f"{repeated} header came more than once", message.id)
    if type(meta) is not dict:
        return _invalid(f"params._meta must be an object with {VERSION_KEY} and {CAPABILITIES_KEY}", message.id)
    asked, capabilities = meta.get(VERSION_KEY), meta.get(CAPABILITIES_KEY)
    if type(asked) is not str or type(capabilities) is not dict:
        key, what = (VERSION_KEY, "a string") if type(asked) is not str else (CAPABILITIES_KEY, "an object")
        return _invalid(f"params._meta must hold {key}, {what}", message.id)
    value = fields.get(VERSION_HEADER)
    # One look-up says that the header is there, is a revision we serve, and the body's.
    if _VERSIONS.get(value) != asked:  # type: ignore[arg-type]  # None is simply not there
        if value is None:
            return mismatch("MCP-Protocol-Version header is missing", message.id)
        if value != asked.encode("utf-8", "replace"):
            return mismatch("MCP-Protocol-Version header differs from the version in params._meta", message.id)
    problem = check_standard_headers(fields, message.method, params)  # type: ignore[arg-type]
    if problem is not None:
        return mismatch(problem, message.id)
    if value not in _VERSIONS:
        return unsupported(asked, message.id)
    return meta


def check_notification(message: Notification, fields: Mapping[bytes, bytes]) -> Refusal | None:
    """Return why a notification is refused, or None (M26-S-07, M26-S-08). It needs no ``_meta``."""
    params = message.params
    meta = params.get("_meta") if type(params) is dict else None
    asked = meta.get(VERSION_KEY) if type(meta) is dict else None
    value = fields.get(VERSION_HEADER)
    if value is None or (asked is not None and (type(asked) is not str or value != asked.encode("utf-8", "replace"))):
        return mismatch("MCP-Protocol-Version header is missing or differs from the version in params._meta", None)
    return None if value in _VERSIONS else unsupported(value.decode("latin-1"), None)


def mismatch(message: str, id: RequestId | None) -> Refusal:
    """Refuse a request whose headers do not fit its body (M26-S-41)."""
    return Refusal(400, "header_mismatch", message, HEADER_MISMATCH, id)


def _invalid(message: str, id: RequestId) -> Refusal:
    return Refusal(400, "meta", message, INVALID_PARAMS, id)


def status_of(code: int) -> int:
    """Return the HTTP status of an answer with this error code, 200 for a code without one."""
    return _STATUS.get(code, 200)


def wire_code(code: int) -> int:
    """Return the code to send for one that an application raised.

    Codes that the specification keeps for itself and has not defined must not be sent (M26-S-46). The one that stood
    for an unknown resource is replaced by its successor, so that a handler may serve old and new clients alike.
    """
    if code == _OLD_RESOURCE_NOT_FOUND:
        return INVALID_PARAMS
    if code == _OLD_URL_ELICITATION or (-32099 <= code <= -32020 and code not in _DEFINED):
        return INTERNAL_ERROR
    return code


def result_prefix(server_info: Mapping[str, Any]) -> bytes:
    """Return what stands before a result's own members: its type, and who answers (M26-S-48)."""
    return dumps({"resultType": "complete", "_meta": {SERVER_INFO_KEY: dict(server_info)}})[:-1]


def encode_result(id: RequestId, method: str, result: dict[str, Any], prefix: bytes, server_info: Any) -> bytes:
    """Encode the answer to a request, with what this revision asks of every result where the handler left it out.

    Args:
        result: the handler's; it is not changed.
        prefix: :func:`result_prefix` of ``server_info``.

    Raises:
        ProtocolError: the result cannot be JSON.
    """
    if "_meta" in result or "resultType" in result or method in CACHEABLE:
        whole: dict[str, Any] = {"resultType": "complete"}
        if method in CACHEABLE and result.get("resultType", "complete") == "complete":
            whole.update(ttlMs=0, cacheScope="private")  # the strictest, unless the handler says otherwise
        whole.update(result)
        meta = whole.get("_meta")
        whole["_meta"] = (
            {SERVER_INFO_KEY: server_info, **meta} if type(meta) is dict else {SERVER_INFO_KEY: server_info}
        )
        return encode_response(id, whole)
    body = dumps(result)
    number = b"%d" % id if type(id) is int else dumps(id)
    if len(body) == 2:
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}}' % (number, prefix)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b,%b}' % (number, prefix, body[1:])
