"""One exchange of 2026-07-28: what is judged, and how answers are shaped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfast.jsonrpc import Notification, Request
from mcpfast.protocol.modern import (
    check_notification,
    check_request,
    encode_result,
    result_prefix,
    status_of,
    wire_code,
)
from mcpfast.protocol.refusal import Refusal

VERSION = "2026-07-28"
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def judge(message: Request, *headers: tuple[bytes, bytes], without: bytes = b"") -> dict[str, Any] | Refusal:
    raw = [(b"host", b"x"), (b"mcp-protocol-version", VERSION.encode()), (b"mcp-method", message.method.encode())]
    raw = [field for field in raw if field[0] != without and field[0] not in dict(headers)] + list(headers)
    return check_request(message, dict(raw), raw)


def refused(found: object, code: int, status: int = 400) -> Refusal:
    assert isinstance(found, Refusal)
    assert (found.code, found.status) == (code, status)
    return found


def test_a_good_request_gives_its_meta() -> None:
    meta = META | {"io.modelcontextprotocol/clientInfo": {"name": "x"}}
    assert judge(Request(1, "tools/list", {"_meta": meta})) is meta


@pytest.mark.parametrize(
    "meta",
    [
        None,
        [],
        {},
        {k: v for k, v in META.items() if k.endswith("protocolVersion")},
        {k: v for k, v in META.items() if k.endswith("clientCapabilities")},
        META | {"io.modelcontextprotocol/clientCapabilities": None},
        META | {"io.modelcontextprotocol/protocolVersion": 20260728},
    ],
)
def test_a_request_without_the_required_meta_is_refused(meta: Any) -> None:
    """M26-S-43."""
    assert refused(judge(Request(7, "tools/list", {"_meta": meta})), -32602).id == 7
    refused(judge(Request(7, "tools/list")), -32602)
    refused(judge(Request(7, "tools/list", [])), -32602)


def test_version_header_and_body_must_agree() -> None:
    """M26-S-28, M26-S-31, M26-S-36, M26-S-41, C059 (e), (f)."""
    message = Request("a", "tools/list", {"_meta": META})
    assert refused(judge(message, without=b"mcp-protocol-version"), -32020).id == "a"
    refused(judge(message, (b"mcp-protocol-version", b"2025-11-25")), -32020)
    refused(judge(message, (b"mcp-protocol-version", b"")), -32020)
    old = META | {"io.modelcontextprotocol/protocolVersion": "2025-11-25"}
    refused(judge(Request("a", "tools/list", {"_meta": old})), -32020)


@pytest.mark.parametrize("asked", ["2031-01-01", "2025-11-25", "garbage", "é"])
def test_a_version_that_is_not_served_gets_the_list_of_those_that_are(asked: str) -> None:
    """M26-S-29."""
    meta = META | {"io.modelcontextprotocol/protocolVersion": asked}
    found = judge(Request(1, "tools/list", {"_meta": meta}), (b"mcp-protocol-version", asked.encode()))
    data = refused(found, -32022).data
    assert data["requested"] == asked
    assert data["supported"][0] == VERSION


def test_a_repeated_header_is_a_failure() -> None:
    """M26-S-42: also where both copies are the same."""
    message = Request(1, "tools/list", {"_meta": META})
    for name in (b"mcp-protocol-version", b"mcp-method", b"mcp-name"):
        raw = [(b"mcp-protocol-version", VERSION.encode()), (b"mcp-method", b"tools/list"), (b"mcp-name", b"x")]
        raw += [field for field in raw if field[0] == name]
        refused(check_request(message, dict(raw), raw), -32020)
    raw = [(b"mcp-protocol-version", VERSION.encode()), (b"mcp-method", b"tools/list"), (b"a", b""), (b"a", b"")]
    assert check_request(message, dict(raw), raw) is META


def test_headers_are_compared_before_the_version_is_looked_up() -> None:
    meta = META | {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    message = Request(1, "tools/list", {"_meta": meta})
    refused(judge(message, (b"mcp-protocol-version", b"2031-01-01"), (b"mcp-method", b"x")), -32020)


def test_notifications_need_a_served_version_and_nothing_else() -> None:
    """M26-S-07, M26-S-08, M26-S-29."""
    note = Notification("notifications/x")
    assert check_notification(note, {b"mcp-protocol-version": VERSION.encode()}) is None
    refused(check_notification(note, {b"mcp-protocol-version": b"2031-01-01"}), -32022)
    meta = Notification("notifications/x", {"_meta": META})
    assert check_notification(meta, {b"mcp-protocol-version": VERSION.encode()}) is None
    refused(check_notification(meta, {}), -32020)
    refused(check_notification(meta, {b"mcp-protocol-version": b"2025-11-25"}), -32020)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (-32700, 400),
        (-32600, 400),
        (-32602, 400),
        (-32020, 400),
        (-32021, 400),
        (-32022, 400),
        (-32601, 404),
        (-32603, 200),
        (-32000, 200),
        (5, 200),
    ],
)
def test_error_codes_have_their_status(code: int, status: int) -> None:
    """M26-S-45, M26-S-41, M26-S-43, M26-S-44."""
    assert status_of(code) == status


@pytest.mark.parametrize(
    ("raised", "sent"),
    [
        (-32002, -32602),
        (-32042, -32603),
        (-32023, -32603),
        (-32099, -32603),
        (-32020, -32020),
        (-32021, -32021),
        (-32022, -32022),
        (-32000, -32000),
        (-32100, -32100),
        (1, 1),
    ],
)
def test_codes_the_specification_keeps_for_itself_are_not_sent(raised: int, sent: int) -> None:
    """M26-S-46, M26-S-47."""
    assert wire_code(raised) == sent


INFO = {"name": "demo", "version": "1"}
STAMP = {"io.modelcontextprotocol/serverInfo": INFO}


def encoded(method: str, result: dict[str, Any], id: Any = 1) -> Any:
    before = json.dumps(result)
    answer = json.loads(encode_result(id, method, result, result_prefix(INFO), INFO))
    assert json.dumps(result) == before, "a handler's result was changed"
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] == id
    return answer["result"]


def test_results_say_their_type_and_who_answers() -> None:
    """M26-S-48."""
    assert encoded("tools/call", {}) == {"resultType": "complete", "_meta": STAMP}
    assert encoded("tools/call", {"content": []}) == {"resultType": "complete", "_meta": STAMP, "content": []}


def test_what_a_handler_says_itself_is_kept() -> None:
    """M26-S-48, M26-S-52."""
    assert encoded("tools/call", {"resultType": "input_required"})["resultType"] == "input_required"
    assert encoded("tools/call", {"_meta": {"a": 1}})["_meta"] == STAMP | {"a": 1}
    own = {"io.modelcontextprotocol/serverInfo": {"name": "other"}}
    assert encoded("tools/call", {"_meta": own})["_meta"] == own
    assert encoded("tools/call", {"_meta": None})["_meta"] == STAMP


def test_results_that_may_be_cached_say_for_how_long() -> None:
    assert encoded("tools/list", {"tools": []})["ttlMs"] == 0
    assert encoded("tools/list", {"tools": []})["cacheScope"] == "private"
    assert encoded("tools/list", {"tools": [], "ttlMs": 5})["ttlMs"] == 5
    assert "ttlMs" not in encoded("resources/read", {"resultType": "input_required"})


@pytest.mark.parametrize("id", [0, -1, 9007199254740993, 2**80, "", "007", 'a\u00e9"\\\n', "1"])
def test_every_id_comes_back_as_it_was(id: Any) -> None:
    """C054, M26-S-12."""
    encoded("tools/call", {"a": 1}, id)
    encoded("tools/call", {}, id)
