"""The answer to one POST of Streamable HTTP: JSON as long as nothing was said, a stream from then on.

A stream begins with the first message that comes before the answer, or once the answer takes longer than a short
delay, so that proxies and clients see it is being worked on. Until then nothing is decided, and an answer that comes at
once is JSON with its proper status, in one write.

Source: MCP 2025-11-25, basic/transports §Sending Messages 5, 6; MCP 2026-07-28, basic/transports/streamable-http
§Sending Messages 6; RFC 9110 §12.5.1 (Accept).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from ..codec import encode_event
from ..errors import TransportClosed
from ..http.interface import HeaderList, Headers, Responder
from ..protocol.headers import EVENT_STREAM, JSON, parse_accept
from ..protocol.refusal import Refusal
from .options import Responses
from .patience import Waiting
from .shared import Shared
from .stream import STREAM_HEADERS, EventStream

__all__ = ["JSON_HEADERS", "NOT_ACCEPTABLE", "Answer", "Form", "Takes", "form_of", "read_accept"]

JSON_HEADERS = ((b"content-type", b"application/json"),)

NOT_ACCEPTABLE = Refusal(
    406, "not_acceptable", f"the answer is {JSON} or {EVENT_STREAM}, and Accept must take the one at hand"
)


class Takes(NamedTuple):
    """What a client takes as an answer."""

    json: bool
    stream: bool


class Form(Enum):
    """The forms an answer may have."""

    JSON = "json"
    STREAM = "stream"
    EITHER = "either"


def read_accept(headers: Headers) -> Takes:
    """Read the Accept fields of a request; without one the client takes everything (RFC 9110 §12.5.1)."""
    if len(headers.fields) != len(headers.raw):
        values = headers.getall("accept")
        return _read(", ".join(values).encode("latin-1") if values else None)
    return _read(headers.fields.get(b"accept"))


@lru_cache(maxsize=256)
def _read(value: bytes | None) -> Takes:
    accept = parse_accept(None if value is None else value.decode("latin-1"))
    return Takes(accept.quality(JSON) > 0, accept.quality(EVENT_STREAM) > 0)


def form_of(takes: Takes, responses: Responses) -> Form | None:
    """Return the form of answers that a client takes and the server is set to give; None: there is none."""
    if responses == "json" or not takes.stream:
        return Form.JSON if takes.json and responses != "sse" else None
    return Form.STREAM if responses == "sse" or not takes.json else Form.EITHER


class Answer:
    """One answer. It may be the connection of a session's stream too."""

    __slots__ = ("_form", "_responder", "_shared", "_waits_in", "on_closed", "stream")

    def __init__(self, shared: Shared, responder: Responder, form: Form) -> None:
        self._shared = shared
        self._responder = responder
        self._form = form
        self._waits_in: dict[Waiting, None] | None = None
        self.on_closed: Callable[[str], None] = _nothing
        """Called once, with the reason, when the stream ends after it had begun."""
        self.stream: EventStream | None = None
        """The stream, once it has begun."""

    @property
    def can_stream(self) -> bool:
        """Messages may come before the answer."""
        return self._form is not Form.JSON

    @property
    def is_behind(self) -> bool:
        """The reader is over the limit behind."""
        return self.stream is not None and self.stream.is_behind

    def wait(self) -> None:
        """Begin the stream by itself if the answer takes long, where it may be one."""
        if self._form is not Form.JSON and self.stream is None:
            self._waits_in = self._shared.patience.add(self)

    def begin(self, first: bytes = b"") -> None:
        """Begin the stream, with whole events."""
        self.forget()
        if self._responder.is_started or self._responder.is_disconnected:
            return
        shared = self._shared
        self.stream = EventStream(
            self._responder,
            shared.keepalive,
            shared.stats,
            self.on_closed,
            max_unsent_bytes=shared.options.max_unsent_bytes,
        )
        self.stream.start(first)

    def write(self, payload: bytes, event_id: str | None = None) -> None:
        """Send a message before the answer, without waiting."""
        if self.stream is None:
            self.begin(encode_event(payload, event="message", id=event_id))
            self._shared.stats.messages_out += 1
        else:
            self.stream.write(payload, event_id)

    async def send(self, payload: bytes) -> None:
        """Send a message before the answer, waiting while the reader is too far behind.

        Raises:
            TransportClosed: the client has left.
        """
        if self.stream is not None:
            await self.stream.send(payload)
        elif self._responder.is_ended:
            raise TransportClosed("the client has left")
        else:
            self.write(payload)

    def respond(self, status: int, payload: bytes, headers: HeaderList = ()) -> None:
        """Give the answer as a whole; the stream must not have begun."""
        self.forget()
        self._shared.stats.messages_out += 1
        if self._form is Form.STREAM and status == 200:
            self._responder.respond(status, (*STREAM_HEADERS, *headers), encode_event(payload, event="message"))
        else:
            # An error that has a status is JSON even for a client that takes streams only.
            self._responder.respond(status, (*JSON_HEADERS, *headers) if headers else JSON_HEADERS, payload)

    async def finish(self, status: int, payload: bytes) -> None:
        """Give the answer: as a whole, or as the last message of the stream."""
        stream = self.stream
        if stream is None:
            self.respond(status, payload)
            return
        if stream.is_behind:
            try:
                await stream.send(payload)
            except TransportClosed:
                return
        else:
            stream.write(payload)
        stream.close("answered")

    async def drain(self) -> None:
        """Wait until the reader is less than the limit behind; see :meth:`EventStream.drain`."""
        if self.stream is not None:
            await self.stream.drain()

    def close_for_polling(self, retry_ms: int | None) -> None:
        """End the connection, though the answer is still to come; see :meth:`EventStream.close_for_polling`."""
        if self.stream is None:
            raise RuntimeError("the answer is JSON: there is no stream to close")
        self.stream.close_for_polling(retry_ms)

    def close(self, reason: str) -> None:
        """End the stream, if it has begun, without an answer. Repeatable."""
        if self.stream is not None:
            self.stream.close(reason)

    def break_off(self, payload: bytes, status: int = 200) -> None:
        """Give an error as the answer, without waiting, if there is still somebody who waits for one."""
        stream = self.stream
        if stream is None:
            if not self._responder.is_ended:
                self.respond(status, payload)
        elif stream.is_open:
            stream.write(payload)
            stream.close("broken_off")

    def give_up(self, payload: bytes) -> None:
        """End a request that is owed no answer: an empty stream says so; for who takes JSON only, an error."""
        if self.stream is not None:
            self.stream.close("cancelled")
        elif not self._responder.is_ended:
            if not self.can_stream:
                self.respond(200, payload)
                return
            self.forget()
            self._responder.respond(200, STREAM_HEADERS)

    def forget(self) -> None:
        """Wait no longer."""
        if self._waits_in is not None:
            self._waits_in.pop(self, None)
            self._waits_in = None


def _nothing(reason: str) -> None:
    """Nobody needs to know."""
