"""Revisions as data, and version negotiation (L25-S-23)."""

from __future__ import annotations

import pytest

from mcpfast.protocol.revisions import HTTP_SSE, LATEST, LATEST_LEGACY, LEGACY, REVISIONS, negotiate


def test_revisions_are_in_order_of_time() -> None:
    assert list(REVISIONS) == ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
    assert LATEST == "2026-07-28"
    assert LATEST_LEGACY == "2025-11-25"


@pytest.mark.parametrize("version", LEGACY)
def test_a_served_version_is_answered_with_itself(version: str) -> None:
    assert negotiate(version).version == version


@pytest.mark.parametrize("version", ["2026-07-28", "1999-12-31", "", None, 20241105, ["2024-11-05"]])
def test_any_other_version_is_answered_with_the_latest_that_has_sessions(version: object) -> None:
    assert negotiate(version).version == LATEST_LEGACY


def test_only_2025_03_26_accepts_batches() -> None:
    assert [r.version for r in REVISIONS.values() if r.accepts_batches] == ["2025-03-26"]


def test_http_sse_is_neither_streamable_nor_resumable() -> None:
    assert not HTTP_SSE.is_streamable
    assert not HTTP_SSE.can_resume
