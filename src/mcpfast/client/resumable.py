"""An event stream of a server, over as many connections as it takes.

The first connection is the answer to a POST, or a GET. When it ends before its owner has what it waits for, and the
revision lets streams be resumed, a GET with ``Last-Event-ID`` takes it up. What was delivered is not delivered again:
an event that comes back under an id that an earlier connection brought is dropped.

Source: MCP 2025-11-25, basic/transports §Resumability and Redelivery; WHATWG HTML 9.2.4 (rows B9, B13).
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Protocol

from ..codec import SSEDecoder
from ..errors import EventTooLarge, HTTPStatusError, ProtocolError, RequestTimeout, UnexpectedContentType
from ..http.client_interface import ClientResponse
from ..http.client_request import RequestTemplate
from ..http.deadlines import MovingDeadline
from ..jsonrpc import Message, decode_message
from ..protocol.headers import EVENT_STREAM
from ..protocol.reconnection import MAX_EVENT_ID_BYTES, Reconnection, last_event_id_header
from .sender import Attempt

if TYPE_CHECKING:
    from .streamable_channel import StreamableChannel

__all__ = ["ResumableStream", "StreamOwner", "is_event_stream"]

MAX_REMEMBERED_IDS = 1000
"""Event ids by which an event that comes again is known."""

_TRY_AGAIN = frozenset({408, 409, 425, 429})  # and all of 5xx


class StreamOwner(Protocol):
    """Whom a stream is read for. Nothing here may raise."""

    def wants_more(self) -> bool:
        """Tell whether the stream is to be taken up when a connection ends."""

    def take(self, message: Message) -> None:
        """Take a message."""

    def take_fault(self, error: ProtocolError) -> None:
        """Take notice of an event that was no message."""

    def refused(self, error: Exception) -> bool:
        """A GET was refused, or an event was too large: tell whether to try again after a wait."""

    def over(self, error: Exception | None) -> None:
        """No connection follows: nobody wants more, or ``error`` tells why there is none. Called once."""


def is_event_stream(content_type: bytes | None) -> bool:
    """Tell whether a Content-Type is an event stream's, in any case and with any parameters."""
    if content_type is None:
        return False
    return content_type.partition(b";")[0].strip(b" \t").lower() == b"text/event-stream"


def may_pass(error: Exception) -> bool:
    """Tell whether a refusal may be gone when asked again."""
    if isinstance(error, HTTPStatusError):
        return error.status in _TRY_AGAIN or error.status >= 500
    return isinstance(error, (ConnectionError, RequestTimeout))


