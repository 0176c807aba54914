"""Waiting for what no event tells of, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["WAIT_S", "until"]

WAIT_S = 10.0  # no wait of a test is longer: a hang is a failure


async def until(condition: Callable[[], object], seconds: float = WAIT_S) -> None:
    """Return once ``condition()`` is true; fail if it does not become so in time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, "waited in vain"
        await asyncio.sleep(0.001)
