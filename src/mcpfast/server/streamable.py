"""``StreamableHTTPHandler``: every revision of Streamable HTTP at one URL.

A request goes this way: who sends it (Origin, Host, authentication), what forms of answer it takes, its body, and which
era it belongs to. A request of 2026-07-28 is served by itself (:mod:`.modern_requests`, :mod:`.modern_exchange`); one
of the revisions with ``initialize`` by its session (:mod:`.session_table`, :mod:`.streamable_session`,
:mod:`.session_streams`), or, where the server is stateless, by a session that lives as long as the POST.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any

from ..errors import ProtocolError
from ..http.interface import BodyTooLarge, ClientDisconnected, Request, Responder
from ..jsonrpc import Request as RPCRequest
from ..jsonrpc import decode_message
from ..protocol.era import is_modern
from ..protocol.headers import is_json
from ..protocol.refusal import Refusal
from ..protocol.standard_headers import VERSION_HEADER
from .answer import NOT_ACCEPTABLE, Takes, read_accept
from .cors import admit
from .finder import Finder, GetStreamableServer
from .gate import refuse
from .modern_requests import ModernRequests
from .options import STREAMABLE, ServerOptions
from .principal import Principal
from .session_table import STOPPING, SessionTable
from .shared import Shared
from .sse_post import WRONG_TYPE

__all__ = ["StreamableHTTPHandler"]

logger = logging.getLogger("mcpfast.server")

NOT_ALLOWED = Refusal(
    405, "method_not_allowed", "this URL takes POST, GET and DELETE", headers=((b"allow", b"GET, POST, DELETE"),)
)
POST_ONLY = Refusal(405, "method_not_allowed", "there is no stream and no session here", headers=((b"allow", b"POST"),))


class StreamableHTTPHandler:
    """A Handler for the one URL of a Streamable HTTP server.

    Args:
        get_server: ``(request) -> Server``, sync or async, called for each new session and for each request without
            one; None to refuse with ``no_server_status``. What it raises is answered with 500.
        **options: see :class:`~mcpfast.server.options.ServerOptions`.

    Raises:
        TypeError: an option is not known; the message names those that are.
    """

    def __init__(self, get_server: GetStreamableServer, **options: Any) -> None:
        self._begin(get_server, Shared(ServerOptions.of(options, STREAMABLE, "StreamableHTTPHandler")))
        warning = self.shared.rules.startup_warning()
        if warning is not None:
            logger.warning("%s", warning)

    @classmethod
    def on(cls, shared: Shared, get_server: GetStreamableServer) -> StreamableHTTPHandler:
        """Return a handler that shares its parts with others of one app, which checks Origin and Host for them."""
        handler = cls.__new__(cls)
        handler._begin(get_server, shared)
        return handler

    def _begin(self, get_server: GetStreamableServer, shared: Shared) -> None:
        self.shared = shared
        finder = Finder(shared, get_server)
        self._modern = ModernRequests(shared, finder)
        self._sessions = SessionTable(shared, finder)

    def __call__(self, request: Request, responder: Responder) -> Awaitable[None] | None:
        """Serve one request: see :data:`~mcpfast.http.interface.Handler`."""
        stranger = self.shared.gate.stranger(request)
        if stranger is not None:
            self._refuse(stranger, responder)
            return None
        if self.shared.options.cors:
            admitted = admit(request, responder)
            if admitted is None:
                return None
            responder = admitted
        return self.serve(request, responder)

    def serve(self, request: Request, responder: Responder) -> Awaitable[None] | None:
        """Serve a request whose Origin and Host were checked."""
        gate = self.shared.gate
        if not gate.asks:
            return self._serve(None, request, responder)
        if gate.is_async:
            return self._serve_later(request, responder)  # the hook is called in the request's own task
        found = gate.principal(request)
        if isinstance(found, (Principal, Refusal)):
            return self._serve_as(found, request, responder)
        return self._serve_later(request, responder, found)

    async def _serve_later(
        self, request: Request, responder: Responder, found: Awaitable[Principal | Refusal] | None = None
    ) -> None:
        principal = self.shared.gate.principal(request) if found is None else found
        if not isinstance(principal, (Principal, Refusal)):
            principal = await principal
        waiting = self._serve_as(principal, request, responder)
        if waiting is not None:
            await waiting

    def _serve_as(self, found: Principal | Refusal, request: Request, responder: Responder) -> Awaitable[None] | None:
        if isinstance(found, Refusal):
            self._refuse(found, responder)
            return None
        return self._serve(found, request, responder)

    def _serve(self, principal: Principal | None, request: Request, responder: Responder) -> Awaitable[None] | None:
        method = request.method
        if method == "POST":
            return self._post(principal, request, responder)
        # 2026-07-28 has neither streams nor sessions of this kind (M26-S-61).
        is_post_only = self.shared.options.stateless or is_modern(request.headers.find(VERSION_HEADER), None)
        if is_post_only or method not in ("GET", "DELETE"):
            self._refuse(POST_ONLY if is_post_only else NOT_ALLOWED, responder)
        elif method == "DELETE":
            self._sessions.delete(principal, request, responder)
        elif not read_accept(request.headers).stream:
            self._refuse(NOT_ACCEPTABLE, responder)
        else:
            return self._sessions.get(principal, request, responder)
        return None

    def _refuse(self, refusal: Refusal, responder: Responder) -> None:
        refuse(refusal, responder, self.shared.stats)

    # POST

    def _post(self, principal: Principal | None, request: Request, responder: Responder) -> Awaitable[None] | None:
        content_type = request.headers.fields.get(b"content-type")
        if content_type != b"application/json" and not is_json(content_type):
            self._refuse(WRONG_TYPE, responder)
            return None
        takes = read_accept(request.headers)
        if not (takes.json or takes.stream):
            self._refuse(NOT_ACCEPTABLE, responder)
            return None
        body = request.body_nowait
        if body is None or len(body) > self.shared.options.max_body_bytes:
            return self._post_slowly(principal, takes, request, responder)
        return self._received(body, principal, takes, request, responder)

    async def _post_slowly(
        self, principal: Principal | None, takes: Takes, request: Request, responder: Responder
    ) -> None:
        try:
            body = await request.body(self.shared.options.max_body_bytes)
        except BodyTooLarge as error:
            self._refuse(Refusal(413, "body_too_large", str(error)), responder)
            return
        except ClientDisconnected:
            return
        waiting = self._received(body, principal, takes, request, responder)
        if waiting is not None:
            await waiting

    def _received(
        self, body: bytes, principal: Principal | None, takes: Takes, request: Request, responder: Responder
    ) -> Awaitable[None] | None:
        try:
            message = decode_message(body)
        except ProtocolError as error:
            reason = "parse_error" if error.code == -32700 else "malformed"
            self._refuse(Refusal(400, reason, str(error), error.code, error.id), responder)
            return None
        if self._sessions.is_stopping and (type(message) is RPCRequest or type(message) is list):
            # Anything else may be what something that still runs waits for.
            self._refuse(STOPPING, responder)
            return None
        fields = request.headers.fields
        if is_modern(fields.get(VERSION_HEADER), message):
            return self._modern.receive(message, len(body), fields, principal, takes, request, responder)
        return self._sessions.receive(message, len(body), principal, takes, request, responder)

    # The end

    async def drain(self, grace_s: float | None = None) -> None:
        """End all sessions and listen streams: idle ones now, others when what they run has ended or the grace is over.

        From the call on new sessions and requests get 503; answers to what running requests asked are still taken.
        """
        self._sessions.is_stopping = True
        self._modern.close()
        await self._sessions.drain(self.shared.options.shutdown_grace_s if grace_s is None else grace_s)

    def hurry(self) -> None:
        """Let :meth:`drain` wait no longer."""
        self._sessions.hurry()

    async def aclose(self) -> None:
        """Drain, then leave the lifespans of the servers. For a handler that is used without an app."""
        await self.drain()
        await self.shared.hosting.aclose()


def _is_answer(message: Any) -> bool:
    """Tell whether a message may be taken while the server stops: it is what something running waits for."""
    return type(message) is not list and not isinstance(message, RPCRequest)
