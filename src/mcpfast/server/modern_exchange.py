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
from .answer import Answer, Form
from .context import Context, Peer
from .hosting import Hosted
from .principal import Principal
from .shared import Shared

__all__ = ["ModernExchange", "peer_of"]


def peer_of(meta: dict[str, Any], principal: Principal | None) -> Peer:
    """Return what a request says of the client that sent it; nothing is taken from earlier ones (M26-S-49)."""
    peer = Peer(principal=principal, protocol_version=LATEST)
    peer.client_capabilities = meta[CAPABILITIES_KEY]
    info = meta.get(CLIENT_INFO_KEY)
    if type(info) is dict:
        peer.client_info = info
    return peer


class ModernExchange:
    """One request being served. It is the Channel of its Context."""

    __slots__ = ("_answer", "_ctx", "_hosted", "_message", "_responder", "_shared")

    def __init__(
        self,
        shared: Shared,
        hosted: Hosted,
        message: RPCRequest,
        peer: Peer,
        form: Form,
        request: Request,
        responder: Responder,
    ) -> None:
        self._shared = shared
        self._hosted = hosted
        self._message = message
        self._responder = responder
        self._answer = Answer(shared, responder, form)
        self._ctx = Context(
            peer, self, request=request, request_id=message.id, params=message.params, state=hosted.state
        )

    async def run(self) -> None:
        """Serve the request."""
        ctx, answer, load = self._ctx, self._answer, self._shared.load
        load.in_flight += 1
        answer.wait()
        try:
            status, payload = await self._hosted.server.answer_modern(self._message, ctx)
            ctx.is_done = True
            await answer.finish(status, payload)
        except asyncio.CancelledError:
            # The client left, the server gives up its grace, or the handler awaited something that was cancelled.
            ctx.is_cancelled = ctx.is_done = True
            answer.break_off(encode_error(self._message.id, INTERNAL_ERROR, "request was cancelled"))
            raise
        finally:
            load.in_flight -= 1
            answer.forget()

    # What its Context asks

    async def send(self, payload: bytes) -> None:
        if self._responder.is_ended:
            raise TransportClosed("the request was answered, or its client has left")
        if self._answer.can_stream:
            await self._answer.send(payload)

    async def call(self, method: str, params: dict[str, Any] | None, timeout: float) -> Any:
        raise RuntimeError(f"{LATEST} knows no requests from servers: answer with resultType input_required")

    def close_stream(self, retry_ms: int | None) -> None:
        raise RuntimeError(f"streams of {LATEST} cannot be taken up again, so close_stream() would end the request")
