"""Requests that the server sent to a client and that are not answered yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import MCPFastError, RequestTimeout, RPCError
from ..http.deadlines import Deadlines
from ..jsonrpc import UNSET, ErrorResponse, Response, encode_notification, encode_request
from ..protocol.sse_session import CANCELLED

__all__ = ["PendingRequests"]


class PendingRequests:
    """The requests of one session, by id. Ids are the server's own and never used twice in a session."""

    __slots__ = ("_last_id", "_waiting")

    def __init__(self) -> None:
        self._last_id = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(
        self,
        method: str,
        params: dict[str, Any] | None,
        timeout: float,
        send: Callable[[bytes], Awaitable[None]],
        tell: Callable[[bytes], None],
    ) -> Any:
        """Send a request and return the client's result; see :class:`~mcpfast.server.context.ContextRequest`.

        Args:
            send: sends the request, and may wait.
            tell: sends a notification without waiting: after a time-out, or when the caller is cancelled meanwhile, the
                client hears that the request is cancelled.
        """
        loop = asyncio.get_running_loop()
        id, answer = self.open(loop)

        def late() -> None:
            if not answer.done():
                answer.set_exception(
                    RequestTimeout(f"the client did not answer {method} within {timeout:g} s", seconds=timeout)
                )

        deadline = None
        try:
            await send(encode_request(id, method, UNSET if params is None else params))
            deadline = Deadlines.for_loop(loop).after(timeout, late)
            return await answer
        finally:
            if deadline is not None:
                deadline.cancel()
            if self.forget(id):
                answer.cancel()
                tell(encode_notification(CANCELLED, {"requestId": id}))

    def open(self, loop: asyncio.AbstractEventLoop) -> tuple[int, asyncio.Future[Any]]:
        """Return a new id and the future of its result."""
        self._last_id += 1
        future = self._waiting[self._last_id] = loop.create_future()
        return self._last_id, future

    def settle(self, answer: Response | ErrorResponse) -> bool:
        """Hand an answer to whoever waits for it; False if nobody does."""
        # Of the right type exactly: "1" is no answer to 1. Decoding lets no bool or float through.
        future = self._waiting.pop(answer.id, None) if type(answer.id) is int else None
        if future is None or future.done():
            return False
        if type(answer) is ErrorResponse:
            data = None if answer.data is UNSET else answer.data
            future.set_exception(RPCError(answer.code, answer.message, data))
        else:
            assert isinstance(answer, Response)
            future.set_result(answer.result)
        return True

    def forget(self, id: int) -> bool:
        """Stop waiting for an answer; False if it has come."""
        return self._waiting.pop(id, None) is not None

    def fail(self, error: MCPFastError) -> None:
        """Let all that wait fail with ``error``."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
