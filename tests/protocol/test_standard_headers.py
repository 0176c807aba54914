"""The headers that mirror the body, against the body (2026-07-28)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpfast.protocol.standard_headers import (
    SINGLE_HEADERS,
    check_param_headers,
    check_standard_headers,
    decode_value,
    encode_value,
    find_repeated,
)


def b64(text: str) -> bytes:
    return b"=?base64?" + base64.b64encode(text.encode()) + b"?="


CALL = {"name": "日本", "arguments": {}}


def test_plain_and_base64_values_stand_for_the_same_text() -> None:
    """M26-S-34."""
    assert decode_value(b"echo") == "echo"
    assert decode_value(b64("echo")) == "echo"
    assert decode_value(b64("日本")) == "日本"
    assert decode_value(b"=?base64??=") == ""


@pytest.mark.parametrize(
    "value", [b"=?BASE64?5pel5pys?=", b"=?Base64?5pel5pys?=", b"=?base64?5pel5pys?", b"=?base64?="]
)
def test_other_spellings_of_the_markers_are_plain_text(value: bytes) -> None:
    """M26-S-34, C059 (g)."""
    assert decode_value(value) == value.decode()


@pytest.mark.parametrize(
    "payload",
    [b"5pel5py", b"5pel 5pys", b"5pel5pys=", b"/w==", b"YR==", b"_-", b"5pel5pys\n"],
    ids=["cut", "space", "padded", "no UTF-8", "not canonical", "url alphabet", "line end"],
)
def test_a_damaged_base64_form_stands_for_nothing(payload: bytes) -> None:
    assert decode_value(b"=?base64?" + payload + b"?=") is None


@pytest.mark.parametrize("value", [b"a\x00b", b"a\x1fb", b"a\x7fb", "é".encode(), "é".encode("latin-1")])
def test_a_value_no_header_may_hold_stands_for_nothing(value: bytes) -> None:
    """M26-S-35."""
    assert decode_value(value) is None


@settings(deadline=None)
@given(st.text())
def test_every_text_survives_encoding(text: str) -> None:
    encoded = encode_value(text.encode("utf-8", "replace").decode())
    assert decode_value(encoded.encode("ascii").strip(b" \t")) == text.encode("utf-8", "replace").decode()


def test_method_and_name_equal_to_the_body_pass() -> None:
    fields = {b"mcp-method": b"tools/call", b"mcp-name": b64("日本")}
    assert check_standard_headers(fields, "tools/call", CALL) is None
    assert check_standard_headers({b"mcp-method": b"tools/list"}, "tools/list", {}) is None


@pytest.mark.parametrize("method", [None, b"TOOLS/CALL", b"tools/list", b"", b64("tools/call")])
def test_a_missing_or_different_method_is_named(method: bytes | None) -> None:
    """M26-S-32, M26-S-36, C059 (c), (d)."""
    fields = {b"mcp-name": b64("日本")} | ({} if method is None else {b"mcp-method": method})
    problem = check_standard_headers(fields, "tools/call", CALL)
    assert problem is not None
    assert "Mcp-Method" in problem


@pytest.mark.parametrize(
    ("method", "key"), [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")]
)
@pytest.mark.parametrize("name", [None, b"Right", b"right ", b"=?BASE64?cmlnaHQ=?="])
def test_a_missing_or_different_name_is_named(method: str, key: str, name: bytes | None) -> None:
    """M26-S-33, M26-S-36, C059 (b), (g)."""
    fields = {b"mcp-method": method.encode()} | ({} if name is None else {b"mcp-name": name})
    problem = check_standard_headers(fields, method, {key: "right"})
    assert problem is not None
    assert "Mcp-Name" in problem
    fields[b"mcp-name"] = b"right"
    assert check_standard_headers(fields, method, {key: "right"}) is None


def test_a_name_that_looks_like_the_base64_form_must_come_in_it() -> None:
    name = "=?base64?cmlnaHQ=?="
    fields = {b"mcp-method": b"tools/call", b"mcp-name": name.encode()}
    assert check_standard_headers(fields, "tools/call", {"name": name}) is not None
    fields[b"mcp-name"] = b64(name)
    assert check_standard_headers(fields, "tools/call", {"name": name}) is None


def test_a_name_header_without_a_name_in_the_body_is_refused() -> None:
    fields = {b"mcp-method": b"tools/call", b"mcp-name": b"x"}
    assert check_standard_headers(fields, "tools/call", {}) is not None
    assert check_standard_headers(fields, "tools/call", None) is not None
    del fields[b"mcp-name"]
    assert check_standard_headers(fields, "tools/call", {}) is None


def test_repeated_headers_are_found_and_others_are_not() -> None:
    """M26-S-42."""
    raw = [(b"accept", b"a"), (b"mcp-method", b"x"), (b"accept", b"b")]
    assert find_repeated(raw, SINGLE_HEADERS) is None
    assert find_repeated([*raw, (b"mcp-method", b"x")], SINGLE_HEADERS) == "mcp-method"
    assert find_repeated([(b"mcp-param-a", b"1"), (b"mcp-param-a", b"1")], SINGLE_HEADERS) == "mcp-param-a"


SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "free": {"type": "string"},
        "where": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
    },
}


def params(**headers: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"mcp-param-" + name.replace("_", "-").encode(), value) for name, value in headers.items()]


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, params()),
        ({"free": "x"}, params()),
        ({"region": None}, params()),
        ({"region": "eu"}, params(region=b"eu")),
        ({"region": "日本"}, params(region=b64("日本"))),
        ({"region": "eu"}, params(region=b"eu", unknown=b"not looked at")),
        ({"count": 42}, params(count=b"42")),
        ({"count": 42}, params(count=b"42.0")),
        ({"count": 42.0}, params(count=b"42")),
        ({"count": -7}, params(count=b"-7")),
        ({"count": 2**70}, params(count=str(2**70).encode())),
        ({"dry": True}, params(dry_run=b"true")),
        ({"where": {"zone": "b"}}, params(zone=b"b")),
        ({"where": "no object"}, params()),
    ],
)
def test_param_headers_equal_to_the_arguments_pass(arguments: Any, headers: list[tuple[bytes, bytes]]) -> None:
    """M26-S-38, M26-S-39, M26-S-40."""
    assert check_param_headers(SCHEMA, arguments, headers) is None


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, params()),
        ({"region": "eu"}, params(region=b"EU")),
        ({"region": "eu"}, params(region=b"=?base64?!?=")),
        ({}, params(region=b"eu")),
        ({"region": None}, params(region=b"eu")),
        ({"region": {"a": 1}}, params(region=b"eu")),
        ({"count": 42}, params(count=b"43")),
        ({"count": 42}, params(count=b"42.5")),
        ({"count": 42}, params(count=b"4.2e1")),
        ({"count": 2**70}, params(count=str(2**70 + 1).encode())),
        ({"count": True}, params(count=b"1")),
        ({"region": "42"}, params(region=b"42.0")),
        ({"dry": True}, params(dry_run=b"True")),
        ({"where": {"zone": "b"}}, params()),
        ({"where": {"zone": "b"}}, params(zone=b"a")),
    ],
)
def test_param_headers_that_differ_are_named(arguments: Any, headers: list[tuple[bytes, bytes]]) -> None:
    """M26-S-38, M26-S-40."""
    problem = check_param_headers(SCHEMA, arguments, headers)
    assert problem is not None
    assert "Mcp-Param-" in problem


@pytest.mark.parametrize(
    "mark",
    [
        {"type": "string", "x-mcp-header": "has space"},
        {"type": "string", "x-mcp-header": ""},
        {"type": "string", "x-mcp-header": 5},
        {"type": "number", "x-mcp-header": "Num"},
        {"type": "string", "x-mcp-header": "REGION"},
    ],
)
def test_a_schema_with_an_invalid_mark_checks_nothing(mark: dict[str, Any]) -> None:
    schema = {"properties": {**SCHEMA["properties"], "bad": mark}}  # type: ignore[dict-item]
    assert check_param_headers(schema, {"region": "eu"}, []) is None


@pytest.mark.parametrize("schema", [None, True, {}, {"properties": None}, {"properties": {"a": True}}])
def test_a_schema_without_marks_checks_nothing(schema: Any) -> None:
    assert check_param_headers(schema, {"a": 1}, params(a=b"2")) is None
