"""An event stream decoder that follows WHATWG HTML 9.2.5 and 9.2.6 to the letter, over a whole stream.

It shares nothing with mcpfast: it sees all bytes at once, decodes them as UTF-8 first, as the standard does,
and then goes through the lines in the standard's own words. Only the limit, which counts bytes, and strict
mode are ours.
"""

from __future__ import annotations

import dataclasses
import re

DEFAULT_LIMIT = 16 << 20
MAX_RETRY = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class Event:
    event: str
    data: str
    id: str
    retry: int | None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a decoder must make of a stream: the events, what follows them, and the state at the end."""

    events: list[Event]
    error: tuple[str, tuple[object, ...]] | None
    last_event_id: str
    retry: int | None


def decode(stream: bytes, *, limit: int = DEFAULT_LIMIT, strict: bool = False, flush: bool = False) -> Outcome:
    # "Streams must be decoded using the UTF-8 decode algorithm", which strips one BOM and replaces bad bytes.
    if stream.startswith(b"\xef\xbb\xbf"):
        stream = stream[3:]
    text = stream.decode("utf-8", errors="replace")
    # CR, LF and CRLF end a line. They are the same bytes before and after decoding, so lines pair up.
    raw_lines = re.split(rb"\r\n|\n|\r", stream)
    text_lines = re.split("\r\n|\n|\r", text)
    assert len(raw_lines) == len(text_lines)

    data_buffer = ""
    data_bytes = 0  # of the data buffer, without the LF at its end
    has_data = False
    event_type_buffer = ""
    last_event_id_buffer = ""
    last_event_id = ""
    block_retry: int | None = None
    retry: int | None = None
    events: list[Event] = []

    def outcome(error: tuple[str, tuple[object, ...]] | None) -> Outcome:
        return Outcome(events, error, last_event_id, retry)

    lines = list(zip(raw_lines, text_lines, strict=True))
    if flush:
        lines += [(b"", "")] * 2
    for number, (raw, line) in enumerate(lines):
        unfinished = number == len(raw_lines) - 1
        if len(raw) + data_bytes > limit:
            return outcome(("EventTooLarge", (limit + 1, limit)))
        if unfinished and not (flush and line):
            continue
        if line == "":
            # "Set the last event ID string of the event source to the value of the last event ID buffer."
            last_event_id = last_event_id_buffer
            # "If the data buffer is an empty string, set both to the empty string and return." Every data line
            # appends an LF, so the buffer is empty only if there was none.
            if has_data:
                assert data_buffer.endswith("\n")
                events.append(Event(event_type_buffer or "message", data_buffer[:-1], last_event_id, block_retry))
            data_buffer, data_bytes, has_data, event_type_buffer, block_retry = "", 0, False, "", None
            continue
        if line[0] == ":":
            continue
        if ":" in line:
            field, value = line.split(":", 1)
            if value[:1] == " ":
                value = value[1:]
        else:
            field, value = line, ""
            if strict and field not in ("data", "event", "id", "retry"):
                return outcome(("MalformedLine", (raw[:64],)))
        if field == "event":
            event_type_buffer = value
        elif field == "data":
            raw_value = raw[5:]
            if raw_value[:1] == b" ":
                raw_value = raw_value[1:]
            data_bytes += len(raw_value) + (1 if has_data else 0)
            data_buffer += value + "\n"
            has_data = True
        elif field == "id":
            if "\0" not in value:
                last_event_id_buffer = value
        elif field == "retry" and value and all(character in "0123456789" for character in value):
            digits = value.lstrip("0")
            block_retry = retry = MAX_RETRY if len(digits) > 19 else min(int(digits or "0"), MAX_RETRY)
    return outcome(None)
