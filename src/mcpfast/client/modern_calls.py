"""Calls of 2026-07-28 beyond what every call has: the headers that a tool wants, and the kind of the result.

Source: MCP 2026-07-28, basic/transports/streamable-http §Custom Headers; basic/index §ResultType
(M26-C-17 to M26-C-20).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ..errors import MCPFastError, ProtocolError, RequestTimeout, RPCError
from ..http.client_request import HeadersInput, header_list
from ..jsonrpc import HEADER_MISMATCH
from ..protocol.tool_headers import ToolHeaders
from .session import ProgressHandler, Session

__all__ = ["ModernCalls"]

logger = logging.getLogger("mcpfast.client")

MAX_PAGES = 100
"""Pages of ``tools/list`` that are read to find out what headers a tool wants."""

_RESULT_TYPES = ("complete", "input_required")


class ModernCalls:
    """The calls of one client; keeps what the last ``tools/list`` said."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tools = ToolHeaders()

    async def request(
        self,
        method: str,
        params: Any,
        timeout: float | None,
        headers: HeadersInput | None,
        on_progress: ProgressHandler | None,
    ) -> Any:
        """Make a call; see :meth:`Client.request`."""
        session = self._session
        started = session.now()
        extra = self._with(headers, params) if method == "tools/call" and self._tools else headers
        try:
            result = await session.request(method, params, timeout=timeout, headers=extra, on_progress=on_progress)
        except RPCError as error:
            # Our listing may be an old one, or none at all (M26-C-19). The call was not carried out.
            if error.code != HEADER_MISMATCH or method != "tools/call":
                raise
            await self._list_tools(timeout, error)
            timeout, extra = remaining(timeout, started, method), self._with(headers, params)
            result = await session.request(method, params, timeout=timeout, headers=extra, on_progress=on_progress)
        if type(result) is dict and result.get("resultType", "complete") not in _RESULT_TYPES:
            raise ProtocolError(f"result is of an unknown type, known are {', '.join(_RESULT_TYPES)}")  # M26-C-20
        return self._learn(result) if method == "tools/list" else result

    def _with(self, headers: HeadersInput | None, params: Any) -> HeadersInput | None:
        fields = self._tools.headers(params)
        return [*fields, *header_list(headers)] if fields else headers

    async def _list_tools(self, timeout: float | None, cause: RPCError) -> None:
        started = asyncio.get_running_loop().time()
        cursor: Any = None
        for _ in range(MAX_PAGES):
            params = None if cursor is None else {"cursor": cursor}
            try:
                page = await self._session.request(
                    "tools/list", params, timeout=remaining(timeout, started, "tools/call")
                )
            except (RPCError, MCPFastError, OSError) as error:
                raise cause from error
            self._learn(page)
            cursor = page.get("nextCursor") if isinstance(page, dict) else None
            if cursor is None:
                return

    def _learn(self, result: Any) -> Any:
        result, faults = self._tools.learn(result)
        for name, fault in faults:
            logger.warning("tool %r is left out of the listing: %s", name[:100], fault)
        return result


def remaining(timeout: float | None, started: float, method: str) -> float | None:
    """Return what is left of a call's time for another try.

    Raises:
        RequestTimeout: nothing is.
    """
    if timeout is None:
        return None
    left = started + timeout - asyncio.get_running_loop().time()
    if left <= 0:
        raise RequestTimeout(f"request {method!r} was not answered within {timeout:g} s", seconds=timeout)
    return left
