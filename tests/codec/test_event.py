"""The event as a value: equal, hashed, copied, printed and pickled alike, whichever implementation made it."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

from .conftest import NAMES, Codec

FIELDS = [
    {},
    {"event": "e", "data": "d\nx", "id": "i", "retry": 5},
    {"data": "é\u2028😀"},
    {"data": "\ud800"},
    {"retry": 0},
]


def decoded(codec: Codec, stream: bytes) -> Any:
    (event,) = codec.SSEDecoder().feed(stream)
    return event


def test_defaults(codec: Codec) -> None:
    event = codec.ServerSentEvent()
    assert (event.event, event.data, event.id, event.retry) == ("message", "", "", None)
    assert event.data_bytes == b""
    assert event.encode() == b"data: \n\n"


def test_fields_are_positional_in_their_order(codec: Codec) -> None:
    event = codec.ServerSentEvent("e", "d", "i", 3)
    assert (event.event, event.data, event.id, event.retry) == ("e", "d", "i", 3)
    match event:
        case codec.ServerSentEvent("e", "d", last_id, retry):
            assert (last_id, retry) == ("i", 3)
        case _:
            pytest.fail("the event does not match by position")


def test_empty_type_means_message(codec: Codec) -> None:
    """WHATWG HTML 9.2.6: only an event type buffer that is not empty names the type."""
    assert codec.ServerSentEvent("").event == "message"


def test_encode_leaves_out_defaults(codec: Codec) -> None:
    assert codec.ServerSentEvent("message", "x", "", None).encode() == b"data: x\n\n"
    assert codec.ServerSentEvent("e", "x", "1", 0).encode() == b"event: e\nid: 1\nretry: 0\ndata: x\n\n"


def test_data_bytes_are_the_payload_as_it_came(codec: Codec) -> None:
    event = decoded(codec, b"data: a\xff\r\ndata: b\r\n\r\n")
    assert event.data_bytes == b"a\xff\nb"
    assert event.data == "a\ufffd\nb"
    assert event.encode() == b"data: a\xff\ndata: b\n\n"
    assert codec.ServerSentEvent(data="é").data_bytes == "é".encode()


def test_data_and_data_bytes_are_made_once(codec: Codec) -> None:
    event = decoded(codec, b"data: some text\n\n")
    assert event.data is event.data
    assert event.data_bytes is event.data_bytes
    event = codec.ServerSentEvent(data="some text")
    assert event.data_bytes is event.data_bytes


def test_json(codec: Codec) -> None:
    assert decoded(codec, b'data: {"a":\ndata: [1, 2.5, null]}\n\n').json() == {"a": [1, 2.5, None]}
    assert codec.ServerSentEvent(data='"é"').json() == "é"
    assert decoded(codec, b"data: 18446744073709551616123\n\n").json() == 18446744073709551616123


@pytest.mark.parametrize("payload", [b"", b"{", b"nonsense", b'"\xff"'])
def test_json_of_what_is_none_is_a_value_error(codec: Codec, payload: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- the JSON reader words it
        decoded(codec, b"data: " + payload + b"\n\n").json()


def test_text_with_a_lone_surrogate_has_no_bytes(codec: Codec) -> None:
    event = codec.ServerSentEvent(data="a\ud800")
    assert event.data == "a\ud800"
    with pytest.raises(ValueError, match=r"^data holds a lone surrogate at index 1, which has no UTF-8 form$"):
        _ = event.data_bytes


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((b"e",), TypeError, r"^event must be str, got bytes$"),
        (("e", b"d"), TypeError, r"^data must be str, got bytes$"),
        (("e", "d", 1), TypeError, r"^id must be str, got int$"),
        (("e", "d", None), TypeError, r"^id must be str, got NoneType$"),
        (("e", "d", "i", True), TypeError, r"^retry must be int or None, got bool$"),
        (("e", "d", "i", 1.5), TypeError, r"^retry must be int or None, got float$"),
        (("e", "d", "i", -1), ValueError, r"^retry is -1, allowed are 0 to"),
        (("e", "d", "i", 2**63), ValueError, r"^retry is 9223372036854775808, allowed are 0 to"),
    ],
)
def test_bad_fields_are_refused(codec: Codec, arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        codec.ServerSentEvent(*arguments)


def test_events_do_not_change(codec: Codec) -> None:
    event = codec.ServerSentEvent("e", "d", "i", 1)
    for name in ("event", "data", "id", "retry", "data_bytes", "other"):
        with pytest.raises(AttributeError):
            setattr(event, name, "x")
        with pytest.raises(AttributeError):
            delattr(event, name)
    assert event == codec.ServerSentEvent("e", "d", "i", 1)


def test_events_cannot_be_subclassed(codec: Codec) -> None:
    with pytest.raises(TypeError, match=r"type '.*ServerSentEvent' is not an acceptable base type"):
        type("Sub", (codec.ServerSentEvent,), {})


def test_equal_by_value_across_implementations(pair: tuple[Codec, Codec]) -> None:
    left, right = pair
    for fields in FIELDS:
        one, other = left.ServerSentEvent(**fields), right.ServerSentEvent(**fields)
        assert (one == other, one != other) == (True, False)
        assert hash(one) == hash(other)
        assert len({one, other}) == 1
        assert repr(one) == repr(other)
    made = [left.ServerSentEvent(**fields) for fields in FIELDS]
    for index, one in enumerate(made):
        for place, fields in enumerate(FIELDS):
            assert (one == right.ServerSentEvent(**fields)) is (index == place)
            assert (one != right.ServerSentEvent(**fields)) is (index != place)


def test_each_field_counts_in_a_comparison(pair: tuple[Codec, Codec]) -> None:
    left, right = pair
    base = {"event": "e", "data": "d", "id": "i", "retry": 1}
    for change in ({"event": "x"}, {"data": "x"}, {"id": "x"}, {"retry": 2}, {"retry": None}):
        assert left.ServerSentEvent(**base) != right.ServerSentEvent(**{**base, **change})


def test_decoded_and_built_events_are_equal(pair: tuple[Codec, Codec]) -> None:
    left, right = pair
    stream = "event: e\nid: i\nretry: 1\ndata: é\n\n".encode()
    assert decoded(left, stream) == right.ServerSentEvent("e", "é", "i", 1)
    assert decoded(left, stream) == decoded(right, stream)
    # By text: bytes that read as the same text make the same event.
    assert decoded(left, b"data: \xff\n\n") == decoded(right, b"data: \xfe\n\n")


def test_events_are_equal_to_nothing_else(codec: Codec) -> None:
    event = codec.ServerSentEvent()
    for other in (None, "", b"", ("message", "", "", None), object()):
        assert (event == other, event != other) == (False, True)


def test_repr_can_be_evaluated(codec: Codec) -> None:
    event = codec.ServerSentEvent("e'", 'd"\n', "i", 7)
    assert repr(event) == """ServerSentEvent(event="e'", data='d"\\n', id='i', retry=7)"""
    assert eval(repr(event), {"ServerSentEvent": codec.ServerSentEvent}) == event


def test_copies_are_the_event_itself(codec: Codec) -> None:
    event = decoded(codec, b"data: x\n\n")
    assert copy.copy(event) is event
    assert copy.deepcopy([event])[0] is event


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_build_the_local_class(codec: Codec, protocol: int) -> None:
    from mcpfast.codec import ServerSentEvent

    events = [codec.ServerSentEvent(**fields) for fields in FIELDS] + [decoded(codec, b"id: 1\ndata: \xff\n\n")]
    loaded = pickle.loads(pickle.dumps(events, protocol))
    assert loaded == events
    assert {type(event) for event in loaded} == {ServerSentEvent}
    assert loaded[-1].data_bytes == b"\xff"


def test_pickles_name_a_public_function_alone(codec: Codec) -> None:
    event = codec.ServerSentEvent("e", "d")
    function, arguments = event.__reduce__()
    assert (function.__module__, function.__qualname__) == ("mcpfast.codec", "build_event")
    assert arguments == ("e", "d", "", None)


@pytest.mark.parametrize("switch", ["1", "0"][: len(NAMES)])
def test_pickles_are_read_by_the_other_implementation(codec: Codec, switch: str) -> None:
    event = decoded(codec, b"event: e\nid: i\nretry: 9\ndata: x\xff\n\n")
    program = (
        "import pickle, sys\n"
        "from mcpfast.codec import IMPLEMENTATION, ServerSentEvent\n"
        "event = pickle.load(sys.stdin.buffer)\n"
        "assert type(event) is ServerSentEvent, type(event)\n"
        "print(IMPLEMENTATION, event, event.data_bytes)\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(event),
        env=environment(switch),
        capture_output=True,
        timeout=30,
    )
    assert shown.stderr == b""
    name = "python" if switch == "1" else "cython"
    assert shown.stdout.decode().split("\n")[0] == f"{name} {event!r} {event.data_bytes!r}"


def environment(switch: str) -> dict[str, str]:
    return {**os.environ, "MCPFAST_NO_EXTENSIONS": switch, "PYTHONIOENCODING": "utf-8"}
