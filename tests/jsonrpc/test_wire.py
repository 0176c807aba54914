"""Bytes to messages and back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpfast.errors import ProtocolError
from mcpfast.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    MAX_BATCH,
    PARSE_ERROR,
    UNSET,
    ErrorResponse,
    Message,
    Notification,
    Request,
    Response,
    decode_message,
    encode_error,
    encode_message,
    encode_notification,
    encode_request,
    encode_response,
    is_request_id,
    message_from_value,
    message_to_value,
)


def decode_one(data: bytes | str) -> Message:
    message = decode_message(data)
    assert not isinstance(message, list)
    return message


# --- the four kinds, there and back ----------------------------------------------------------------------------------

PAIRS: list[tuple[str, Message]] = [
    ('{"jsonrpc":"2.0","id":1,"method":"ping"}', Request(1, "ping")),
    ('{"jsonrpc":"2.0","id":"a","method":"x","params":{"k":[1,null]}}', Request("a", "x", {"k": [1, None]})),
    ('{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}', Request(1, "x", [1])),
    ('{"jsonrpc":"2.0","id":1,"method":"x","params":null}', Request(1, "x", None)),
    ('{"jsonrpc":"2.0","id":1,"method":"x","params":{}}', Request(1, "x", {})),
    ('{"jsonrpc":"2.0","method":"n"}', Notification("n")),
    ('{"jsonrpc":"2.0","method":"n","params":null}', Notification("n", None)),
    ('{"jsonrpc":"2.0","method":"n","params":{"a":1}}', Notification("n", {"a": 1})),
    ('{"jsonrpc":"2.0","id":7,"result":{}}', Response(7, {})),
    ('{"jsonrpc":"2.0","id":7,"result":null}', Response(7, None)),
    ('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}', ErrorResponse(None, -32700, "m")),
    ('{"jsonrpc":"2.0","id":"","error":{"code":1,"message":"","data":null}}', ErrorResponse("", 1, "", None)),
    ('{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"","data":[0]}}', ErrorResponse(0, 1, "", [0])),
]


@pytest.mark.parametrize(("text", "message"), PAIRS, ids=[text for text, _ in PAIRS])
def test_messages_are_read_and_written_as_they_are(text: str, message: Message) -> None:
    """Absent params stay absent and null stays null."""
    assert decode_one(text.encode()) == message
    assert decode_one(text) == message
    assert encode_message(message) == text.encode()
    assert message_to_value(message) == json.loads(text)
    assert message_from_value(json.loads(text)) == message


def test_the_shortcuts_write_what_the_messages_write() -> None:
    for params in ({"a": 1}, [], None, UNSET):
        assert encode_request(1, "x", params) == encode_message(Request(1, "x", params))
        assert encode_notification("x", params) == encode_message(Notification("x", params))
    assert encode_response("r", [1]) == encode_message(Response("r", [1]))
    for data in ({"a": 1}, None, UNSET):
        assert encode_error(1, -32603, "m", data) == encode_message(ErrorResponse(1, -32603, "m", data))
    assert encode_error(None, 1, "m") == encode_message(ErrorResponse(None, 1, "m"))


def test_an_error_response_may_come_without_an_id() -> None:
    """MCP 2025-11-25 and later leave the id out where it could not be read; JSON-RPC 2.0 writes null."""
    assert decode_one('{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}') == ErrorResponse(None, 1, "m")


def test_members_nobody_knows_are_ignored() -> None:
    text = '{"jsonrpc":"2.0","id":1,"method":"x","trace":[1],"error_":0}'
    assert decode_one(text) == Request(1, "x")
    assert decode_one('{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","x":2}}') == ErrorResponse(1, 1, "m")


def test_the_order_of_members_does_not_matter() -> None:
    assert decode_one('{"params":{},"method":"x","id":1,"jsonrpc":"2.0"}') == Request(1, "x", {})


def test_of_a_repeated_member_the_last_one_counts() -> None:
    assert decode_one('{"jsonrpc":"2.0","id":1,"method":"x","id":"b"}') == Request("b", "x")


# --- ids -------------------------------------------------------------------------------------------------------------

IDS = ['"1"', "1", '""', '"007"', '"a\\u00e9"', "0", "-1", "9007199254740993", "-9223372036854775809", "1" + "0" * 30]


@pytest.mark.parametrize("text", IDS)
def test_ids_keep_value_and_type(text: str) -> None:
    """C054: string ids that look like numbers became integers."""
    request = decode_one(f'{{"jsonrpc":"2.0","id":{text},"method":"ping"}}')
    assert isinstance(request, Request)
    expected = json.loads(text)
    assert request.id == expected
    assert type(request.id) is type(expected)
    echoed = json.loads(encode_message(Response(request.id, {})))["id"]
    assert (echoed, type(echoed)) == (expected, type(expected))


def test_ids_that_look_alike_are_different_keys() -> None:
    """C054: with id '1' and id 1 in flight together each finds its own."""
    texts = (f'{{"jsonrpc":"2.0","id":{id},"method":"ping"}}' for id in IDS)
    waiting = {message.id: message for message in map(decode_one, texts) if isinstance(message, Request)}
    assert len(waiting) == len(IDS)


@pytest.mark.parametrize("id", ["true", "false", "1.0", "1.5", "1e3", "[1]", "{}", "null"])
@pytest.mark.parametrize("rest", ['"method":"x"', '"result":1'])
def test_ids_of_other_types_are_malformed(id: str, rest: str) -> None:
    """M26-S-10, M26-C-12: also null, which makes no notification of a request."""
    with pytest.raises(ProtocolError, match=r"id is .*, expected a string or an integer") as caught:
        decode_message(f'{{"jsonrpc":"2.0","id":{id},{rest}}}')
    assert caught.value.code == INVALID_REQUEST
    assert caught.value.id is None


@pytest.mark.parametrize("id", ["true", "1.0", "[1]"])
def test_ids_of_other_types_are_malformed_in_errors_too(id: str) -> None:
    with pytest.raises(ProtocolError, match=r"id is .*, expected a string, an integer or null"):
        decode_message(f'{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"m"}}}}')


def test_what_can_be_an_id() -> None:
    assert all(map(is_request_id, ["", "1", 0, -1, 2**70]))
    assert not any(map(is_request_id, [None, True, False, 1.0, [1], b"1", UNSET]))


# --- what is malformed -----------------------------------------------------------------------------------------------

NOT_JSON = {
    "empty": b"",
    "cut off": b"{",
    "half a word": b"nul",
    "legacy encoding": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\x97"}}',
    "byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "100,000 arrays": b"[" * 100_000,
    "100,000 objects": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 100_000,
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    "lone surrogate": b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
}


@pytest.mark.parametrize("data", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_what_is_not_json_is_a_parse_error(data: bytes) -> None:
    """C058, M26-S-06, M26-S-09."""
    with pytest.raises(ProtocolError) as caught:
        decode_message(data)
    assert caught.value.code == PARSE_ERROR
    assert caught.value.id is None


def test_nesting_over_the_limit_is_a_parse_error_that_names_it() -> None:
    def request(levels: int) -> bytes:
        return b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * levels + b"]" * levels + b"}"

    assert isinstance(decode_message(request(199)), Request)
    with pytest.raises(ProtocolError, match="200 levels") as caught:
        decode_message(request(200))
    assert caught.value.code == PARSE_ERROR


# The text, what the error says, and the id it carries.
MALFORMED = [
    ("{}", "jsonrpc", None),
    ("5", "message is a number", None),
    ("null", "message is null", None),
    ("true", "message is a boolean", None),
    ('"x"', "message is a string", None),
    ("[]", "batch is empty", None),
    ('{"id":1,"method":"x"}', "jsonrpc", 1),
    ('{"jsonrpc":"1.0","id":1,"method":"x"}', "jsonrpc", 1),
    ('{"jsonrpc":2.0,"id":1,"method":"x"}', "jsonrpc", 1),
    ('{"jsonrpc":["2.0"],"id":"a","method":"x"}', "jsonrpc", "a"),
    ('{"jsonrpc":"2.0"}', "no method, result or error", None),
    ('{"jsonrpc":"2.0","id":1}', "no method, result or error", 1),
    ('{"jsonrpc":"2.0","id":1,"params":{}}', "no method, result or error", 1),
    ('{"jsonrpc":"2.0","id":1,"method":5}', "method is a number", 1),
    ('{"jsonrpc":"2.0","id":1,"method":null}', "method is null", 1),
    ('{"jsonrpc":"2.0","method":["x"]}', "method is an array", None),
    ('{"jsonrpc":"2.0","id":"i","method":"x","params":"s3cret"}', "params is a string", "i"),
    ('{"jsonrpc":"2.0","id":1,"method":"x","params":0}', "params is a number", 1),
    ('{"jsonrpc":"2.0","method":"x","params":false}', "params is a boolean", None),
    ('{"jsonrpc":"2.0","id":1,"method":"x","result":1}', "a method and a result or error", 1),
    ('{"jsonrpc":"2.0","id":1,"method":"x","error":{"code":1,"message":"m"}}', "a method and a result or error", 1),
    ('{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"m"}}', "a result and an error", 1),
    ('{"jsonrpc":"2.0","id":1,"result":1,"error":null}', "a result and an error", 1),
    ('{"jsonrpc":"2.0","result":1}', "id is absent", None),
    ('{"jsonrpc":"2.0","id":1,"error":null}', "error is null", 1),
    ('{"jsonrpc":"2.0","id":1,"error":"s3cret"}', "error is a string", 1),
    ('{"jsonrpc":"2.0","id":1,"error":{}}', "code of the error", 1),
    ('{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":"m"}}', "code of the error", 1),
    ('{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":"m"}}', "code of the error", 1),
    ('{"jsonrpc":"2.0","id":1,"error":{"code":1.0,"message":"m"}}', "code of the error", 1),
    ('{"jsonrpc":"2.0","id":1,"error":{"code":1}}', "message of the error", 1),
    ('{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":null}}', "message of the error", 1),
    ('{"jsonrpc":"2.0","id":true,"method":5}', "method is a number", None),
]


@pytest.mark.parametrize(("text", "what", "id"), MALFORMED, ids=[text for text, _, _ in MALFORMED])
def test_json_of_the_wrong_shape_is_an_invalid_request(text: str, what: str, id: Any) -> None:
    """C058, M26-S-06: the error says what is wrong, and carries the id where one could be read."""
    with pytest.raises(ProtocolError, match=what) as caught:
        decode_message(text)
    assert caught.value.code == INVALID_REQUEST
    assert caught.value.id == id
    assert type(caught.value.id) is type(id)
    assert "s3cret" not in str(caught.value)


# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_batch_is_a_list_of_messages_in_order() -> None:
    """L03-B-01."""
    messages = [message for _, message in PAIRS]
    assert decode_message("[" + ",".join(text for text, _ in PAIRS) + "]") == messages
    assert decode_message(encode_message(messages)) == messages
    assert decode_message(encode_message(tuple(messages[:1]))) == messages[:1]


def test_a_bad_member_of_a_batch_is_an_error_in_its_place() -> None:
    """JSON-RPC 2.0, section 6: each bad member is owed an error of its own, while the others are served."""
    batch = decode_message('[1,{"jsonrpc":"2.0","method":"n"},{},{"jsonrpc":"2.0","id":5,"method":1},[],null]')
    assert isinstance(batch, list)
    assert batch[1] == Notification("n")
    errors = [member for member in batch if isinstance(member, ProtocolError)]
    assert [(error.code, error.id) for error in errors] == [
        (INVALID_REQUEST, None),
        (INVALID_REQUEST, None),
        (INVALID_REQUEST, 5),
        (INVALID_REQUEST, None),
        (INVALID_REQUEST, None),
    ]
    assert all(error.__traceback__ is None for error in errors)


def test_batches_are_bounded_both_ways() -> None:
    note = Notification("n")
    full = [note] * MAX_BATCH
    assert decode_message(encode_message(full)) == full
    over = b"[" + b",".join([b"0"] * (MAX_BATCH + 1)) + b"]"
    with pytest.raises(ProtocolError, match="batch holds 1001 members, limit is 1000") as caught:
        decode_message(over)
    assert caught.value.code == INVALID_REQUEST
    with pytest.raises(ProtocolError, match="batch holds 1001 members, limit is 1000"):
        encode_message([*full, note])
    with pytest.raises(ProtocolError, match="batch is empty"):
        encode_message([])


# --- what is refused in writing --------------------------------------------------------------------------------------

UNSENDABLE: list[tuple[Any, str, Any]] = [
    (Request(True, "x"), "id is bool", None),
    (Request(1.0, "x"), "id is float", None),  # type: ignore[arg-type]
    (Request(None, "x"), "id is NoneType", None),  # type: ignore[arg-type]
    (Request(1, 5), "method is int", 1),  # type: ignore[arg-type]
    (Request(1, "x", "s3cret"), "params is str", 1),  # type: ignore[arg-type]
    (Request(1, "\ud800"), "surrogates", 1),
    (Request("\ud800", "x"), "surrogates", "\ud800"),
    (Notification(None), "method is NoneType", None),  # type: ignore[arg-type]
    (Notification("x", 5), "params is int", None),  # type: ignore[arg-type]
    (Notification("x", {"a": math.nan}), "NaN", None),
    (Response(None, 1), "id is NoneType", None),  # type: ignore[arg-type]
    (Response(False, 1), "id is bool", None),
    (Response("r", [object()]), "cannot be written as JSON", "r"),
    (Response(1, {"a": math.inf}), "NaN or infinity", 1),
    (ErrorResponse(True, 1, "m"), "id is bool", None),
    (ErrorResponse(1, True, "m"), "code is bool", 1),
    (ErrorResponse(1, "1", "m"), "code is str", 1),  # type: ignore[arg-type]
    (ErrorResponse(1, 1, None), "message is NoneType", 1),  # type: ignore[arg-type]
    (ErrorResponse(1, 1, "m", {1: 2}), "key must be str", 1),
]


@pytest.mark.parametrize(("message", "what", "id"), UNSENDABLE, ids=[repr(message) for message, _, _ in UNSENDABLE])
def test_messages_with_wrong_members_are_refused(message: Any, what: str, id: Any) -> None:
    """The code is that of an internal error, and the id is there, so that a server can answer with them."""
    with pytest.raises(ProtocolError, match=what) as caught:
        encode_message(message)
    assert caught.value.code == INTERNAL_ERROR
    assert caught.value.id == id
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ProtocolError, match=what):
        encode_message([Notification("n"), message])


def test_a_result_nested_over_the_limit_is_refused() -> None:
    value: Any = 1
    for _ in range(199):
        value = [value]
    assert decode_message(encode_response(1, value)) == Response(1, value)
    with pytest.raises(ProtocolError, match="200 levels") as caught:
        encode_response(1, [value])
    assert caught.value.id == 1


@pytest.mark.parametrize("wrong", [None, 5, "ping", {"jsonrpc": "2.0"}, [5], ProtocolError("x")])
def test_what_is_no_message_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="no JSON-RPC message"):
        encode_message(wrong)


# --- properties ------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
ID = TEXT | st.integers()
PARAMS = st.just(UNSET) | st.none() | st.dictionaries(TEXT, VALUES, max_size=4) | st.lists(VALUES, max_size=4)
MESSAGES = st.one_of(
    st.builds(Request, ID, TEXT, PARAMS),
    st.builds(Notification, TEXT, PARAMS),
    st.builds(Response, ID, VALUES),
    st.builds(ErrorResponse, ID | st.none(), st.integers(), TEXT, VALUES | st.just(UNSET)),
)


@settings(max_examples=200, deadline=None)
@given(MESSAGES | st.lists(MESSAGES, min_size=1, max_size=4))
def test_what_is_written_is_read_back_the_same(message: Any) -> None:
    data = encode_message(message)
    again = decode_message(data)
    # repr tells 1, 1.0, True and -0.0 apart, which equality does not.
    assert again == message
    assert repr(again) == repr(message)
    assert b"\n" not in data
    assert b"\r" not in data


MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", 2.0, None]),
        "id": ID | VALUES,
        "method": TEXT | VALUES,
        "params": PARAMS.filter(lambda params: params is not UNSET) | VALUES,
        "result": VALUES,
        "error": VALUES | st.fixed_dictionaries({"code": st.integers() | VALUES, "message": TEXT | VALUES}),
    },
)


@settings(max_examples=150, deadline=None)
@given(MEMBERS | st.lists(MEMBERS | VALUES, max_size=4))
def test_every_json_value_is_a_message_or_a_protocol_error(value: Any) -> None:
    try:
        decoded = decode_message(json.dumps(value))
    except ProtocolError:
        return
    for member in decoded if isinstance(decoded, list) else [decoded]:
        if not isinstance(member, ProtocolError):
            assert decode_message(encode_message(member)) == member


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=100), MESSAGES, st.integers(0, 200))
def test_hostile_bytes_are_a_message_or_a_protocol_error(junk: bytes, message: Message, at: int) -> None:
    data = encode_message(message)
    for hostile in (junk, data[:at] + junk + data[at:], data[:at] + junk, junk + data):
        try:
            decode_message(hostile)
        except ProtocolError as error:
            assert error.code in {PARSE_ERROR, INVALID_REQUEST}  # noqa: PT017 -- most inputs are fine either way
