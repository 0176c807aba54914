"""Mcp-Param-*: which arguments a tool's schema wants in headers, and how they are written."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfast.protocol.standard_headers import check_param_headers
from mcpfast.protocol.tool_headers import ToolHeaders, marks_of

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "limit": {"type": "integer", "x-mcp-header": "Limit"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "free": {"type": "string"},
        "nested": {"type": "object", "properties": {"id": {"type": "string", "x-mcp-header": "Nested-Id"}}},
    },
}


def learned(schema: Any = SCHEMA) -> ToolHeaders:
    tools = ToolHeaders()
    tools.learn({"tools": [{"name": "t", "inputSchema": schema}]})
    return tools


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (
            {"region": "eu", "limit": 42, "dry": True, "free": "x", "nested": {"id": "n"}},
            {b"region": b"eu", b"limit": b"42", b"dry-run": b"true", b"nested-id": b"n"},
        ),
        ({"region": None, "dry": False, "nested": {}}, {b"dry-run": b"false"}),
        ({"region": "é ", "limit": -(10**20)}, {b"region": b"=?base64?w6kg?=", b"limit": b"-100000000000000000000"}),
        ({"limit": 42.0, "nested": "no object"}, {b"limit": b"42"}),
        ({"region": ""}, {b"region": b""}),
        ({"id": "n", "region": ["eu"]}, {}),
        (None, {}),
    ],
)
def test_arguments_are_mirrored_at_their_path(arguments: Any, fields: dict[bytes, bytes]) -> None:
    """M26-C-15, M26-C-16, M26-C-17; and our own server agrees."""
    found = learned().headers({"name": "t", "arguments": arguments})
    assert dict(found) == {b"mcp-param-" + name: value for name, value in fields.items()}
    assert check_param_headers(SCHEMA, arguments, found) is None


def test_other_tools_have_no_headers() -> None:
    tools = learned()
    for params in ({"name": "other", "arguments": {"region": "eu"}}, {"arguments": {}}, {"name": 1}, [], None):
        assert tools.headers(params) == []


def prop(**schema: Any) -> dict[str, Any]:
    return {"properties": {"p": schema}}


INVALID = [
    prop(type="string", **{"x-mcp-header": ""}),
    prop(type="string", **{"x-mcp-header": "a b"}),
    prop(type="string", **{"x-mcp-header": "a:b"}),
    prop(type="string", **{"x-mcp-header": "é"}),
    prop(type="string", **{"x-mcp-header": 1}),
    prop(type="string", **{"x-mcp-header": None}),
    prop(type="number", **{"x-mcp-header": "N"}),
    prop(type="object", **{"x-mcp-header": "N"}),
    prop(type=["string", "null"], **{"x-mcp-header": "N"}),
    prop(**{"x-mcp-header": "N"}),
    {"x-mcp-header": "Root", "type": "string"},
    {"properties": {"a": {"type": "string", "x-mcp-header": "X"}, "b": {"type": "string", "x-mcp-header": "x"}}},
    prop(type="array", items={"type": "string", "x-mcp-header": "N"}),
    {"anyOf": [prop(type="string", **{"x-mcp-header": "N"})]},
    {"$defs": {"d": prop(type="string", **{"x-mcp-header": "N"})}},
    {"if": prop(type="string", **{"x-mcp-header": "N"})},
]


@pytest.mark.parametrize("schema", INVALID)
def test_tools_with_invalid_marks_are_left_out_and_it_is_said_why(schema: Any) -> None:
    """M26-C-18"""
    with pytest.raises(ValueError, match="mark"):
        marks_of(schema)
    tools = ToolHeaders()
    listed = {"tools": [{"name": "bad", "inputSchema": schema}, {"name": "good"}], "nextCursor": "c"}
    result, faults = tools.learn(listed)
    assert result == {"tools": [{"name": "good"}], "nextCursor": "c"}
    assert len(listed["tools"]) == 2, "not changed"
    assert [name for name, _ in faults] == ["bad"]
    assert not tools


@pytest.mark.parametrize(
    "schema",
    [None, [], {}, {"properties": None}, prop(type="string", default={"x-mcp-header": 1}), {"properties": {"p": 1}}],
)
def test_schemas_without_marks_are_fine(schema: Any) -> None:
    assert marks_of(schema) == {}


@pytest.mark.parametrize("result", [None, [], {}, {"tools": None}, {"tools": [1, {"name": 2}, None]}])
def test_listings_that_are_none_are_left_as_they_are(result: Any) -> None:
    assert ToolHeaders().learn(result) == (result, [])


def test_a_new_listing_replaces_the_marks() -> None:
    tools = learned()
    tools.learn({"tools": [{"name": "t", "inputSchema": {}}]})
    assert tools.headers({"name": "t", "arguments": {"region": "eu"}}) == []


def test_a_deep_schema_is_no_trouble() -> None:
    schema: Any = {}
    for _ in range(100_000):
        schema = {"not": schema}
    assert marks_of(schema) == {}
    while schema:  # taken apart by hand: dropping it whole would recurse
        schema = schema["not"]
