"""What all of the codec's cases run under."""

from __future__ import annotations

import pytest

from benchmarks.machine import steady_allocator


@pytest.fixture(scope="session", autouse=True)
def _allocator() -> None:
    steady_allocator()
