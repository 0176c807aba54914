"""Fixtures for the whole suite."""

from __future__ import annotations

import importlib.util
import os

import pytest

# A build without extensions is tested as a process that may not load them.
if os.environ.get("MCPFAST_BUILD_EXTENSION") == "no":
    os.environ.setdefault("MCPFAST_NO_EXTENSIONS", "1")

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


def pytest_sessionstart() -> None:
    """Fail the run where compiled modules are absent without being told so: it would test the pure ones twice."""
    from mcpfast import _json, codec

    is_meant = os.environ.get("MCPFAST_NO_EXTENSIONS") == "1"
    if not is_meant and {codec.IMPLEMENTATION, _json.IMPLEMENTATION} != {"cython"}:
        pytest.exit(
            "the compiled modules are absent: build them as ci/test.sh does, or set MCPFAST_NO_EXTENSIONS=1",
            returncode=1,
        )
