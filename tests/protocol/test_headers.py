"""Media types, Accept (C050), session ids and field values."""

from __future__ import annotations

import pytest

from mcpfast.protocol.headers import is_field_value, is_json, is_session_id, parse_accept

SSE, JSON = "text/event-stream", "application/json"


@pytest.mark.parametrize(
    ("value", "json", "sse"),
    [
        (None, 1, 1),
        ("", 1, 1),
        ("*/*", 1, 1),
        ("application/*, text/*", 1, 1),
        ("application/json;q=0.9, text/event-stream;q=0.1", 0.9, 0.1),
        ("APPLICATION/JSON, Text/Event-Stream", 1, 1),
        ("application/json, text/event-stream;q=0", 1, 0),
        ("*/*;q=0.5, text/event-stream;q=0", 0.5, 0),
        ("text/*;q=0.3, text/event-stream ; q=0.7 ", 0, 0.7),
        ("text/plain", 0, 0),
        ('application/json;profile="a,b;q=0", text/event-stream', 1, 1),
        ("application/json;Q=1.000,text/event-stream;q=0.001", 1, 0.001),
        ("nonsense, application/json;q=2", 1, 0),
        ("text/html,application/xhtml+xml,*/*;q=0.8", 0.8, 0.8),
        ("*/json", 0, 0),
    ],
)
def test_accept_is_read_with_wildcards_weights_and_case(value: str | None, json: float, sse: float) -> None:
    """C050, RFC 9110 §12.5.1: the most specific range counts."""
    accept = parse_accept(value)
    assert (accept.quality(JSON), accept.quality(SSE)) == (json, sse)


def test_a_long_accept_header_is_read_in_linear_time() -> None:
    assert parse_accept('"' * 60_000).quality(JSON) == 0
    assert parse_accept("a/b," * 15_000 + "application/json").quality(JSON) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"application/json", True),
        (b"Application/JSON; charset=UTF-8", True),
        (b"application/json ;charset=latin-1", True),
        (b"application/jsonp", False),
        (b"application/json-seq", False),
        (b"text/json", False),
        (b"text/plain", False),
        (b"", False),
        (None, False),
    ],
)
def test_content_type_is_lenient_in_case_and_parameters(value: bytes | None, expected: bool) -> None:
    """A7."""
    assert is_json(value) is expected


@pytest.mark.parametrize("text", ["", "a b", "caf\u00e9", "a\n", "\x7f", "x" * 257])
def test_session_ids_are_visible_ascii_of_bounded_length(text: str) -> None:
    assert not is_session_id(text)
    assert is_session_id("!~0aZ-_")


def test_field_values_hold_no_control_characters() -> None:
    assert is_field_value(b"a\tb \xe9")
    assert not any(is_field_value(v) for v in (b"a\r", b"a\nb", b"\0", b" a", b"a\t", b"\x7f"))
