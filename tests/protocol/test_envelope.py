"""What a client of 2026-07-28 puts around each call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpfast.errors import ProtocolError
from mcpfast.protocol.envelope import Envelope, mirrored_headers, mirrored_name, revision_of
from mcpfast.protocol.revisions import REVISIONS

VERSION = "io.modelcontextprotocol/protocolVersion"
META: dict[str, Any] = {
    VERSION: "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "é", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def envelope() -> Envelope:
    return Envelope("2026-07-28", {"name": "é", "version": "1"}, {"roots": {}})


@given(
    st.integers(1, 10**30), st.text(), st.none() | st.dictionaries(st.text(), JSON_VALUES, max_size=4), st.booleans()
)
def test_the_spliced_json_is_the_request(id: int, method: str, params: Any, wants_progress: bool) -> None:
    """M26-C-13"""
    given = params if params is None else {key: value for key, value in params.items() if key != "_meta"}
    meta = {**META, **({"progressToken": id} if wants_progress else {})}
    expected = {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": meta, **(given or {})}}
    for _ in range(2):  # the second time from what was kept
        assert json.loads(envelope().request(id, method, given, wants_progress=wants_progress)) == expected


def test_the_callers_own_meta_is_kept_but_not_its_revision() -> None:
    params = {"a": 1, "_meta": {"traceparent": "00-1", VERSION: "1999-01-01"}}
    message = json.loads(envelope().request(1, "x", params, wants_progress=True))
    assert message["params"] == {"a": 1, "_meta": {**META, "traceparent": "00-1", "progressToken": 1}}
    assert params == {"a": 1, "_meta": {"traceparent": "00-1", VERSION: "1999-01-01"}}, "not changed"
    assert json.loads(envelope().request(1, "x", {"_meta": None}))["params"]["_meta"] == META


@pytest.mark.parametrize("params", [[1], [], (), "x", 0, {"a": float("nan")}, {"_meta": 1}])
def test_params_that_cannot_be_sent_are_refused(params: Any) -> None:
    with pytest.raises(ProtocolError) as caught:
        envelope().request(5, "x", params)
    assert caught.value.id == 5


@pytest.mark.parametrize(
    ("params", "version"),
    [
        ({"_meta": {VERSION: "2026-07-28"}}, "2026-07-28"),
        ({"_meta": {VERSION: "2025-11-25"}}, None),
        ({"_meta": {VERSION: 1}}, None),
        ({"_meta": []}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_which_revision_a_message_names(params: Any, version: str | None) -> None:
    assert revision_of(params) is (None if version is None else REVISIONS[version])


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "a"}, "a"),
        ("prompts/get", {"name": "b"}, "b"),
        ("resources/read", {"uri": "file:///c", "name": "d"}, "file:///c"),
        ("tools/list", {"name": "a"}, None),
        ("tools/call", {"name": 1}, None),
        ("tools/call", [], None),
    ],
)
def test_what_mcp_name_mirrors(method: str, params: Any, name: str | None) -> None:
    """M26-C-04"""
    assert mirrored_name(method, params) == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("plain", b"plain"),
        ("日本", b"=?base64?5pel5pys?="),
        (" lead", b"=?base64?IGxlYWQ=?="),
        ("a\r\nb", b"=?base64?YQ0KYg==?="),
        ("=?base64?YQ==?=", b"=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ("", b""),
    ],
)
def test_names_are_made_safe_for_a_header(name: str, value: bytes) -> None:
    """M26-C-03, M26-C-16"""
    fields = dict(mirrored_headers("2026-07-28", "tools/call", name))
    assert fields == {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/call", b"mcp-name": value}


@pytest.mark.parametrize(("method", "name"), [("a\r\nb", None), (" a", None), ("a\ud800", None), ("a", "\ud800")])
def test_what_no_header_can_say_is_refused(method: str, name: str | None) -> None:
    with pytest.raises(ProtocolError):
        mirrored_headers("2026-07-28", method, name)
