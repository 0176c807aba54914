"""The four kinds of message as values, and ``UNSET``."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from mcpfast import jsonrpc
from mcpfast.errors import ProtocolError
from mcpfast.jsonrpc import UNSET, ErrorResponse, Notification, Request, Response, encode_message

MESSAGES = [
    Request(1, "tools/call", {"name": "echo"}),
    Request("", "ping"),
    Notification("notifications/initialized"),
    Notification("x", None),
    Response(1, {"ok": True}),
    ErrorResponse(None, -32700, "not JSON"),
    ErrorResponse("a", 1, "m", {"why": [1]}),
]


def test_unset_is_falsy_and_one_of_a_kind() -> None:
    assert not UNSET
    assert repr(UNSET) == "UNSET"
    assert copy.copy(UNSET) is UNSET
    assert copy.deepcopy({"a": UNSET})["a"] is UNSET
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(UNSET, protocol)) is UNSET


def test_unset_within_a_value_is_refused_not_written() -> None:
    with pytest.raises(ProtocolError, match="cannot be written as JSON"):
        encode_message(Response(1, {"a": UNSET}))


def test_absent_members_default_to_unset() -> None:
    assert Request(1, "x").params is UNSET
    assert Notification("x").params is UNSET
    assert ErrorResponse(1, 2, "x").data is UNSET


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_messages_are_plain_values(message: Any) -> None:
    for twin in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert twin == message
        assert twin is not message
    assert eval(repr(message), vars(jsonrpc)) == message
    assert not hasattr(message, "__dict__")


def test_messages_of_different_kind_or_content_differ() -> None:
    assert all((a == b) is (a is b) for a in MESSAGES for b in MESSAGES)
    assert Request(1, "x") != Request("1", "x")
    assert Notification("x") != Notification("x", None)
    assert Notification("x") != Notification("x", {})


def test_messages_match_by_position() -> None:
    match ErrorResponse(3, -32601, "no such method"):
        case ErrorResponse(id, code, message, data):
            assert (id, code, message, data) == (3, -32601, "no such method", UNSET)
    match Request(3, "ping"):
        case Request(id, method, params):
            assert (id, method, params) == (3, "ping", UNSET)
