"""Fixtures of the server's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mcpfast.server.load import PROCESS
from mcpfast.server.streamable import StreamableHTTPHandler
from tests.server.streamable_peer import SHELLS


@pytest.fixture
async def nothing_left(anyio_backend: object) -> AsyncIterator[None]:
    """Stop every server that a test spoke to by a streamable Peer; nothing of it may be left running."""
    SHELLS.clear()  # of tests without this fixture, on loops of their own
    before = PROCESS.in_flight
    yield
    for shell in SHELLS:
        handler = shell.handler
        if isinstance(handler, StreamableHTTPHandler):
            await handler.drain(0)
            assert handler.shared.stats.sessions == 0
        await shell.aclose()
        for exchange in shell.exchanges:
            assert not exchange.misuse, exchange.misuse
    SHELLS.clear()
    assert PROCESS.in_flight == before
