"""What every test of clients needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mcpfast.client import detection


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """Ports are used again by other servers, of which nothing is known yet."""
    detection.forget_all()
    yield
    detection.forget_all()
