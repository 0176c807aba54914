"""CORS: letting pages of other origins read the answers. Off unless asked for.

Which origins may do so is what the Origin check lets in: there is one list, not two. Cookies are not allowed for;
tokens travel in the Authorization header, which pages may set.

Source: Fetch standard, §3.2 "CORS protocol"; C062.
"""

from __future__ import annotations

from collections.abc import Callable

from ..http.interface import HeaderList, Request, Responder
from ..protocol.standard_headers import PARAM_PREFIX

__all__ = ["admit"]

EXPOSED = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate"
METHODS = b"GET, POST, DELETE"
_REQUEST_HEADERS = (
    b"accept",
    b"authorization",
    b"content-type",
    b"last-event-id",
    b"mcp-method",
    b"mcp-name",
    b"mcp-protocol-version",
    b"mcp-session-id",
)
_MAX_AGE_S = b"7200"  # the longest that browsers keep it


def admit(request: Request, responder: Responder) -> Responder | None:
    """Return the responder to answer a request with, or None if it was a preflight and is answered.

    To be called once the request's Origin was found good.
    """
    headers = request.headers
    origin = headers.find(b"origin")
    if origin is None:
        return responder
    if request.method != "OPTIONS" or headers.find(b"access-control-request-method") is None:
        return _CORSResponder(responder, origin)
    asked = (headers.find(b"access-control-request-headers") or b"").lower().split(b",")
    # The names of mirrored arguments are the tools' own, so they are allowed as they are asked for.
    own = {name.strip(b" \t") for name in asked if name.strip(b" \t").startswith(PARAM_PREFIX)}
    allowed = b", ".join([*_REQUEST_HEADERS, *sorted(own)])
    responder.respond(
        204,
        (
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", allowed),
            (b"access-control-max-age", _MAX_AGE_S),
            (b"vary", b"origin, access-control-request-headers"),
        ),
    )
    return None


class _CORSResponder:
    """A responder whose every answer, errors too, can be read by the page that asked."""

    __slots__ = ("_headers", "_responder")

    def __init__(self, responder: Responder, origin: bytes) -> None:
        self._responder = responder
        self._headers = (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"origin"),
        )

    @property
    def is_started(self) -> bool:
        return self._responder.is_started

    @property
    def is_ended(self) -> bool:
        return self._responder.is_ended

    @property
    def is_disconnected(self) -> bool:
        return self._responder.is_disconnected

    @property
    def unsent_bytes(self) -> int:
        return self._responder.unsent_bytes

    def start(self, status: int, headers: HeaderList) -> None:
        self._responder.start(status, (*headers, *self._headers))

    def write(self, data: bytes) -> None:
        self._responder.write(data)

    def end(self) -> None:
        self._responder.end()

    def respond(self, status: int, headers: HeaderList = (), body: bytes = b"") -> None:
        self._responder.respond(status, (*headers, *self._headers), body)

    async def drain(self) -> None:
        await self._responder.drain()

    def abort(self, reason: str) -> None:
        self._responder.abort(reason)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        self._responder.on_disconnect(callback)
