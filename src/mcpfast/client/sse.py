"""HTTP+SSE (2024-11-05), client side: one GET stream brings everything, each message goes out as a POST.

The end of the stream is the end of the session; nothing resumes. Rows A13 to A17 of the reference and
H24-C-01 to -03 are met here.

Source: MCP 2024-11-05, basic/transports §HTTP with SSE.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from ..codec import SSEDecoder
from ..errors import (
    EndpointMissing,
    EventTooLarge,
    ProtocolError,
    RequestTimeout,
    TransportClosed,
    UnexpectedContentType,
)
from ..http.client_interface import ClientResponse, retrieve
from ..http.client_request import URL, HeadersInput, RequestTemplate
from ..http.deadlines import Deadline, Deadlines
from ..http.interface import HeaderList
from ..jsonrpc import INVALID_REQUEST, ErrorResponse, Message, RequestId, Response, decode_message, encode_request
from ..protocol.connection import Connection
from ..protocol.endpoint import resolve_endpoint
from ..protocol.headers import EVENT_STREAM
from ..protocol.revisions import MODERN
from .channel import OnSent, Receiver
from .connection import MessageConnection
from .posting import AcceptedPost
from .sender import HeaderFunc, Sender

__all__ = ["SSEChannel", "SSEClientTransport"]

logger = logging.getLogger("mcpfast.client")

_GET_FIELDS = {"accept": EVENT_STREAM, "cache-control": "no-store"}
_POST_FIELDS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

# A silent server is pinged when this much is left of the limit, or half of it if that is less.
_PING_AHEAD_S = 30.0


class SSEClientTransport:
    """The client side of HTTP+SSE (2024-11-05): raw messages to and from one server.

    ::

        async with SSEClientTransport("https://example.com/sse") as connection:
            await connection.send(Request(1, "ping"))
            answer = await connection.recv()

    For calls, handlers and time-outs use :func:`~mcpfast.connect`.

    Args:
        url: of the SSE endpoint, used exactly as given.
        http_client: an ``AsyncClient`` of httpx or httpx2, used for the GET and the POSTs alike, or a
            :class:`~mcpfast.http.native_client.NativeClient`. By default a native client of its own, or
            httpx if a proxy is set in the environment. A client that is given is never closed.
        headers: for every request; they win over the transport's own.
        header_func: called, or awaited, for the headers of each request; they win over ``headers``.
        auth: an ``Auth`` object of httpx or httpx2.
        connect_timeout: seconds from the start of ``connect()`` to the ``endpoint`` event.
        timeout: seconds for a POST to be answered.
        idle_timeout: seconds the stream may be silent, comments counting as a sign of life. The server
            is pinged before it is given up. None for no limit.
        max_event_bytes: size of one event, as for :class:`~mcpfast.codec.SSEDecoder`.

    Raises:
        ValueError, TypeError: an argument is not valid.
    """

    def __init__(
        self,
        url: str,
        *,
        http_client: Any = None,
        headers: HeadersInput | None = None,
        header_func: HeaderFunc | None = None,
        auth: Any = None,
        connect_timeout: float = 10.0,
        timeout: float = 60.0,
        idle_timeout: float | None = 300.0,
        max_event_bytes: int = 16 << 20,
    ) -> None:
        for name, value in (("connect_timeout", connect_timeout), ("timeout", timeout), ("idle_timeout", idle_timeout)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive")
        self.url = URL(url)
        self._sender_options = {
            "http_client": http_client,
            "headers": headers,
            "header_func": header_func,
            "auth": auth,
            "connect_timeout": connect_timeout,
        }
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._max_event_bytes = max_event_bytes
        SSEDecoder(max_event_bytes=max_event_bytes)  # refuses a bad limit here and now
        Sender(self.url, **self._sender_options)
        self._entered: list[Connection] = []

    def channel(self) -> SSEChannel:
        """Return a new channel, not yet open."""
        return SSEChannel(
            self.url,
            Sender(self.url, **self._sender_options),
            connect_timeout=self._connect_timeout,
            timeout=self._timeout,
            idle_timeout=self._idle_timeout,
            max_event_bytes=self._max_event_bytes,
        )

    async def connect(self) -> Connection:
        """Open a connection: GET the stream and wait for its endpoint.

        Raises:
            ConnectionError: the server cannot be reached, or the connection is lost.
            AuthorizationRequired, MethodNotAllowed, HTTPStatusError: the GET was refused.
            UnexpectedContentType: the answer is no event stream.
            EndpointMissing: the stream did not begin with an ``endpoint`` event of the same origin, or
                none came in time.
            RequestTimeout: the server did not answer in time.
        """
        return await MessageConnection.open(self.channel())

    async def __aenter__(self) -> Connection:
        connection = await self.connect()
        self._entered.append(connection)
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._entered.pop().close()

    def __repr__(self) -> str:
        return f"<SSEClientTransport {self.url}>"


class SSEChannel:
    """One HTTP+SSE connection; see :class:`~mcpfast.client.channel.Channel`."""

    session_id: str | None = None  # it stands in the endpoint's address, and stays there
    protocol_version: str | None = None

    def __init__(
        self,
        url: URL,
        sender: Sender,
        *,
        connect_timeout: float,
        timeout: float,
        idle_timeout: float | None,
        max_event_bytes: int,
    ) -> None:
        self._url = url
        self._sender = sender
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._decoder = SSEDecoder(max_event_bytes=max_event_bytes)
        self._deadlines = Deadlines.for_loop()
        self._receiver: Receiver | None = None
        self._opening: asyncio.Future[None] | None = None
        self._attempt: Any = None
        self._response: ClientResponse | None = None
        self._endpoint: RequestTemplate | None = None
        self._posts: set[AcceptedPost] = set()
        self._timer: Deadline | None = None
        self._active_at = 0.0
        self._ping_id: str | None = None
        self._pings = 0
        self._is_paused = False
        self._is_closed = False

    def use(self, version: str | None) -> None:
        if version in MODERN:
            raise ProtocolError(f"protocol version {version} is not spoken over HTTP+SSE")

    # Opening

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        opening = self._opening = asyncio.get_running_loop().create_future()
        template = self._sender.template("GET", self._url, _GET_FIELDS)
        self._timer = self._deadlines.after(self._connect_timeout, self._opening_timed_out)
        try:
            self._attempt = self._sender.start(template, self._on_head)
            await opening
        except BaseException:
            self._opening = None
            retrieve(opening)
            await self.aclose()
            raise
        finally:
            self._opening = None
            self._timer.cancel()
        self._active_at = self._deadlines.now()
        self._watch()

    def _fail_opening(self, error: Exception) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.set_exception(error)

    def _opening_timed_out(self) -> None:
        seconds = self._connect_timeout
        if self._response is None:
            self._fail_opening(
                RequestTimeout(f"GET {self._url} was not answered within {seconds:g} s", seconds=seconds)
            )
        else:
            self._fail_opening(EndpointMissing(f"stream of {self._url} brought no endpoint event within {seconds:g} s"))

    def _on_head(self, response: ClientResponse | None, error: Exception | None) -> None:
        if response is None:
            assert error is not None
            self._fail_opening(error)
            return
        self._response = response
        self._url = self._attempt.url
        if response.status != 200:
            response.collect_refusal(self._refused)
            return
        content_type = response.headers.get("content-type")
        if content_type is None or content_type.partition(";")[0].strip().lower() != EVENT_STREAM:
            self._fail_opening(UnexpectedContentType(content_type, EVENT_STREAM, what=f"GET {self._url}"))
            return
        try:
            response.deliver(self._on_data, self._on_end)
        except ProtocolError as fault:  # compressed
            self._fail_opening(fault)

    def _refused(self, body: bytes) -> None:
        assert self._response is not None
        template = RequestTemplate("GET", self._url)
        self._fail_opening(self._sender.refused(template, self._response, body))

    def _take_endpoint(self, event: str, data: str) -> None:
        """The stream's first event has come."""
        if event != "endpoint":
            shown = event[:40].encode("unicode_escape").decode("ascii")
            self._fail_opening(EndpointMissing(f"stream of {self._url} began with event '{shown}', expected endpoint"))
            return
        try:
            url = URL(resolve_endpoint(self._url.text, data))
        except (EndpointMissing, ValueError) as error:
            if not isinstance(error, EndpointMissing):
                error = EndpointMissing(f"endpoint is no http URI: {error}")
            self._fail_opening(error)
            return
        self._endpoint = self._sender.template("POST", url, _POST_FIELDS)
        if self._opening is not None and not self._opening.done():
            self._opening.set_result(None)

    # Reading

    def _on_data(self, data: bytes) -> None:
        self._active_at = self._deadlines.now()
        try:
            events = self._decoder.feed(data)
            for event in events:
                if self._is_closed:
                    return
                if self._endpoint is None:
                    self._take_endpoint(event.event, event.data)
                    if self._endpoint is None:
                        return
                elif event.event == "message":
                    self._take(event.data_bytes)
                else:
                    logger.debug("event of an unknown kind skipped")
            self._decoder.feed(b"")  # tells of an event that is too large as soon as it is
        except EventTooLarge as error:
            self._end(error)

    def _take(self, data: bytes) -> None:
        receiver = self._receiver
        assert receiver is not None
        if not data:
            return  # an event to keep the stream alive, or to give it an id (C028)
        try:
            message = decode_message(data)
        except ProtocolError as error:
            receiver.receive_fault(error)
            return
        for item in message if isinstance(message, list) else (message,):
            if isinstance(item, ProtocolError):
                receiver.receive_fault(item)
            elif self._ping_id is None or not self._is_pong(item):
                receiver.receive(item)

    def _on_end(self, error: Exception | None) -> None:
        self._end(error)

    def _end(self, cause: Exception | None) -> None:
        """The stream is over, and the session with it (H24-C-03)."""
        if self._is_closed:
            return
        if self._opening is not None:
            if cause is None or isinstance(cause, ConnectionError):
                missing = EndpointMissing(f"stream of {self._url} ended before its endpoint event")
                missing.__cause__ = cause
                cause = missing
            self._fail_opening(cause)
            return
        receiver = self._receiver
        self.abort()
        if receiver is not None:
            receiver.receive_end(cause)

    def pause(self) -> None:
        if self._response is not None:
            self._is_paused = True
            self._response.pause()

    def resume(self) -> None:
        if self._response is not None and self._is_paused:
            self._is_paused = False
            self._active_at = self._deadlines.now()
            self._response.resume()

    # A silent stream

    def _watch(self) -> None:
        """Look when the stream was last heard of, and again when the next limit is due."""
        if self._is_closed or self._idle_timeout is None:
            return
        limit = self._idle_timeout
        # While we do not read, the silence is ours.
        silent = 0.0 if self._is_paused else self._deadlines.now() - self._active_at
        if silent >= limit:
            text = f"stream of {self._url} was silent for {limit:g} s, and a ping was not answered"
            self._end(RequestTimeout(text, seconds=limit))
            return
        ping_after = max(limit / 2, limit - _PING_AHEAD_S)
        if silent < ping_after:
            self._ping_id = None
            next_look = ping_after - silent
        else:
            if self._ping_id is None:
                self._ping()
            next_look = limit - silent
        self._timer = self._deadlines.after(next_look, self._watch)

    def _ping(self) -> None:
        self._pings += 1
        self._ping_id = f"mcpfast-ping-{self._pings}"
        try:
            self.post(encode_request(self._ping_id, "ping"), _log_ping, urgent=True)
        except Exception as error:  # header_func's
            _log_ping(error)

    def _is_pong(self, message: Message) -> bool:
        if isinstance(message, (Response, ErrorResponse)) and message.id == self._ping_id:
            self._ping_id = None
            return True
        return False

    # Writing

    def post(
        self,
        data: bytes,
        on_sent: OnSent,
        headers: HeaderList = (),
        *,
        request_id: RequestId | None = None,
        urgent: bool = False,
        method: str | None = None,
        params: Any = None,
        receiver: Receiver | None = None,
    ) -> AcceptedPost:
        if self._is_closed or self._endpoint is None:
            raise TransportClosed(f"connection to {self._url} is closed")
        post = AcceptedPost(
            self._sender,
            self._endpoint,
            on_sent,
            self._posts.discard,
            request_id,
            self._timeout,
            self._deadlines,
        )
        post.start(data, headers, urgent)
        self._posts.add(post)
        return post

    def post_batch(self, data: bytes, on_sent: OnSent, messages: Sequence[Message]) -> AcceptedPost:
        raise ProtocolError("batches are not part of HTTP+SSE (2024-11-05)", code=INVALID_REQUEST)

    # Ending

    def abort(self) -> None:
        self._is_closed = True
        self._receiver = None
        if self._timer is not None:
            self._timer.cancel()
        if self._attempt is not None:
            self._attempt.cancel()
        if self._response is not None:
            self._response.close()
        for post in list(self._posts):
            post.cancel()

    async def aclose(self) -> None:
        self.abort()
        await self._sender.aclose()


def _log_ping(error: Exception | None) -> None:
    if error is not None:
        logger.debug("ping could not be sent: %s", error)
