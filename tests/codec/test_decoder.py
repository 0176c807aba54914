"""What the decoder makes of streams. C... are casebook ids, A... rows of the reference transports."""

from __future__ import annotations

import pytest

from mcpfast.errors import EventTooLarge, MalformedLine

from .conftest import Codec
from .streams import BOM, bytewise, cut, data_of, decode, events_of, every_two

# ---- lines ----------------------------------------------------------------------------------------------


def test_only_cr_lf_and_crlf_end_a_line(codec: Codec) -> None:
    """C001: a client that split at every Unicode line boundary cut a JSON string at U+2028."""
    text = '{"t":"a\u2028b\u2029c\u0085d\ve\ff\x1cg"}'
    stream = b"event: message\ndata: " + text.encode() + b"\n\n"
    assert data_of(codec, [stream]) == [text]
    assert data_of(codec, bytewise(stream)) == [text]


def test_crlf_cut_between_cr_and_lf_is_one_line_end(codec: Codec) -> None:
    """C002: the LF of a cut CRLF was seen as a further, blank line, and the event came out too early."""
    assert data_of(codec, [b"data: one\r\ndata: two\r", b"\ndata: three\r\n\r", b"\n"]) == ["one\ntwo\nthree"]
    for chunks in every_two(b"data: p\r\ndata: q\r\n\r\ndata: r\r\n\r\n"):
        assert data_of(codec, chunks) == ["p\nq", "r"]


def test_lone_cr_ends_its_line_at_once(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    assert decoder.feed(b"data: a\r") == []
    assert [event.data for event in decoder.feed(b"\r")] == ["a"]
    assert [event.data for event in decoder.feed(b"\ndata: b\r\r")] == ["b"]


def test_lone_cr_at_chunk_end_does_not_dispatch_twice(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    events = decoder.feed(b"data: a\r\n\r")
    events += decoder.feed(b"")
    events += decoder.feed(b"\ndata: b\n\n")
    assert [event.data for event in events] == ["a", "b"]


def test_only_one_lf_after_a_cr_is_swallowed(codec: Codec) -> None:
    assert data_of(codec, [b"data: a\r", b"\n", b"\n", b"data: b\n\n"]) == ["a", "b"]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 57, 58, 59, 250, 5000])
def test_lines_of_every_size_end_where_they_should(codec: Codec, end: bytes, size: int) -> None:
    payload = b"\t" * size  # a tab is nearer to CR than other text
    stream = b"data: " + payload + end + b"data:" + payload + b"x" + end + end
    want = [f"{payload.decode()}\n{payload.decode()}x"]
    assert data_of(codec, [stream]) == want
    assert data_of(codec, cut(stream, range(0, len(stream), 7))) == want


@pytest.mark.parametrize("size", [0, 1, 100, 1000, 1024, 1025, 3000, 70_000])
@pytest.mark.parametrize("lines", [1, 2, 3])
@pytest.mark.parametrize("accent", [None, 0, 1, -1], ids=["ascii", "first", "second", "last"])
def test_payloads_of_every_kind_are_whole(codec: Codec, size: int, lines: int, accent: int | None) -> None:
    """In one chunk and spread over many; ASCII, and with the one other letter in this or that place."""
    texts = ["x" * size + str(number) for number in range(lines)]
    if accent is not None:
        place = min(accent, lines - 1)
        texts[place] += "\u00e9"
    stream = "".join(f"data: {text}\n" for text in texts).encode() + b"\ndata: next\n\n"
    want = ["\n".join(texts), "next"]
    for chunks in ([stream], cut(stream, range(0, len(stream), 999)), cut(stream, [3, 7, len(stream) - 20])):
        decoder = codec.SSEDecoder()
        events = [event for chunk in chunks for event in decoder.feed(chunk)]
        assert [event.data for event in events] == want
        assert [event.data_bytes.decode() for event in events] == want


# ---- BOM and UTF-8 --------------------------------------------------------------------------------------


def test_bom_is_dropped_once_wherever_it_is_cut(codec: Codec) -> None:
    """C005: the mark stuck to the first field name, and the first event was lost."""
    stream = BOM + b"data: first\n\ndata: second\n\n"
    assert data_of(codec, [b"\xef", b"\xbb", b"\xbfdata: first\n\ndata: second\n\n"]) == ["first", "second"]
    for chunks in [[stream], bytewise(stream), *every_two(stream)]:
        assert data_of(codec, chunks) == ["first", "second"]
    assert data_of(codec, [BOM + stream]) == ["second"]


@pytest.mark.parametrize("start", [b"\xef", b"\xef\xbb", b"\xef\xbbx", b"\xbb\xbf", b"\xef\xef\xbb\xbf"])
def test_half_a_bom_is_part_of_the_first_line(codec: Codec, start: bytes) -> None:
    for chunks in ([start + b"data: a\n\ndata: b\n\n"], bytewise(start + b"data: a\n\ndata: b\n\n")):
        assert data_of(codec, chunks) == ["b"]


