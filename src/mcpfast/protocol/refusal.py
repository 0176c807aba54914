"""The one shape in which a request is refused: HTTP status, JSON-RPC error, and a reason to count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, UNSET, RequestId, encode_error

__all__ = ["Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not served.

    Attributes:
        status: the HTTP status.
        reason: a word for the statistics, such as ``"unknown_session"``.
        message: one short sentence for the client's developer. It holds no payload and no token.
        code: the JSON-RPC error code; None for the one that fits ``status``.
        id: the id of the refused message where it could be read.
        headers: further header fields, such as ``allow``.
        data: the JSON-RPC error's data; UNSET for none.
    """

    status: int
    reason: str
    message: str
    code: int | None = None
    id: RequestId | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    data: Any = UNSET

    def body(self) -> bytes:
        """Return the JSON-RPC error to send as the body."""
        code = self.code
        if code is None:
            code = INTERNAL_ERROR if self.status >= 500 else INVALID_REQUEST
        return encode_error(self.id, code, self.message, self.data)
