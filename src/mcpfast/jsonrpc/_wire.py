"""Bytes to messages and back.

What is refused, both ways (JSON-RPC 2.0, sections 4 to 6; MCP, basic):

- ``jsonrpc`` that is not exactly ``"2.0"``; a method that is no string; params that are no object, array or ``null``;
- an id that is neither string nor integer: ``true``, ``1.0`` and, save in an error, ``null``. A request with id
  ``null`` is malformed and owed an error; it is no notification;
- a message that is of two kinds (``method`` with ``result`` or ``error``, ``result`` with ``error``) or of none;
- an error without an integer ``code`` and a string ``message``;
- an empty batch, or one of more than ``MAX_BATCH`` members.

Other members are ignored. ``"params": null`` is no valid JSON-RPC, but some peers send it for "none": it is
let through as ``None``, apart from absent params, and written back as it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from .._json import dumps, loads
from ..errors import ProtocolError
from ._codes import INTERNAL_ERROR, INVALID_REQUEST
from ._messages import UNSET, ErrorResponse, Message, Notification, Request, RequestId, Response, UnsetType

MAX_BATCH = 1000
"""Members of one batch. Each may cost a task, and a body of 4 MiB has room for 2 million."""

_KINDS: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


def is_request_id(value: object) -> TypeGuard[RequestId]:
    """Tell whether ``value`` can be a request's id: a ``str`` or an ``int``, and no ``bool``."""
    return type(value) is int or isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def decode_message(data: bytes | bytearray | memoryview | str) -> Message | list[Message | ProtocolError]:
    """Read one message, or a batch of them.

    Args:
        data: one JSON document, in UTF-8 where it is bytes.

    Returns:
        The message. For a batch the list of its members in order, in which a ``ProtocolError`` stands, not raised,
        for each that is no message: JSON-RPC 2.0, section 6, owes each of those its own error response while the
        others are served. Whether batches are allowed at all depends on MCP's revision and is the caller's to know.

    Raises:
        ProtocolError: code -32700 for what is not JSON (also nested too deep), -32600 for JSON that is no message or
            batch. Its ``id`` is that of the message where one could be read.
    """
    value = loads(data)
    if type(value) is dict:
        return message_from_value(value)
    if type(value) is not list:
        raise ProtocolError(f"message is {_KINDS[type(value)]}, expected an object or an array", code=INVALID_REQUEST)
    _check_batch(value)
    return [_member(item) for item in value]


def _member(item: Any) -> Message | ProtocolError:
    if type(item) is not dict:
        return ProtocolError(f"member of a batch is {_KINDS[type(item)]}, expected an object", code=INVALID_REQUEST)
    try:
        return message_from_value(item)
    except ProtocolError as error:
        # The list outlives this call: without its traceback the error keeps no frame alive.
        return error.with_traceback(None)


def message_from_value(value: dict[str, Any]) -> Message:
    """Turn an object as JSON gives it into the message it is.

    Raises:
        ProtocolError: code -32600; as for ``decode_message``.
    """
    # Exact types suffice here and below, JSON gives no subclasses.
    if value.get("jsonrpc") != "2.0":
        raise _malformed(value, 'member jsonrpc is not "2.0"')
    if "method" in value:
        method = value["method"]
        if type(method) is not str:
            raise _malformed(value, f"method is {_KINDS[type(method)]}, expected a string")
        params = value.get("params", UNSET)
        if not (type(params) is dict or params is UNSET or params is None or type(params) is list):
            raise _malformed(value, f"params is {_KINDS[type(params)]}, expected an object or an array")
        if "result" in value or "error" in value:
            raise _malformed(value, "message holds a method and a result or error")
        if "id" not in value:
            return Notification(method, params)
        id = value["id"]
        if type(id) is not int and type(id) is not str:
            raise _malformed(value, f"id is {_kind_of_id(id)}, expected a string or an integer")
        return Request(id, method, params)
    if "error" in value:
        return _error_from_value(value)
    if "result" not in value:
        raise _malformed(value, "message holds no method, result or error")
    id = value.get("id", UNSET)
    if type(id) is not int and type(id) is not str:
        raise _malformed(value, f"id is {_kind_of_id(id)}, expected a string or an integer")
    return Response(id, value["result"])


def _error_from_value(value: dict[str, Any]) -> ErrorResponse:
    if "result" in value:
        raise _malformed(value, "message holds a result and an error")
    id = value.get("id")
    if type(id) is not int and type(id) is not str and id is not None:
        raise _malformed(value, f"id is {_kind_of_id(id)}, expected a string, an integer or null")
    error = value["error"]
    if type(error) is not dict:
        raise _malformed(value, f"error is {_KINDS[type(error)]}, expected an object")
    code, message = error.get("code"), error.get("message")
    if type(code) is not int:
        raise _malformed(value, "code of the error is no integer")
    if type(message) is not str:
        raise _malformed(value, "message of the error is no string")
    return ErrorResponse(id, code, message, error.get("data", UNSET))


