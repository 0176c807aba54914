"""A POST to an HTTP+SSE session: from the body to the session, and what is answered (A7).

The answer says what became of the message, not what it led to: 202, and everything else comes on the stream.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from ..errors import ProtocolError
from ..http.interface import BodyTooLarge, ClientDisconnected, Request, Responder
from ..jsonrpc import Message, decode_message
from ..jsonrpc import Request as RPCRequest
from ..protocol.headers import is_json
from ..protocol.refusal import Refusal
from ..protocol.sse_session import WAIT, Verdict
from .gate import refuse
from .stats import Stats

__all__ = ["PostTarget", "receive_post"]

MAX_INITIALIZE_BYTES = 64 << 10
"""What a client says of itself in ``initialize`` is kept as long as its session."""

WRONG_TYPE = Refusal(415, "content_type", "content type must be application/json")
INITIALIZE_TOO_LARGE = Refusal(413, "body_too_large", f"initialize may hold {MAX_INITIALIZE_BYTES} bytes at most")
NO_BATCHES = Refusal(400, "batch", "this session's protocol revision knows no batches")


class PostTarget(Protocol):
    """A session as a POST sees it."""

    @property
    def accepts_batches(self) -> bool:
        """Its revision has batches."""

    def admit(self, message: Message) -> Verdict:
        """Judge a message; if it is accepted, :meth:`run` must follow."""

    async def deliver_later(self, message: Message, request: Request) -> Refusal | None:
        """Wait until a message is accepted and handed on (None), or for as long as one may wait."""

    def run(self, message: Message, request: Request) -> None:
        """Hand an accepted message on."""

    def run_batch(self, members: list[Message | ProtocolError], request: Request) -> None:
        """Judge the members of a batch and hand them on; those refused are answered on the stream."""


def receive_post(
    target: PostTarget, request: Request, responder: Responder, stats: Stats, max_body_bytes: int
) -> Awaitable[None] | None:
    """Take a POST's message to ``target`` and answer the POST. Needs no task in the common case."""
    content_type = request.headers.fields.get(b"content-type")
    if content_type != b"application/json" and not is_json(content_type):
        refuse(WRONG_TYPE, responder, stats)
        return None
    body = request.body_nowait
    if body is None or len(body) > max_body_bytes:
        return _receive_slowly(target, request, responder, stats, max_body_bytes)
    return _receive(target, body, request, responder, stats)


async def _receive_slowly(
    target: PostTarget, request: Request, responder: Responder, stats: Stats, max_body_bytes: int
) -> None:
    try:
        body = await request.body(max_body_bytes)
    except BodyTooLarge as error:
        refuse(Refusal(413, "body_too_large", str(error)), responder, stats)
        return
    except ClientDisconnected:
        return
    waiting = _receive(target, body, request, responder, stats)
    if waiting is not None:
        await waiting


def _receive(
    target: PostTarget, body: bytes, request: Request, responder: Responder, stats: Stats
) -> Awaitable[None] | None:
    try:
        message = decode_message(body)
    except ProtocolError as error:
        reason = "parse_error" if error.code == -32700 else "malformed"
        refuse(Refusal(400, reason, str(error), error.code, error.id), responder, stats)
        return None
    if type(message) is list:
        if not target.accepts_batches:
            refuse(NO_BATCHES, responder, stats)
            return None
        stats.messages_in += len(message)
        responder.respond(202)
        target.run_batch(message, request)
        return None
    assert not isinstance(message, list)
    if len(body) > MAX_INITIALIZE_BYTES and type(message) is RPCRequest and message.method == "initialize":
        refuse(INITIALIZE_TOO_LARGE, responder, stats)
        return None
    verdict = target.admit(message)
    if verdict is None:
        stats.messages_in += 1
        responder.respond(202)
        target.run(message, request)
        return None
    if verdict is WAIT:
        return _receive_later(target, message, request, responder, stats)
    assert isinstance(verdict, Refusal)
    refuse(verdict, responder, stats)
    return None


async def _receive_later(
    target: PostTarget, message: Message, request: Request, responder: Responder, stats: Stats
) -> None:
    refusal = await target.deliver_later(message, request)
    if refusal is not None:
        refuse(refusal, responder, stats)
        return
    stats.messages_in += 1
    responder.respond(202)
