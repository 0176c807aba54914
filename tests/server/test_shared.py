"""What the transports of one app share."""

from __future__ import annotations

import asyncio

import pytest

from mcpfast.errors import TransportClosed
from mcpfast.server.options import ServerOptions
from mcpfast.server.shared import Shared

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("error", "logged"),
    [(TransportClosed("the session has ended"), []), (RuntimeError("store is down"), ["background work failed"])],
)
async def test_background_work_that_fails_is_logged_unless_its_client_has_left(
    error: Exception, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A session may end between the moment its client is to be told something and the moment that is done."""
    shared = Shared(ServerOptions())
    done = asyncio.Event()

    async def work() -> None:
        asyncio.get_running_loop().call_soon(done.set)
        raise error

    shared.in_background(work())
    await asyncio.wait_for(done.wait(), 5)
    await asyncio.sleep(0)
    assert [record.message for record in caplog.records] == logged
