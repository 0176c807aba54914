"""Running a handler: its task, and what to answer when it raises. The same in all shells."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import TransportClosed
from .interface import BodyTooLarge, ClientDisconnected, Request, Responder

__all__ = ["answer_failure", "start_task"]

logger = logging.getLogger("mcpfast.http")

PLAIN_TEXT = ((b"content-type", b"text/plain; charset=utf-8"),)

# A handler that never waits is done at once, without a turn of the loop (Python 3.12).
_EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}


def start_task(awaitable: Awaitable[None], loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    """Run what a handler returned; it may be done already when this returns."""
    if not inspect.iscoroutine(awaitable):
        return asyncio.ensure_future(awaitable, loop=loop)
    if _EAGER:
        return asyncio.Task(awaitable, loop=loop, **_EAGER)
    return loop.create_task(awaitable)


def answer_failure(
    request: Request, responder: Responder, error: BaseException, count_refused: Callable[[str], object]
) -> None:
    """Answer for a handler that raised ``error``, as :mod:`mcpfast.http.interface` promises.

    The error's text goes to the log and never to the client.
    """
    if isinstance(error, BodyTooLarge) and not responder.is_started:
        count_refused("body_too_large")
        responder.respond(413, PLAIN_TEXT, b"Content Too Large")
        return
    if responder.is_disconnected and isinstance(error, (ClientDisconnected, TransportClosed)):
        return
    # No query in the log: it may hold a session id.
    logger.error("handler of %s %r failed", request.method, request.path, exc_info=error)
    if responder.is_started:
        responder.abort("handler_error")
    else:
        responder.respond(500, PLAIN_TEXT, b"Internal Server Error")
