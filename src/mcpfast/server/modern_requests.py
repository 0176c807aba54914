"""Requests of 2026-07-28 on their way to a handler, a listen stream, or a refusal."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import Any

from ..http.interface import Request, Responder
from ..jsonrpc import Message, Notification
from ..jsonrpc import Request as RPCRequest
from ..protocol.headers import EVENT_STREAM
from ..protocol.modern import NOT_A_MESSAGE, check_notification, check_request, mismatch
from ..protocol.refusal import Refusal
from ..protocol.standard_headers import check_param_headers
from ..protocol.subscriptions import LISTEN, Subscription
from .answer import NOT_ACCEPTABLE, Form, Takes, form_of
from .finder import Finder
from .gate import FAILED, refuse
from .hosting import Hosted
from .modern_exchange import ModernExchange, peer_of
from .principal import Principal
from .shared import Shared
from .sse_post import MAX_INITIALIZE_BYTES

__all__ = ["ModernRequests"]

logger = logging.getLogger("mcpfast.server")

LISTEN_NOT_ACCEPTABLE = Refusal(
    406, "not_acceptable", f"{LISTEN} is answered by {EVENT_STREAM}, which Accept rules out"
)
LISTEN_TOO_LARGE = Refusal(413, "body_too_large", f"{LISTEN} may hold {MAX_INITIALIZE_BYTES} bytes at most")


class ModernRequests:
    """Serves what belongs to 2026-07-28, for one handler."""

    def __init__(self, shared: Shared, finder: Finder) -> None:
        self._shared = shared
        self._finder = finder
        self._hosted: set[Hosted] = set()  # whose listen streams may be open

    def receive(
        self,
        message: Message | list[Any],
        size: int,
        fields: Mapping[bytes, bytes],
        principal: Principal | None,
        takes: Takes,
        request: Request,
        responder: Responder,
    ) -> Awaitable[None] | None:
        """Serve what a POST holds.

        Args:
            size: bytes of the body.
            fields: header values by name in lower case.
        """
        shared = self._shared
        if type(message) is not RPCRequest:
            refusal = check_notification(message, fields) if type(message) is Notification else NOT_A_MESSAGE
            if refusal is not None:
                refuse(refusal, responder, shared.stats)
                return None
            # This revision tells a server nothing by notifications: one that cancels could only cancel others' work.
            shared.stats.messages_in += 1
            responder.respond(202)
            return None
        meta = check_request(message, fields, request.headers.raw)
        if isinstance(meta, Refusal):
            refuse(meta, responder, shared.stats)
            return None
        form = form_of(takes, shared.options.responses)
        refusal = self._check(message, size, takes, form, request)
        if refusal is not None:
            refuse(refusal, responder, shared.stats)
            return None
        shared.stats.messages_in += 1

        hosted = self._finder.find(request)
        if isinstance(hosted, Hosted):
            return self._serve(hosted, message, meta, form, principal, request, responder)

        def serve(hosted: Hosted) -> Awaitable[None] | None:
            return self._serve(hosted, message, meta, form, principal, request, responder)

        return self._finder.go_on_later(hosted, serve, responder)

    def _serve(
        self,
        hosted: Hosted,
        message: RPCRequest,
        meta: dict[str, Any],
        form: Form | None,
        principal: Principal | None,
        request: Request,
        responder: Responder,
    ) -> Awaitable[None] | None:
        if message.method == LISTEN:
            self._listen(hosted, message, responder)
            return None
        assert form is not None
        exchange = ModernExchange(self._shared, hosted, message, form, responder)
        return exchange.run(peer_of(meta, principal), request)

    def _check(
        self, message: RPCRequest, size: int, takes: Takes, form: Form | None, request: Request
    ) -> Refusal | None:
        limit = self._shared.options.max_in_flight_total
        if self._shared.load.in_flight >= limit:
            return Refusal(503, "in_flight_total", f"server has {limit} requests in flight, the limit", id=message.id)
        if message.method == LISTEN:
            if size > MAX_INITIALIZE_BYTES:
                return LISTEN_TOO_LARGE
            return None if takes.stream else LISTEN_NOT_ACCEPTABLE
        if form is None:
            return NOT_ACCEPTABLE
        look_up = self._shared.options.tool_input_schema
        if look_up is not None and message.method == "tools/call":
            params: Any = message.params  # an object, as it holds _meta
            name = params.get("name")
            problem = None
            if type(name) is str:
                try:
                    schema = look_up(name)
                except Exception:
                    logger.exception("tool_input_schema failed")
                    return FAILED
                problem = check_param_headers(schema, params.get("arguments"), request.headers.raw)
            if problem is not None:
                return mismatch(problem, message.id)
        return None

    def _listen(self, hosted: Hosted, message: RPCRequest, responder: Responder) -> None:
        subscription = Subscription.of(message)
        if isinstance(subscription, Refusal):
            refuse(subscription, responder, self._shared.stats)
            return
        self._hosted.add(hosted)
        hosted.audience.listeners.open(self._shared, hosted.server, *subscription, responder)

    def close(self) -> None:
        """End the listen streams, each with its result."""
        for hosted in self._hosted:
            hosted.audience.listeners.close()