def test_bom_inside_data_is_kept(codec: Codec) -> None:
    assert data_of(codec, [b"data: \xef\xbb\xbfx\n\n"]) == ["\ufeffx"]


def test_characters_cut_between_chunks_are_whole(codec: Codec) -> None:
    """C014: each chunk was decoded on its own, and half a letter raised."""
    assert data_of(codec, [b"data: Cr\xc3", b"\xa8me\n\n"]) == ["Cr\u00e8me"]
    assert data_of(codec, bytewise("data: \u4f60\u597d \U0001f600\n\n".encode())) == ["\u4f60\u597d \U0001f600"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"a\xe2\x82b", "a\ufffdb"),  # a cut-off sequence is one mark
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),  # a surrogate is no sequence at all: one mark a byte
        (b"\xc0\xaf", "\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xe2\x82\nA", "\ufffd\nA"),
    ],
)
def test_bad_utf8_is_replaced_as_whatwg_has_it(codec: Codec, raw: bytes, text: str) -> None:
    stream = b"data: " + raw.replace(b"\n", b"\ndata: ") + b"\n\n"
    decoder = codec.SSEDecoder()
    (event,) = decoder.feed(stream)
    assert event.data == text
    assert event.data_bytes == raw


def test_bad_utf8_in_event_and_id_is_replaced(codec: Codec) -> None:
    (event,) = events_of(codec, b"event: \xff\nid: \xe2\x82\ndata\n\n")
    assert (event.event, event.id) == ("\ufffd", "\ufffd")


# ---- fields ---------------------------------------------------------------------------------------------


def test_at_most_one_space_after_the_colon_is_removed(codec: Codec) -> None:
    """C010: trimming white space lost the spaces of indented text."""
    stream = b"data:  two \ndata:\ttab\ndata:none\ndata: \ndata\n\n"
    assert data_of(codec, [stream]) == [" two \n\ttab\nnone\n\n"]


def test_id_with_nul_is_ignored_as_a_whole(codec: Codec) -> None:
    """C011: such a line wiped the id that the block had set before."""
    events = events_of(codec, b"id: k1\nid: k\x002\ndata: hello\n\ndata: again\n\n")
    assert [event.id for event in events] == ["k1", "k1"]


def test_blocks_without_data_dispatch_nothing_but_set_id_and_retry(codec: Codec) -> None:
    """C008: a lone retry made an empty event, which failed as JSON."""
    decoder = codec.SSEDecoder()
    (event,) = decoder.feed(b"retry: 2500\n\nid: 4\n\nevent: x\n\n: ping\n\ndata: {}\n\n")
    assert (event.event, event.data, event.id, event.retry) == ("message", "{}", "4", None)
    assert (decoder.last_event_id, decoder.retry) == ("4", 2500)


def test_priming_event_is_an_event(codec: Codec) -> None:
    """C028: the first event of a resumable stream has an id and empty data."""
    first, second = events_of(codec, b"id: s1_0\ndata: \n\nid: s1_1\nevent: message\ndata: {}\n\n")
    assert (first.data, first.id) == ("", "s1_0")
    assert (second.data, second.id) == ("{}", "s1_1")


def test_data_is_joined_whatever_stands_between(codec: Codec) -> None:
    """A2: only data lines next to each other were joined."""
    stream = b"data: a\nfoo: bar\n: comment\nid: 1\ndata: b\nevent: e\nunknown\ndata: c\n\n"
    for chunks in ([stream], bytewise(stream)):
        assert data_of(codec, chunks) == ["a\nb\nc"]


def test_retry_of_an_event_is_of_its_own_block(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    events = decoder.feed(b"retry: 10\ndata: a\n\ndata: b\n\nretry: 7\nretry: 8\nretry: x\ndata: c\n\n")
    assert [event.retry for event in events] == [10, None, 8]
    assert decoder.retry == 8


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"9223372036854775807", 2**63 - 1),
        (b"9223372036854775808", 2**63 - 1),
        (b"000000000000000000000000000012", 12),
        (b"9" * 100_000, 2**63 - 1),
        *((bogus, None) for bogus in (b"", b"+5", b"-3", b"1_0", b"1.0", b" 1", b"1 ", b"0x1", b"\xd9\xa1", b"1\0")),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else None,
)
def test_retry_takes_ascii_digits_alone_and_saturates(codec: Codec, value: bytes, milliseconds: int | None) -> None:
    decoder = codec.SSEDecoder()
    (event,) = decoder.feed(b"retry: " + value + b"\ndata\n\n")
    assert event.retry == decoder.retry == milliseconds