class ResumableStream:
    """One stream; see the module.

    Args:
        channel: whose stream it is.
        owner: whom it is read for.
        template: of the GETs that take it up; None if it cannot be.
        max_attempts: see :class:`~mcpfast.protocol.reconnection.Reconnection`.
        must_resume: a GET is of use only with the last event's id.
    """

    __slots__ = (
        "_attempt",
        "_channel",
        "_connection_id",
        "_decoder",
        "_idle",
        "_is_closed",
        "_is_paused",
        "_must_resume",
        "_owner",
        "_reconnection",
        "_response",
        "_seen_ids",
        "_template",
        "_timer",
        "connections",
        "last_event_id",
    )

    def __init__(
        self,
        channel: StreamableChannel,
        owner: StreamOwner,
        template: RequestTemplate | None,
        max_attempts: int | None,
        *,
        must_resume: bool,
    ) -> None:
        self._channel = channel
        self._owner = owner
        self._template = template
        self._must_resume = must_resume
        self._reconnection = Reconnection(channel.options.retry, max_attempts)
        self._decoder: SSEDecoder | None = None
        self._attempt: Attempt | None = None
        self._response: ClientResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle: MovingDeadline | None = None
        self._is_closed = False
        self._is_paused = channel.is_paused
        self._connection_id = ""  # the last id that this connection brought
        self.connections = 0
        """How many brought an event stream."""
        self._seen_ids: dict[str, int] = {}  # by which connection each came, oldest first
        self.last_event_id = ""
        """The last id of all connections; empty if there is none."""
        channel.streams.add(self)

    # Connections

    def connect(self) -> None:
        """Ask for the stream with a GET, if there is still something to wait for."""
        self._timer = None
        if not self._owner.wants_more():  # answered elsewhere, or given up, while it waited to be taken up
            self._finish(None)
            return
        template = self._template
        assert template is not None
        extra = []
        if self.last_event_id:
            value = last_event_id_header(self.last_event_id)
            if value is not None:
                extra.append((b"last-event-id", value))
        try:
            self._watch()
            self._attempt = self._channel.sender.start(template, self._on_head, b"", extra, urgent=True)
        except Exception as error:  # header_func's
            self._finish(error)

    def _on_head(self, response: ClientResponse | None, error: Exception | None) -> None:
        self._attempt = None
        if response is None:
            assert error is not None
            self._refused(error)
        elif response.status != 200:
            self._response = response
            response.collect_refusal(self._on_refusal)
        elif not is_event_stream(response.headers.find(b"content-type")):
            response.discard()
            came = response.headers.get("content-type")
            assert self._template is not None
            self._refused(UnexpectedContentType(came, EVENT_STREAM, what=f"GET {self._template.url}"))
        else:
            self.read(response)

    def _on_refusal(self, body: bytes) -> None:
        response, self._response = self._response, None
        assert response is not None
        assert self._template is not None
        if response.status < 300:
            error: Exception = HTTPStatusError(response.status, what=f"GET {self._template.url}")
        else:
            error = self._channel.sender.refused(self._template, response, body)
        self._refused(error)

    def _refused(self, error: Exception) -> None:
        self._unwatch()
        if self._is_closed:
            return
        if not self._owner.wants_more():
            self._finish(None)
        elif self._owner.refused(error):
            self._again(error, is_clean=False)
        else:
            self._finish(error)

    def read(self, response: ClientResponse) -> None:
        """Read the body of an answer that is an event stream."""
        self._response = response
        self._decoder = SSEDecoder(max_event_bytes=self._channel.options.max_event_bytes)
        self._connection_id = ""
        self.connections += 1
        self._watch()
        try:
            response.deliver(self._on_data, self._on_end)
        except ProtocolError as error:  # compressed
            self._finish(error)
            return
        if self._is_paused and not self._is_closed:
            response.pause()

    # Reading

    def _on_data(self, data: bytes) -> None:
        decoder = self._decoder
        assert decoder is not None
        self._watch()
        try:
            for event in decoder.feed(data):
                if event.event == "message" and event.data_bytes:
                    self._take(event.id, event.data_bytes)
                    if self._is_closed:
                        return
            decoder.feed(b"")  # tells of an event that is too large as soon as it is
        except EventTooLarge as error:
            self._drop_connection()
            self._connection_over(error)
            return
        # Now, as an event's id counts once the event was delivered.
        if decoder.last_event_id != self._connection_id:
            self._connection_id = self.last_event_id = decoder.last_event_id
            self._reconnection.brought()
        if decoder.retry is not None:
            self._reconnection.asked(decoder.retry)

    def _take(self, event_id: str, data: bytes) -> None:
        if event_id and self._template is not None:
            if self._seen_ids.get(event_id, self.connections) != self.connections:
                return  # replayed although we had it
            if event_id != self._connection_id:
                self._connection_id = self.last_event_id = event_id
                self._remember(event_id)
        self._reconnection.brought()
        try:
            message = decode_message(data)
        except ProtocolError as error:
            self._owner.take_fault(error)
            return
        for item in message if isinstance(message, list) else (message,):
            if isinstance(item, ProtocolError):
                self._owner.take_fault(item)
            else:
                self._owner.take(item)

    def _remember(self, event_id: str) -> None:
        if len(event_id) <= MAX_EVENT_ID_BYTES:  # a longer one is never sent back, so nothing follows it
            if len(self._seen_ids) >= MAX_REMEMBERED_IDS:
                del self._seen_ids[next(iter(self._seen_ids))]
            self._seen_ids[event_id] = self.connections

    def _on_end(self, error: Exception | None) -> None:
        self._response = None
        self._connection_over(error)

    def _connection_over(self, error: Exception | None) -> None:
        self._unwatch()
        if self._is_closed:
            return
        owner = self._owner
        if not owner.wants_more():
            self._finish(None)
        elif self._template is None:
            self._finish(error or ProtocolError("stream ended without the answer"))
        elif error is not None and not isinstance(error, (ConnectionError, RequestTimeout)):
            if owner.refused(error):
                self._again(error, is_clean=False)
            else:
                self._finish(error)
        else:
            self._again(error, is_clean=error is None)

    def _again(self, error: Exception | None, *, is_clean: bool) -> None:
        """Take the stream up after a wait, or give up."""
        if self._must_resume and (not self.last_event_id or last_event_id_header(self.last_event_id) is None):
            if self.last_event_id:
                size = len(self.last_event_id.encode("utf-8", "surrogatepass"))
                text = f"stream ended without the answer, and its last event id ({size} bytes) cannot be sent back"
                fault: Exception = ProtocolError(text)
                fault.__cause__ = error
            else:
                fault = error or ProtocolError("stream ended without the answer, and had no event id to resume from")
            self._finish(fault)
            return
        wait = self._reconnection.next_wait(is_clean, random.random())
        if wait is None:
            text = f"stream ended without the answer, and taking it up failed {self._reconnection.in_vain - 1} times"
            if error is not None:
                text = f"{text}: {error}"
            gave_up = ConnectionError(text)
            gave_up.__cause__ = error
            self._finish(gave_up)
            return
        self._timer = asyncio.get_running_loop().call_later(wait, self.connect)

    # Silence and back-pressure

    def _watch(self) -> None:
        limit = self._channel.options.idle_timeout
        if limit is not None and not self._is_paused:
            if self._idle is None:
                self._idle = MovingDeadline(self._channel.deadlines, self._silent)
            self._idle.set(limit)

    def _unwatch(self) -> None:
        if self._idle is not None:
            self._idle.clear()

    def _silent(self) -> None:
        limit = self._channel.options.idle_timeout
        assert limit is not None
        self._drop_connection()
        self._connection_over(RequestTimeout(f"stream was silent for {limit:g} s", seconds=limit))

    def pause(self) -> None:
        self._is_paused = True
        self._unwatch()  # while we do not read, the silence is ours
        if self._response is not None:
            self._response.pause()

    def resume(self) -> None:
        self._is_paused = False
        if self._response is not None:
            self._watch()
            self._response.resume()

    # The end

    def forget_position(self) -> None:
        """Take the stream up as a new one: what its last event id stands for is of no use."""
        self.last_event_id = ""

    def _drop_connection(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        if self._response is not None:
            self._response.close()
            self._response = None

    def _finish(self, error: Exception | None) -> None:
        if not self._is_closed:
            self.close()
            self._owner.over(error)

    def close(self) -> None:
        """Drop it; the owner hears no more. Repeatable."""
        self._is_closed = True
        self._channel.streams.discard(self)
        self._drop_connection()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._idle is not None:
            self._idle.close()
