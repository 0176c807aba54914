"""Peers that several files of tests talk to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.node import Unavailable, install, program


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the path of a program on Node.js by its name."""
    try:
        installed = install()
    except Unavailable as reason:
        if os.environ.get("MCPFAST_REQUIRE_INTEROP") == "1":
            pytest.fail(f"the TypeScript SDK must be tested here, but {reason}")
        pytest.skip(f"the TypeScript SDK cannot run here: {reason}")
    folder = tmp_path_factory.mktemp("typescript")
    return lambda name: program(name, installed, folder)
