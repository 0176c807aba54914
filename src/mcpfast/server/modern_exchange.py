"""One exchange of 2026-07-28: a request that is complete in itself, from its handler to its answer.

The shell's task of the HTTP request runs the handler, so that a client that leaves, in whatever form it would have been
answered, cancels it (M26-S-22, M26-S-23).
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..errors import TransportClosed
from ..http.interface import Request, Responder
from ..jsonrpc import INTERNAL_ERROR, encode_error
from ..jsonrpc import Request as RPCRequest
from ..protocol.modern import CAPABILITIES_KEY, CLIENT_INFO_KEY
from ..protocol.revisions import LATEST
from .answer import JSON_HEADERS, Answer, Form
from .context import Context, Peer
from .hosting import Hosted
from .principal import Principal
from .shared import Shared

__all__ = ["ModernExchange", "peer_of"]


def peer_of(meta: dict[str, Any], principal: Principal | None) -> Peer:
    """Return what a request says of the client that sent it; nothing is taken from earlier ones (M26-S-49)."""
    peer = Peer(None, principal, LATEST)
    peer.client_capabilities = meta[CAPABILITIES_KEY]
    info = meta.get(CLIENT_INFO_KEY)
    if type(info) is dict:
        peer.client_info = info
    return peer


class ModernExchange:
    """One request being served. It is the Channel of its Context, and waits for its answer by itself.

    The parts of a stream are made when one begins: most requests are answered before.
    """

    __slots__ = ("_answer", "_form", "_hosted", "_message", "_responder", "_shared")

    def __init__(self, shared: Shared, hosted: Hosted, message: RPCRequest, form: Form, responder: Responder) -> None:
        self._shared = shared
        self._hosted = hosted
        self._message = message
        self._form = form
        self._responder = responder
        self._answer: Answer | None = None

    async def run(self, peer: Peer, request: Request) -> None:
        """Serve the request."""
        message, shared, hosted = self._message, self._shared, self._hosted
        server = hosted.server
        ctx = Context(peer, self, request, message.id, message.params, hosted.state)
        shared.load.in_flight += 1
        waits_in = shared.patience.add(self) if self._form is not Form.JSON else None
        try:
            outcome = server.answer_modern_now(message)
            if outcome is None:
                outcome = await server.call(message, ctx)
            status, payload = server.encode_modern_answer(message, outcome)
            ctx.is_done = True
            if self._answer is None and self._form is not Form.STREAM:
                shared.stats.messages_out += 1
                self._responder.respond(status, JSON_HEADERS, payload)
            else:
                await self._begun().finish(status, payload)
        except asyncio.CancelledError:
            # The client left, the server gives up its grace, or the handler awaited something that was cancelled.
            ctx.is_cancelled = ctx.is_done = True
            self._begun().break_off(encode_error(message.id, INTERNAL_ERROR, "request was cancelled"))
            raise
        finally:
            shared.load.in_flight -= 1
            if waits_in is not None:
                waits_in.pop(self, None)

    def _begun(self) -> Answer:
        """Return the answer as something that can become a stream."""
        if self._answer is None:
            self._answer = Answer(self._shared, self._responder, self._form)
        return self._answer

    def begin(self) -> None:
        """Begin the stream, as the answer takes long: see :class:`~mcpfast.server.patience.Waiting`."""
        self._begun().begin()

    # What its Context asks

    async def send(self, payload: bytes) -> None:
        if self._responder.is_ended:
            raise TransportClosed("the request was answered, or its client has left")
        if self._form is not Form.JSON:
            await self._begun().send(payload)

    async def call(self, method: str, params: dict[str, Any] | None, timeout: float) -> Any:
        raise RuntimeError(f"{LATEST} knows no requests from servers: answer with resultType input_required")

    def close_stream(self, retry_ms: int | None) -> None:
        raise RuntimeError(f"streams of {LATEST} cannot be taken up again, so close_stream() would end the request")
