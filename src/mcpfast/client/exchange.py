"""One POST with a request, or a batch of them, until each is answered.

The answer is a JSON body or an event stream. A stream that breaks is taken up where the revision allows it; one that
is left alone cancels its request where the revision has it so.

Source: MCP 2025-11-25 and 2026-07-28, basic/transports §Sending Messages (rows B4, B6, B7, B11, B13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import HTTPStatusError, ProtocolError, UnexpectedContentType
from ..http.client_interface import ClientResponse, Exchange
from ..http.client_request import RequestTemplate
from ..http.deadlines import Deadline
from ..http.interface import HeaderList
from ..jsonrpc import ErrorResponse, Message, RequestId, Response, decode_message
from ..protocol.headers import is_json
from .channel import OnSent, Receiver
from .resumable import ResumableStream, is_event_stream, may_pass
from .sender import Attempt

if TYPE_CHECKING:
    from .streamable_channel import StreamableChannel

__all__ = ["RequestExchange"]

# How long a stream is read on after the last answer it owed, or after nobody waits for that any more.
_LINGER_S = 10.0

_EXPECTED = "application/json or text/event-stream"


class RequestExchange:
    """See the module. It is the Post of its request, and the owner of the stream that answers it.

    Args:
        channel: whose exchange it is.
        receiver: told of each message, and of a request that will have no answer.
        on_sent: called when the answer begins, or the POST was refused.
        ids: of the requests.
        session_id: what the POST names, if there is a session.
    """

    __slots__ = (
        "_attempt",
        "_channel",
        "_is_over",
        "_linger",
        "_on_sent",
        "_response",
        "_sent",
        "_stream",
        "_template",
        "can_resume",
        "is_initialize",
        "leaving_cancels",
        "owed",
        "receiver",
        "session_id",
    )

    def __init__(
        self,
        channel: StreamableChannel,
        receiver: Receiver,
        on_sent: OnSent,
        ids: set[RequestId],
        session_id: str | None,
        template: RequestTemplate,
    ) -> None:
        self._channel = channel
        self.receiver = receiver
        self._on_sent: OnSent | None = on_sent
        self._template = template
        self._attempt: Attempt | Exchange | None = None
        self._sent: tuple[bytes, HeaderList] = (b"", ())  # for a redirect
        self._response: ClientResponse | None = None
        self._stream: ResumableStream | None = None
        self._linger: Deadline | None = None
        self._is_over = False
        self.owed = ids
        """The requests that have no answer yet."""
        self.session_id = session_id
        self.is_initialize = False
        self.can_resume = False
        self.leaving_cancels = False

    def start(self, data: bytes, extra: HeaderList, urgent: bool) -> None:
        """Send ``data``. Raises as :meth:`Sender.start`."""
        self._sent = (data, extra)
        self._attempt = self._channel.sender.send(self._template, self._on_head, data, extra, urgent=urgent)

    # The answer

    def _on_head(self, response: ClientResponse | None, error: Exception | None) -> None:
        if response is None:
            assert error is not None
            self._fail(error)
            return
        if 300 <= response.status < 400:
            sender = self._channel.sender
            self._attempt = sender.follow(self._template, response, self._on_last_head, *self._sent)
        else:
            self._on_last_head(response, None)

    def _on_last_head(self, response: ClientResponse | None, error: Exception | None) -> None:
        if response is None:
            assert error is not None
            self._fail(error)
            return
        self._sent = (b"", ())
        status = response.status
        if not 200 <= status < 300:
            self._response = response
            response.collect_refusal(self._on_refusal)
            return
        try:
            if self.is_initialize:
                self.session_id = self._channel.session_begins(response)
            content_type = response.headers.find(b"content-type")
            if is_json(content_type):
                self._response = response
                self._accepted()
                response.collect(self._channel.options.max_response_bytes, self._on_body)
            elif is_event_stream(content_type):
                self._accepted()
                stream = self._stream = self._channel.stream_for(self)
                stream.read(response)
            else:
                self._fail(self._no_answer(response, content_type))
                response.discard()
        except ProtocolError as fault:  # a malformed session id, or compressed
            response.close()
            self._fail(fault)

    def _no_answer(self, response: ClientResponse, content_type: bytes | None) -> Exception:
        what = f"POST {self._template.url}"
        if content_type is None or response.status != 200:
            return ProtocolError(f"{what} was accepted with status {response.status}, but a request is owed an answer")
        return UnexpectedContentType(content_type.decode("latin-1"), _EXPECTED, what=what)

    def _accepted(self) -> None:
        on_sent, self._on_sent = self._on_sent, None
        if on_sent is not None:
            on_sent(None)

    def _on_refusal(self, body: bytes) -> None:
        response, self._response = self._response, None
        assert response is not None
        if response.status == 404 and self.session_id is not None and not self.is_initialize:
            self._fail(self._channel.session_ended(self.session_id))
            return
        only_id = next(iter(self.owed)) if len(self.owed) == 1 else None
        self._fail(self._channel.sender.refused(self._template, response, body, only_id))

    def _on_body(self, body: bytes, error: Exception | None) -> None:
        self._response = None
        if error is not None:
            self._fail(error)
            return
        try:
            message = decode_message(body)
        except ProtocolError as fault:
            self._fail(fault)
            return
        if type(message) is Response and message.id in self.owed and len(self.owed) == 1:
            self._is_over = True  # the common case
            self._channel.deliver(message, self)
            self._channel.exchanges.discard(self)
            return
        for item in message if isinstance(message, list) else (message,):
            if isinstance(item, ProtocolError):
                self.take_fault(item)
            else:
                self.take(item)
        text = f"answer to POST {self._template.url} holds no response to the request"
        if isinstance(message, (Response, ErrorResponse)):
            text += f": its id is another one, of type {type(message.id).__name__}"
        self._fail(ProtocolError(text))

    # StreamOwner

    def wants_more(self) -> bool:
        return bool(self.owed)

    def take(self, message: Message) -> None:
        if isinstance(message, ErrorResponse) and message.id is None and len(self.owed) == 1:
            # Its id could not be read, or would not be told; it can only mean this request.
            message = ErrorResponse(next(iter(self.owed)), message.code, message.message, message.data)
        self._channel.deliver(message, self)

    def take_fault(self, error: ProtocolError) -> None:
        if error.id is not None and error.id in self.owed:
            self.owed.discard(error.id)  # it was meant as the answer, so there will be no other
            self._channel.settled(error.id, self)
        self.receiver.receive_fault(error)

    def refused(self, error: Exception) -> bool:
        return may_pass(error)

    def over(self, error: Exception | None) -> None:
        if self.session_id is not None and isinstance(error, HTTPStatusError) and error.status == 404:
            error = self._channel.session_ended(self.session_id, was_refused=False)
        self._fail(error)

    # The end

    def answered(self, request_id: RequestId) -> None:
        """A request was answered, on whichever stream."""
        self.owed.discard(request_id)
        if not self.owed and not self._is_over:
            # The server ends its stream now, and the connection can be used again.
            self._set_linger()

    def _set_linger(self) -> None:
        if self._linger is None:
            self._linger = self._channel.deadlines.after(_LINGER_S, self.cancel)

    def _fail(self, error: Exception | None) -> None:
        """Be over; the requests that are still owed an answer get none."""
        if self._is_over:
            return
        on_sent, self._on_sent = self._on_sent, None
        owed, self.owed = self.owed, set()
        self.cancel()
        if error is None or not owed:
            return
        for request_id in owed:
            self._channel.settled(request_id, self)
        if on_sent is not None:
            on_sent(error)
            return
        for request_id in owed:
            self.receiver.receive_failure(request_id, error)

    def pause(self) -> None:
        """Read no more of this one's stream for now."""
        if self._stream is not None:
            self._stream.pause()

    def resume(self) -> None:
        if self._stream is not None:
            self._stream.resume()

    # Post

    def cancel(self) -> None:
        self._is_over = True
        self._on_sent = None
        for request_id in self.owed:
            self._channel.settled(request_id, self)
        self.owed = set()
        self._channel.exchanges.discard(self)
        if self._attempt is not None:
            self._attempt.cancel()
        if self._response is not None:
            self._response.close()
            self._response = None
        if self._stream is not None:
            self._stream.close()
        if self._linger is not None:
            self._linger.cancel()

    def leave(self) -> None:
        """Nothing to do: it sees its own end."""

    def abandon(self) -> None:
        if self.leaving_cancels or not (self._attempt is not None and self._attempt.is_sent):
            self.cancel()
        elif not self._is_over:
            # The server must not take our leaving for the news: that is a notification's (L25-C-06).
            self._on_sent = None
            for request_id in self.owed:
                self._channel.settled(request_id, self)
            self.owed = set()
            self._set_linger()
