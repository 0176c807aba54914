"""Fixtures for the whole suite."""

from __future__ import annotations

import importlib.util

import pytest

LOOPS = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(
        ("asyncio", {"use_uvloop": True}),
        id="uvloop",
        marks=pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed"),
    ),
]


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Run each async test (marked ``anyio``) on stock asyncio and on uvloop."""
    backend: tuple[str, dict[str, bool]] = request.param
    return backend
