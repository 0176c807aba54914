"""Which era a request belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfast.jsonrpc import Notification, Request, Response
from mcpfast.protocol.era import SERVED, VERSION_KEY, is_modern, legacy_version
from mcpfast.protocol.refusal import Refusal


def request(version: object = None, method: str = "tools/list") -> Request:
    return Request(1, method, {"_meta": {VERSION_KEY: version}} if version is not None else {})


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"2026-07-28", request("2026-07-28")),
        (b"2026-07-28", request()),
        (b"2026-07-28", request("2025-11-25")),
        (b"2026-07-28", Notification("x")),
        (b"2026-07-28", Response(1, {})),
        (b"2026-07-28", [request()]),
        (None, request("2026-07-28")),
        (b"2025-11-25", request("2026-07-28")),
        (b"2025-11-25", request("2025-06-18")),
        (b"2025-11-25", request(5)),
        (None, request("2031-01-01")),
        (b"2031-01-01", request("2031-01-01")),
        (None, request("2026-07-28", "initialize")),
        (None, Notification("x", {"_meta": {VERSION_KEY: "2026-07-28"}})),
    ],
)
def test_modern_meta_or_a_modern_header_selects_the_modern_era(header: bytes | None, message: Any) -> None:
    """M26-S-28, M26-S-31, M26-S-63, C059 (e), (f)."""
    assert is_modern(header, message)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, request()),
        (None, request(method="initialize")),
        (b"2025-11-25", request()),
        (b"2025-11-25", request("2025-11-25")),
        (b"2024-11-05", request()),
        (b"", request()),
        (b"1999-12-31-x", request()),
        (None, Request(1, "x", ["_meta"])),
        (None, Request(1, "x", {"_meta": VERSION_KEY})),
        (None, Request(1, "x", None)),
        (None, Request(1, "x")),
        (None, Response(1, {})),
        (None, [request()]),
    ],
)
def test_everything_else_belongs_to_the_era_of_sessions(header: bytes | None, message: Any) -> None:
    """M26-S-30, M26-S-63."""
    assert not is_modern(header, message)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_served_legacy_version_is_read(version: str) -> None:
    assert legacy_version(version.encode()) == version


def test_no_header_is_no_version() -> None:
    """L03-C-04, L25-S-22."""
    assert legacy_version(None) is None


@pytest.mark.parametrize("header", [b"", b"1999-12-31-x", b"2025-11-25 ", b"\xff\xfe", b"2025-11-25, 2025-11-25"])
def test_a_version_that_is_not_served_is_refused_and_those_served_are_named(header: bytes) -> None:
    """L25-S-22, M26-S-29, C057."""
    refusal = legacy_version(header, request())
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code, refusal.id) == (400, -32022, 1)
    assert refusal.data == {"supported": list(SERVED), "requested": header.decode("latin-1")}
    assert refusal.data["supported"] == ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"]
