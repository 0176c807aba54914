"""The four kinds of JSON-RPC message.

They are plain values: equal when of one kind with equal fields, mutable, not hashable. Constructing one checks
nothing; encoding it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias


class UnsetType(Enum):
    """The type of ``UNSET``. An enum, because type checkers then narrow ``x is UNSET``."""

    # The value is one that no JSON writer takes, so that a stray UNSET is refused, not written.
    UNSET = object()

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "UNSET"

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return getattr, (UnsetType, "UNSET")


UNSET: Final = UnsetType.UNSET
"""Stands for a member that is absent, which is not the same as one that is ``null``. Falsy, and one of a kind."""

RequestId: TypeAlias = str | int
"""An id as it stands on the wire.

Decoding lets only exact ``str`` and ``int`` through, never ``bool`` or ``float``, so an id of a message is by itself a
dict key that keeps 1 and "1" apart. A value found elsewhere, such as ``requestId`` of a cancellation, must pass
``is_request_id`` before it is looked up: ``True`` and 1.0 would find the request with id 1.
"""


@dataclass(slots=True)
class Request:
    """A call that is owed a response with the same id.

    Attributes:
        id: ``str`` or ``int``; decoded as it came, echoed as it is.
        method: such as ``"tools/call"``.
        params: an object or an array, ``None`` where ``null`` came, ``UNSET`` where nothing came.
    """

    id: RequestId
    method: str
    params: dict[str, Any] | list[Any] | UnsetType | None = UNSET


@dataclass(slots=True)
class Notification:
    """A message that is owed no response.

    Attributes:
        method: such as ``"notifications/progress"``.
        params: as in ``Request``.
    """

    method: str
    params: dict[str, Any] | list[Any] | UnsetType | None = UNSET


@dataclass(slots=True)
class Response:
    """The answer to a request that went well.

    Attributes:
        id: that of the request.
        result: any JSON value, ``None`` included; an object in MCP.
    """

    id: RequestId
    result: Any


@dataclass(slots=True)
class ErrorResponse:
    """The answer to a request that failed, or to something that was no request.

    Attributes:
        id: that of the request; ``None``, written as ``null``, if it could not be read. Absent and ``null`` both
            decode to ``None``: JSON-RPC 2.0 asks for the one, MCP since 2025-11-25 for the other.
        code: one of the codes of JSON-RPC or MCP, or the application's own.
        message: one short sentence.
        data: any JSON value; ``UNSET`` where there is none.
    """

    id: RequestId | None
    code: int
    message: str
    data: Any = UNSET


Message: TypeAlias = Request | Notification | Response | ErrorResponse