def test_retry_takes_effect_when_its_line_ends(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    decoder.feed(b"retry: 12")
    assert decoder.retry is None
    decoder.feed(b"34\n")
    assert decoder.retry == 1234


def test_last_event_id_is_set_by_the_blank_line(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    decoder.feed(b"id: 1\ndata: x\n")
    assert decoder.last_event_id == ""
    decoder.feed(b"\n")
    assert decoder.last_event_id == "1"


# ---- the end of the stream ------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [b"event: done\ndata: 2", b"data: 2\n", b"data: 2\r", b"d"])
def test_cut_off_event_is_dropped(codec: Codec, rest: bytes) -> None:
    """C007: the standard drops an event whose blank line never came."""
    assert data_of(codec, [b"data: 1\n\n" + rest]) == ["1"]


def test_cut_off_event_is_returned_if_asked_for(codec: Codec) -> None:
    """A5: the reference handed out an unfinished event at the end of input; here on request."""
    decoder = codec.SSEDecoder()
    assert decoder.feed(b"id: 9\nevent: done\nretry: 3\ndata: 1\ndata: 2") == []
    (event,) = decoder.close(flush=True)
    assert (event.event, event.data, event.id, event.retry) == ("done", "1\n2", "9", 3)
    assert decoder.last_event_id == "9"


@pytest.mark.parametrize("rest", [b"", b"data: x\n\n", b": c", b"id: 3\n", b"event: e"])
def test_flush_returns_nothing_where_there_is_no_data(codec: Codec, rest: bytes) -> None:
    decoder = codec.SSEDecoder()
    decoder.feed(rest)
    assert decoder.close(flush=True) == []


def test_cut_off_block_counts_for_nothing(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    decoder.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n")
    decoder.close()
    assert decoder.last_event_id == "1"
    decoder.reset()
    (event,) = decoder.feed(b"data: c\n\n")
    assert event.id == "1"


def test_closed_decoder_refuses_input_until_reset(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    decoder.close()
    assert decoder.close() == []
    assert decoder.close(flush=True) == []
    with pytest.raises(RuntimeError, match=r"^decoder is closed$"):
        decoder.feed(b"data: x\n\n")
    decoder.reset()
    assert [event.data for event in decoder.feed(b"data: x\n\n")] == ["x"]


def test_reset_begins_a_new_stream_and_keeps_id_and_retry(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    decoder.feed(b"id: 5\nretry: 10\n\nid: 6\nevent: gone\ndata: gone\nda")
    decoder.reset()
    assert (decoder.last_event_id, decoder.retry) == ("5", 10)
    (event,) = decoder.feed(BOM + b"data: x\n\n")
    assert (event.event, event.data, event.id, event.retry) == ("message", "x", "5", None)


def test_reset_after_a_cr_does_not_swallow_the_next_streams_lf(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    decoder.feed(b"data: a\r")
    decoder.reset()
    assert decoder.feed(b"data: b\n") == []
    assert [event.data for event in decoder.feed(b"\n")] == ["b"]


def test_state_before_anything_came(codec: Codec) -> None:
    decoder = codec.SSEDecoder()
    assert (decoder.last_event_id, decoder.retry) == ("", None)
    assert decoder.feed(b"") == []
    assert decoder.close() == []


# ---- strict ---------------------------------------------------------------------------------------------


def test_line_without_colon_is_an_error_only_if_strict(codec: Codec) -> None:
    """A4: the reference ended the stream with an error that quoted the line; the standard ignores it."""
    stream = b"data: 1\n\njust text\ndata: 2\n\n"
    assert data_of(codec, [stream]) == ["1", "2"]
    for chunks in [[stream], bytewise(stream), *every_two(stream)]:
        outcome = decode(codec.SSEDecoder(strict=True), chunks)
        assert [event.data for event in outcome.events] == ["1"]
        assert outcome.error == ("MalformedLine", (b"just text",))


@pytest.mark.parametrize("line", [b"data", b"event", b"id", b"retry", b":", b"foo:", b" : x", b"foo: bar"])
def test_strict_takes_field_names_comments_and_unknown_fields(codec: Codec, line: bytes) -> None:
    assert decode(codec.SSEDecoder(strict=True), [line + b"\ndata: x\n\n"]).error is None


@pytest.mark.parametrize("line", [b"Data", b" data", b"data ", b"d", b"datax", b"\0", BOM[:2], b"x" * 500])
def test_strict_refuses_every_other_line_and_quotes_its_start(codec: Codec, line: bytes) -> None:
    for chunks in ([line + b"\n"], bytewise(line + b"\n")):
        assert decode(codec.SSEDecoder(strict=True), chunks).error == ("MalformedLine", (line[:64],))


def test_strict_judges_a_cut_off_line_only_if_it_is_flushed(codec: Codec) -> None:
    assert decode(codec.SSEDecoder(strict=True), [b"data: x\nga"]).error is None
    assert decode(codec.SSEDecoder(strict=True), [b"data: x\nga"], flush=True).error == ("MalformedLine", (b"ga",))


# ---- the limit ------------------------------------------------------------------------------------------


def test_events_before_an_over_long_one_are_delivered(codec: Codec) -> None:
    """A3: an over-long line ends the stream with an error that names the limit; here of the event."""
    stream = b"data: a\n\ndata: b\n\ndata: " + b"x" * 100 + b"\n\ndata: never\n\n"
    for chunks in [[stream], bytewise(stream), *every_two(stream)]:
        outcome = decode(codec.SSEDecoder(max_event_bytes=50), chunks)
        assert [event.data for event in outcome.events] == ["a", "b"]
        assert outcome.error == ("EventTooLarge", (51, 50))


def test_fault_is_raised_by_the_next_call_and_by_all_until_reset(codec: Codec) -> None:
    decoder = codec.SSEDecoder(max_event_bytes=20)
    assert [event.data for event in decoder.feed(b"id: 1\ndata: a\n\ndata: " + b"x" * 30)] == ["a"]
    for call in (decoder.feed, decoder.feed, lambda _: decoder.close(), decoder.feed):
        with pytest.raises(EventTooLarge, match=r"^event holds 21 bytes, limit is 20$") as caught:
            call(b"\n\ndata: b\n\n")
        assert (caught.value.size, caught.value.limit) == (21, 20)
    assert decoder.last_event_id == "1"
    decoder.reset()
    assert [event.data for event in decoder.feed(b"data: c\n\n")] == ["c"]


def test_each_raise_is_an_error_of_its_own(codec: Codec) -> None:
    """One error object raised again and again would collect tracebacks, and with them the caller's frames."""
    decoder = codec.SSEDecoder(strict=True)
    decoder.feed(b"oops\n")
    errors = []
    for _ in range(2):
        with pytest.raises(MalformedLine) as caught:
            decoder.feed(b"")
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert errors[0].__context__ is None


@pytest.mark.parametrize(
    "stream",
    [
        b"data: 78901",  # the line being read
        b"data:67890\ndata:x",  # and the data joined before it
        b"data:6\ndata:678\ndata:x",
        b"data\n" * 8 + b"data",  # empty lines count by the LF between them
        b": 345678901",  # comments
        b"data:67890\n: 5678",
        b"event: 8901",
        b"id: 5678901",
        b"unknown8901",
    ],
)
def test_limit_counts_joined_data_and_the_line_being_read(codec: Codec, stream: bytes) -> None:
    for chunks in ([stream], [stream + b"\n\n"], bytewise(stream)):
        assert decode(codec.SSEDecoder(max_event_bytes=10), chunks).error == ("EventTooLarge", (11, 10))
    for chunks in ([stream[:-1]], [stream[:-1] + b"\n\n"], bytewise(stream[:-1])):
        assert decode(codec.SSEDecoder(max_event_bytes=10), chunks).error is None


def test_limit_starts_anew_with_each_event(codec: Codec) -> None:
    stream = b"data: 7890\n\n" * 1000
    for chunks in ([stream], cut(stream, range(0, len(stream), 5))):
        assert len(decode(codec.SSEDecoder(max_event_bytes=10), chunks).events) == 1000


def test_bom_does_not_count(codec: Codec) -> None:
    for chunks in ([BOM + b"data: 7890\n\n"], bytewise(BOM + b"data: 7890\n\n")):
        assert decode(codec.SSEDecoder(max_event_bytes=10), chunks).error is None


def test_default_limit_is_16_mib(codec: Codec) -> None:
    """C016: events over 64 KiB and over 1 MiB are fine; what is refused is refused by a documented limit."""
    size = 16 << 20
    assert len(codec.SSEDecoder().feed(b"data: " + b"x" * (size - 6) + b"\n\n")) == 1
    assert decode(codec.SSEDecoder(), [b"data: " + b"x" * (size - 5)]).error == ("EventTooLarge", (size + 1, size))


@pytest.mark.parametrize("value", [0, -1, 2**63])
def test_limit_out_of_range_is_refused(codec: Codec, value: int) -> None:
    with pytest.raises(ValueError, match=rf"^max_event_bytes is {value}, allowed are 1 to"):
        codec.SSEDecoder(max_event_bytes=value)


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_limit_of_another_type_is_refused(codec: Codec, value: object) -> None:
    with pytest.raises(TypeError, match=r"^max_event_bytes must be int, got"):
        codec.SSEDecoder(max_event_bytes=value)