def _malformed(value: dict[str, Any], what: str) -> ProtocolError:
    id = value.get("id")
    return ProtocolError(what, code=INVALID_REQUEST, id=id if is_request_id(id) else None)


def _kind_of_id(id: Any) -> str:
    if type(id) is float:
        return "a number with a fraction or exponent"
    return "absent" if id is UNSET else _KINDS[type(id)]


def _check_batch(members: Sequence[Any]) -> None:
    if not members:
        raise ProtocolError("batch is empty", code=INVALID_REQUEST)
    if len(members) > MAX_BATCH:
        raise ProtocolError(f"batch holds {len(members)} members, limit is {MAX_BATCH}", code=INVALID_REQUEST)


def encode_message(message: Message | Sequence[Message]) -> bytes:
    """Write one message, or a list of them as a batch, as compact JSON in UTF-8 without line breaks.

    Raises:
        ProtocolError: code -32603, with the ``id`` of the message; a member is of a type it may not have, or holds
            what JSON cannot (NaN, a lone surrogate, an object of a foreign type), or is nested too deep.
            Code -32600 for an empty batch, or one of more than ``MAX_BATCH`` members.
        TypeError: what was passed is no message and no list of messages.
    """
    if type(message) is Response:
        return encode_response(message.id, message.result)
    if isinstance(message, (list, tuple)):
        _check_batch(message)
        return dumps([message_to_value(member) for member in message])
    value = message_to_value(message)  # type: ignore[arg-type]  # it says so itself if this is none
    return _dump(value, value.get("id"))


def message_to_value(message: Message) -> dict[str, Any]:
    """Turn a message into the object that stands for it in JSON; params, result and data are not copied.

    Raises:
        ProtocolError, TypeError: as for ``encode_message``, save what is only found in writing.
    """
    if isinstance(message, Response):
        return {"jsonrpc": "2.0", "id": _checked_id(message.id), "result": message.result}
    if isinstance(message, Request):
        return _request_value(message.id, message.method, message.params)
    if isinstance(message, Notification):
        return _notification_value(message.method, message.params)
    if isinstance(message, ErrorResponse):
        return _error_value(message.id, message.code, message.message, message.data)
    raise TypeError(f"no JSON-RPC message: {type(message).__name__}")


def encode_response(id: RequestId, result: Any) -> bytes:
    """Write ``Response(id, result)`` without building it; errors as for ``encode_message``."""
    if type(id) is not int and type(id) is not str:
        _checked_id(id)
    try:
        return dumps({"jsonrpc": "2.0", "id": id, "result": result})
    except ProtocolError as error:
        error.id = id
        raise


def encode_error(id: RequestId | None, code: int, message: str, data: Any = UNSET) -> bytes:
    """Write ``ErrorResponse(id, code, message, data)`` without building it; errors as for ``encode_message``."""
    return _dump(_error_value(id, code, message, data), id)


def encode_request(id: RequestId, method: str, params: dict[str, Any] | list[Any] | UnsetType | None = UNSET) -> bytes:
    """Write ``Request(id, method, params)`` without building it; errors as for ``encode_message``."""
    return _dump(_request_value(id, method, params), id)


def encode_notification(method: str, params: dict[str, Any] | list[Any] | UnsetType | None = UNSET) -> bytes:
    """Write ``Notification(method, params)`` without building it; errors as for ``encode_message``."""
    return _dump(_notification_value(method, params), None)


def _dump(value: dict[str, Any], id: RequestId | None) -> bytes:
    try:
        return dumps(value)
    except ProtocolError as error:
        error.id = id
        raise


def _request_value(id: RequestId, method: str, params: Any) -> dict[str, Any]:
    value = {"jsonrpc": "2.0", "id": _checked_id(id), "method": method}
    return _with_params(value, method, params)


def _notification_value(method: str, params: Any) -> dict[str, Any]:
    return _with_params({"jsonrpc": "2.0", "method": method}, method, params)


def _with_params(value: dict[str, Any], method: str, params: Any) -> dict[str, Any]:
    if not isinstance(method, str):
        raise _unsendable("method", method, "str", value.get("id"))
    if params is not UNSET:
        if not (params is None or isinstance(params, (dict, list, tuple))):
            raise _unsendable("params", params, "dict, list or None", value.get("id"))
        value["params"] = params
    return value


def _error_value(id: RequestId | None, code: int, message: str, data: Any) -> dict[str, Any]:
    if id is not None:
        _checked_id(id)
    if not isinstance(code, int) or isinstance(code, bool):
        raise _unsendable("code", code, "int", id)
    if not isinstance(message, str):
        raise _unsendable("message", message, "str", id)
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not UNSET:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id, "error": error}


def _checked_id(id: RequestId) -> RequestId:
    if not is_request_id(id):
        raise _unsendable("id", id, "str or int", None)
    return id


def _unsendable(member: str, value: object, expected: str, id: RequestId | None) -> ProtocolError:
    return ProtocolError(f"{member} is {type(value).__name__}, expected {expected}", code=INTERNAL_ERROR, id=id)
