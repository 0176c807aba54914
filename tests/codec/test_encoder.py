"""What the encoder writes and refuses. C... are casebook ids, A... rows of the reference transports."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import NAMES, Codec, load
from .streams import decode, events_of


@pytest.mark.parametrize(
    ("fields", "frame"),
    [
        ({"data": "x"}, b"data: x\n\n"),
        ({"data": b"x"}, b"data: x\n\n"),
        ({"data": ""}, b"data: \n\n"),
        ({"data": b""}, b"data: \n\n"),
        ({"data": "a\nb"}, b"data: a\ndata: b\n\n"),
        ({"data": "a\rb\r\nc\n\rd"}, b"data: a\ndata: b\ndata: c\ndata: \ndata: d\n\n"),
        ({"data": "\n"}, b"data: \ndata: \n\n"),
        ({"data": "\r\n"}, b"data: \ndata: \n\n"),
        ({"data": " x"}, b"data:  x\n\n"),
        ({"data": "é€😀"}, "data: é€😀\n\n".encode()),
        ({"data": b"\xff\xfe"}, b"data: \xff\xfe\n\n"),
        ({"event": "e"}, b"event: e\n\n"),
        ({"event": "message", "data": "x"}, b"event: message\ndata: x\n\n"),
        ({"event": ""}, b"event:\n\n"),
        ({"event": "é"}, "event: é\n\n".encode()),
        ({"id": ""}, b"id:\n\n"),
        ({"id": "7"}, b"id: 7\n\n"),
        ({"id": " 7"}, b"id:  7\n\n"),
        ({"retry": 0}, b"retry: 0\n\n"),
        ({"retry": 1234567890}, b"retry: 1234567890\n\n"),
        ({"retry": 2**63 - 1}, b"retry: 9223372036854775807\n\n"),
        ({}, b"\n"),
        ({"data": "d", "event": "e", "id": "i", "retry": 10}, b"event: e\nid: i\nretry: 10\ndata: d\n\n"),
    ],
    ids=repr,
)
def test_frame(codec: Codec, fields: dict[str, Any], frame: bytes) -> None:
    """A1: one buffer, ``event:`` and ``id:`` only if set, blank line last; data with line breaks is split."""
    assert codec.encode_event(**fields) == frame
    written: list[bytes] = []
    codec.EventWriter(written.append).send(**fields)
    assert written == [frame]


def test_all_fields_may_be_left_out_or_none(codec: Codec) -> None:
    assert codec.encode_event() == codec.encode_event(None, event=None, id=None, retry=None) == b"\n"


@pytest.mark.parametrize(
    "text", ["\n\n\n", "\n", "", " ", " lead", ":colon", "data: x", "\r", "\r\r", "a\r\nb", "\ufeffx", "\0"]
)
def test_every_text_comes_back_as_one_event(codec: Codec, text: str) -> None:
    """C021: a payload of line breaks alone came out empty."""
    (event,) = events_of(codec, codec.encode_event(text))
    assert event.data == text.replace("\r\n", "\n").replace("\r", "\n")


def test_each_line_has_a_field_of_its_own(codec: Codec) -> None:
    """C020: several lines under one label lost all but the first."""
    frame = codec.encode_event("first\n  second: x\n}")
    assert frame == b"data: first\ndata:   second: x\ndata: }\n\n"
    assert events_of(codec, frame)[0].data == "first\n  second: x\n}"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"event": "tick\nevent: forged"}, "event holds a line break at index 4, allowed is one line"),
        ({"event": "x\ry"}, "event holds a line break at index 1, allowed is one line"),
        ({"event": "\r\n"}, "event holds a line break at index 0, allowed is one line"),
        ({"id": "1\r\ndata: pwn"}, "id holds a line break at index 1, allowed is one line"),
        ({"id": "a\nb"}, "id holds a line break at index 1, allowed is one line"),
        ({"id": "a\0b"}, "id holds a NUL at index 1, receivers would ignore it"),
        ({"id": "é" * 100 + "\0"}, "id holds a NUL at index 100, receivers would ignore it"),
        ({"data": "a\ud800"}, "data holds a lone surrogate at index 1, which has no UTF-8 form"),
        ({"event": "\udfff"}, "event holds a lone surrogate at index 0, which has no UTF-8 form"),
        ({"id": "xy\udc80"}, "id holds a lone surrogate at index 2, which has no UTF-8 form"),
        ({"event": "\ud800\n"}, "event holds a line break at index 1, allowed is one line"),
        ({"retry": -1}, "retry is -1, allowed are 0 to 9223372036854775807 milliseconds"),
        ({"retry": 2**63}, "retry is 9223372036854775808, allowed are 0 to 9223372036854775807 milliseconds"),
        ({"retry": 1 << 20000}, "retry is an integer of 20001 bits, allowed are 0 to 9223372036854775807 milliseconds"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_would_forge_or_lose_is_refused(codec: Codec, fields: dict[str, Any], message: str) -> None:
    """C018: names and ids went to the stream unchecked, and could forge fields and events. A1: refused."""
    fields = {"data": "d", **fields}
    writer = codec.EventWriter(lambda piece: None, call_soon=lambda call: None)
    for call in (codec.encode_event, writer.send):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 -- the whole message is compared
            call(**fields)
        assert str(caught.value) == message
    assert writer.buffered == 0
    if "retry" not in fields:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            codec.ServerSentEvent(**fields).encode()
        assert str(caught.value) == message


def test_data_cannot_forge_either(codec: Codec) -> None:
    """C018: data was split at LF alone, so a CR ended the field."""
    (event,) = events_of(codec, codec.encode_event(b"a\rb\r\nc\revent: x\r\r"))
    assert (event.event, event.data) == ("message", "a\nb\nc\nevent: x\n\n")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"retry": True}, "retry must be int or None, got bool"),
        ({"retry": 1.0}, "retry must be int or None, got float"),
        ({"retry": "1"}, "retry must be int or None, got str"),
        ({"event": b"e"}, "event must be str, got bytes"),
        ({"id": 1}, "id must be str, got int"),
        ({"data": 1}, "data must be str, bytes-like or None, got int"),
        ({"data": {}}, "data must be str, bytes-like or None, got dict"),
    ],
    ids=repr,
)
def test_other_types_are_refused(codec: Codec, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        codec.encode_event(**fields)
    assert str(caught.value) == message


class Name(str, enum.Enum):
    TICK = "tick"


class Wait(enum.IntEnum):
    LONG = 5000


def test_subclasses_of_str_and_int_are_taken_by_value(codec: Codec) -> None:
    frame = codec.encode_event(Name.TICK, event=Name.TICK, id=Name.TICK, retry=Wait.LONG)
    assert frame == b"event: tick\nid: tick\nretry: 5000\ndata: tick\n\n"
    event = codec.ServerSentEvent(Name.TICK, Name.TICK, Name.TICK, Wait.LONG)
    assert event.encode() == frame
    assert [type(value) for value in (event.event, event.data, event.id, event.retry)] == [str, str, str, int]


@pytest.mark.parametrize(
    ("text", "comment"),
    [
        ("", b":\n"),
        ("x", b": x\n"),
        ("a\nb", b": a\n: b\n"),
        ("a\r\n\rb", b": a\n:\n: b\n"),
        (" é", ": \u0020é\n".encode()),
    ],
)
def test_comment(codec: Codec, text: str, comment: bytes) -> None:
    assert codec.encode_comment(text) == comment
    written: list[bytes] = []
    codec.EventWriter(written.append).comment(text)
    assert written == [comment]


def test_comment_without_text(codec: Codec) -> None:
    assert codec.encode_comment() == b":\n"


def test_comment_leaves_no_trace_in_the_middle_of_an_event(codec: Codec) -> None:
    stream = b"data: a\n" + codec.encode_comment("data: forged\r\rdata: too") + b"data: b\n\n"
    assert [event.data for event in events_of(codec, stream)] == ["a\nb"]


def test_comment_refuses_surrogates_and_other_types(codec: Codec) -> None:
    with pytest.raises(ValueError, match=r"^text holds a lone surrogate at index 1, which has no UTF-8 form$"):
        codec.encode_comment("a\ud800")
    with pytest.raises(TypeError, match=r"^text must be str, got bytes$"):
        codec.encode_comment(b"a")


@pytest.mark.parametrize("size", [15, 16, 17, 63, 64, 65, 127, 128, 129, 100_000])
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_line_ends_are_found_at_every_place(codec: Codec, size: int, end: str) -> None:
    for place in {0, 1, size // 2, size - 2, size - 1, size}:
        text = "x" * place + end + "y" * (size - place)
        assert codec.encode_event(text) == b"data: %b\ndata: %b\n\n" % (b"x" * place, b"y" * (size - place))


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))
ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"))
texts = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("\r\n :")))


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(event=names, data=texts, last_id=ids, retry=st.none() | st.integers(0, 2**63 - 1))
def test_decoding_what_was_encoded_gives_the_event_back(
    name: str, event: str, data: str, last_id: str, retry: int | None
) -> None:
    codec = load(name)
    sent = codec.ServerSentEvent(event, data, last_id, retry)
    decoder = codec.SSEDecoder()
    assert decoder.feed(sent.encode()) == [
        codec.ServerSentEvent(event, data.replace("\r\n", "\n").replace("\r", "\n"), last_id, retry)
    ]
    assert decoder.feed(codec.encode_event(data.encode(), event=event, id=last_id, retry=retry)) == [
        codec.ServerSentEvent(event, data.replace("\r\n", "\n").replace("\r", "\n"), last_id, retry)
    ]


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(payload=st.binary())
def test_bytes_that_are_no_utf8_pass_through(name: str, payload: bytes) -> None:
    codec = load(name)
    (event,) = codec.SSEDecoder().feed(codec.encode_event(payload))
    assert event.data_bytes == payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(text=texts)
def test_comments_never_make_an_event(name: str, text: str) -> None:
    codec = load(name)
    outcome = decode(codec.SSEDecoder(strict=True), [codec.encode_comment(text) + b"\n"])
    assert (outcome.events, outcome.error) == ([], None)
