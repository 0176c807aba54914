"""Streamable HTTP, client side: one connection of the transport, of either era.

Every message is a POST of its own. What a message is about decides its headers: one that names 2026-07-28 in its
``_meta`` carries the headers that mirror it and belongs to no session; any other carries what ``initialize`` agreed on.
The transport reads messages for that, and never changes one.

Source: MCP 2025-03-26 to 2026-07-28, basic/transports.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import HTTPStatusError, ProtocolError, SessionTerminated, TransportClosed
from ..http.client_interface import ClientResponse
from ..http.client_request import URL, RequestTemplate
from ..http.deadlines import Deadlines
from ..http.interface import HeaderList
from ..jsonrpc import INVALID_REQUEST, ErrorResponse, Message, Request, RequestId, Response
from ..protocol.envelope import mirrored_headers, mirrored_name, revision_of
from ..protocol.headers import EVENT_STREAM, JSON
from ..protocol.reconnection import RetryPolicy
from ..protocol.revisions import REVISIONS, Revision
from .channel import OnSent, Post, Receiver
from .exchange import RequestExchange
from .listening import StandingStream
from .posting import AcceptedPost
from .resumable import ResumableStream
from .sender import Sender

__all__ = ["StreamableChannel", "StreamableOptions"]

INITIALIZE, INITIALIZED = "initialize", "notifications/initialized"
SESSION_HEADER = "mcp-session-id"

MAX_SESSION_ID_CHARS = 4096
MAX_TEMPLATES = 512
"""Heads that are kept ready, one for each method and name in use."""

DELETE_TIMEOUT_S = 5.0

_SESSION_ID = re.compile(r"[\x21-\x7e]+")
_POST_FIELDS = (("content-type", JSON), ("accept", f"{JSON}, {EVENT_STREAM}"))
_GET_FIELDS = (("accept", EVENT_STREAM), ("cache-control", "no-store"))


@dataclass(frozen=True)
class StreamableOptions:
    """What a transport was told; see :class:`~mcpfast.client.StreamableHTTPClientTransport`."""

    timeout: float
    idle_timeout: float | None
    max_event_bytes: int
    max_response_bytes: int
    continuous_listening: bool | None
    session_id: str | None
    protocol_version: str | None
    terminate_on_close: bool
    retry: RetryPolicy
    logger: logging.Logger


class StreamableChannel:
    """One connection; see :class:`~mcpfast.client.channel.Channel`."""

    def __init__(self, url: URL, sender: Sender, options: StreamableOptions) -> None:
        self.url = url
        self.sender = sender
        self.options = options
        self.deadlines = Deadlines.for_loop()
        self.session_id = options.session_id
        self.revision: Revision | None = None
        """What was agreed on, or fixed; None before ``initialize``, and where each message says it itself."""
        self.exchanges: set[RequestExchange] = set()
        self.streams: set[ResumableStream] = set()
        self.is_paused = False
        self._version: str | None = None  # for the header; of a revision we may not know
        self._receiver: Receiver | None = None
        self._owed: dict[RequestId, RequestExchange] = {}
        self._posts: set[AcceptedPost] = set()
        self._standing: StandingStream | None = None
        self._modern_templates: dict[tuple[str, str, str | None], RequestTemplate] = {}
        self._post_template: RequestTemplate | None = None
        self._is_closed = False
        if options.protocol_version is not None:
            self.use(options.protocol_version)

    async def open(self, receiver: Receiver) -> None:
        """Begin to work. Nothing is sent, except that a session that is there already is listened to."""
        self._receiver = receiver
        if self.session_id is not None:
            self._listen()

    # Eras

    @property
    def protocol_version(self) -> str | None:
        return self._version

    def use(self, version: str | None) -> None:
        """Speak this revision from now on; None: what each message says."""
        self._version = version
        self.revision = None if version is None else REVISIONS.get(version)
        self._post_template = None

    def _template(self, method: str | None, params: Any) -> tuple[RequestTemplate, Revision | None]:
        """Return the fixed part of the POST for a message, and the revision that rules it."""
        revision = self.revision
        if method is not None and (revision is None or revision.has_standard_headers):
            named = (revision_of(params) if type(params) is dict and "_meta" in params else None) or revision
            if named is not None and named.has_standard_headers:
                name = mirrored_name(method, params)
                key = (named.version, method, name)
                found = self._modern_templates.get(key)
                if found is None:
                    if len(self._modern_templates) >= MAX_TEMPLATES:
                        self._modern_templates.clear()
                    fields: list[Any] = [*_POST_FIELDS]
                    fields += mirrored_headers(named.version, method, name)
                    found = self._modern_templates[key] = self.sender.template("POST", self.url, fields)
                return found, named
        if method == INITIALIZE:
            return self.sender.template("POST", self.url, _POST_FIELDS), revision
        if self._post_template is None:
            self._post_template = self.sender.template("POST", self.url, [*_POST_FIELDS, *self._session_fields()])
        return self._post_template, revision

    def _session_fields(self) -> list[tuple[str, str]]:
        """Return the headers of everything after ``initialize`` (L25-C-09, L25-C-12)."""
        fields = []
        if self.session_id is not None:
            fields.append((SESSION_HEADER, self.session_id))
        if self._version is not None and (self.revision is None or self.revision.has_version_header):
            fields.append(("mcp-protocol-version", self._version))
        return fields

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
    ) -> Post:
        """Send a message; see :meth:`Channel.post`.

        Args:
            method, params: of the message, unless it is a response.
            receiver: told of what the answer's stream brings, instead of the channel's.

        Raises:
            TransportClosed: the channel is over.
            ProtocolError: a request with this id is in flight.
        """
        template, revision = self._template(method, params)
        if request_id is None:
            return self._post_accepted(template, data, on_sent, headers, method)
        if method == INITIALIZE:
            self._forget_session()
        return self._post_requests(template, revision, data, on_sent, headers, {request_id}, urgent, method, receiver)

    def post_batch(self, data: bytes, on_sent: OnSent, messages: Sequence[Message]) -> Post:
        """Send a batch, of requests and notifications or of responses.

        Raises:
            TransportClosed: the channel is over.
            ProtocolError: the revision has no batches (L03-B-01), or this is none of its kind.
        """
        if self.revision is None or not self.revision.accepts_batches:
            raise ProtocolError(f"batches are not part of revision {self._version or 'unknown'}", code=INVALID_REQUEST)
        is_answers = [isinstance(message, (Response, ErrorResponse)) for message in messages]
        if any(is_answers) and not all(is_answers):
            raise ProtocolError("batch holds responses and other messages", code=INVALID_REQUEST)
        if any(isinstance(message, Request) and message.method == INITIALIZE for message in messages):
            raise ProtocolError("initialize must not be part of a batch", code=INVALID_REQUEST)
        ids = [message.id for message in messages if isinstance(message, Request)]
        if len(set(ids)) != len(ids):
            raise ProtocolError("batch holds two requests with one id", code=INVALID_REQUEST)
        template, revision = self._template(None, None)
        if not ids:
            return self._post_accepted(template, data, on_sent, (), None)
        return self._post_requests(template, revision, data, on_sent, (), set(ids), False, None, None)

    def _post_requests(
        self,
        template: RequestTemplate,
        revision: Revision | None,
        data: bytes,
        on_sent: OnSent,
        headers: HeaderList,
        ids: set[RequestId],
        urgent: bool,
        method: str | None,
        receiver: Receiver | None,
    ) -> RequestExchange:
        receiver = receiver or self._receiver
        if self._is_closed or receiver is None:
            raise TransportClosed(f"connection to {self.url} is closed")
        owed = self._owed
        for request_id in ids:
            if request_id in owed:
                raise ProtocolError(f"a request with id {request_id!r} is in flight", id=request_id)
        has_session = revision is None or revision.has_sessions
        exchange = RequestExchange(self, receiver, on_sent, ids, self.session_id if has_session else None, template)
        exchange.can_resume = has_session and method != INITIALIZE
        exchange.leaving_cancels = revision is not None and not has_session
        exchange.is_initialize = method == INITIALIZE and has_session
        exchange.start(data, headers, urgent)
        self.exchanges.add(exchange)
        for request_id in ids:
            owed[request_id] = exchange
        return exchange

    def _post_accepted(
        self, template: RequestTemplate, data: bytes, on_sent: OnSent, headers: HeaderList, method: str | None
    ) -> AcceptedPost:
        if self._is_closed:
            raise TransportClosed(f"connection to {self.url} is closed")
        session_id = self.session_id

        def fate(error: Exception | None) -> None:
            if session_id is not None and isinstance(error, HTTPStatusError) and error.status == 404:
                error = self.session_ended(session_id)
            elif error is None and method == INITIALIZED:
                self._listen()
            on_sent(error)

        timeout = self.options.timeout
        post = AcceptedPost(self.sender, template, fate, self._posts.discard, None, timeout, self.deadlines)
        post.start(data, headers, True)
        self._posts.add(post)
        return post

    # Reading

    def deliver(self, message: Message, exchange: RequestExchange | None) -> None:
        """Hand on a message: an answer to whoever is owed it, whatever stream it came on, anything else to the
        receiver of its own stream."""
        if type(message) is Response or type(message) is ErrorResponse:
            request_id: Any = message.id
            owner = self._owed.pop(request_id, None)
            if owner is None:
                self.options.logger.debug("answer to no request in flight, or a second one: dropped")
                return
            if owner.is_initialize:
                self._agreed(message)
            owner.answered(request_id)
            owner.receiver.receive(message)
            return
        receiver = self._receiver if exchange is None else exchange.receiver
        if receiver is not None:
            receiver.receive(message)

    def receive_fault(self, error: ProtocolError) -> None:
        """Hand on that something came outside of any exchange that was no message."""
        if self._receiver is not None:
            self._receiver.receive_fault(error)

    def settled(self, request_id: RequestId, exchange: RequestExchange) -> None:
        """A request will have no answer, or none that anybody waits for."""
        if self._owed.get(request_id) is exchange:
            del self._owed[request_id]

    def stream_for(self, exchange: RequestExchange) -> ResumableStream:
        """Return what reads the stream that answers an exchange."""
        template = self._get_template() if exchange.can_resume else None
        return ResumableStream(self, exchange, template, self.options.retry.max_attempts, must_resume=True)

    def _get_template(self) -> RequestTemplate:
        return self.sender.template("GET", self.url, [*_GET_FIELDS, *self._session_fields()])

    def pause(self) -> None:
        self.is_paused = True
        for stream in list(self.streams):
            stream.pause()

    def resume(self) -> None:
        self.is_paused = False
        for stream in list(self.streams):
            stream.resume()

    # The session

    def session_begins(self, response: ClientResponse) -> str | None:
        """Take the session id from the answer to ``initialize`` (B3).

        Raises:
            ProtocolError: it is none: not visible ASCII, too long, or there are two.
        """
        found = response.headers.getall(SESSION_HEADER)
        if not found:
            return None
        session_id = found[0]
        if len(set(found)) > 1:
            raise ProtocolError("answer to initialize has two session ids")
        if len(session_id) > MAX_SESSION_ID_CHARS or _SESSION_ID.fullmatch(session_id) is None:
            raise ProtocolError(
                f"session id of {len(session_id)} characters is not visible ASCII of at most {MAX_SESSION_ID_CHARS}"
            )
        self.session_id = session_id
        self._post_template = None
        return session_id

    def _agreed(self, answer: Response | ErrorResponse) -> None:
        """``initialize`` was answered: its revision is for all that follows."""
        result = answer.result if isinstance(answer, Response) else None
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if isinstance(version, str) and len(version) < 100 and _SESSION_ID.fullmatch(version):
            self.use(version)
        else:
            self.session_id = None
            self._post_template = None

    def _forget_session(self) -> None:
        """Begin anew, so that nothing of an earlier session or probe is left."""
        self.session_id = None
        self.use(None)
        self._stop_listening()

    def session_ended(self, session_id: str, *, was_refused: bool = True) -> SessionTerminated:
        """The server answered 404: forget the session, unless there is another one already (B4)."""
        if self.session_id == session_id:
            self.session_id = None
            self._post_template = None
            self._stop_listening()
        return SessionTerminated("server answered 404 for the session, it is over", was_refused=was_refused)

    # Listening

    def _listen(self) -> None:
        wanted = self.options.continuous_listening
        has_stream = self.revision is None or self.revision.has_sessions
        if self._is_closed or not has_stream or not (self.session_id is not None if wanted is None else wanted):
            return
        self._stop_listening()
        self._standing = StandingStream(self, self._get_template(), self.session_id)

    def _stop_listening(self) -> None:
        standing, self._standing = self._standing, None
        if standing is not None:
            standing.close()

    # The end

    def abort(self) -> None:
        self._is_closed = True
        self._receiver = None
        self._stop_listening()
        for exchange in list(self.exchanges):
            exchange.cancel()
        for post in list(self._posts):
            post.cancel()

    async def aclose(self) -> None:
        self.abort()
        session_id, self.session_id = self.session_id, None
        try:
            if session_id is not None and self.options.terminate_on_close:
                await self._delete(session_id)
        finally:
            await self.sender.aclose()

    async def _delete(self, session_id: str) -> None:
        """Tell the server that the session is over (L25-C-11, B10). However it answers, it is over for us."""
        fields = [(SESSION_HEADER, session_id)]
        if self._version is not None and (self.revision is None or self.revision.has_version_header):
            fields.append(("mcp-protocol-version", self._version))
        done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def on_head(response: ClientResponse | None, error: Exception | None) -> None:
            trouble = str(error) if error is not None else None
            if response is not None:
                response.discard()
                if not (200 <= response.status < 300 or response.status in (404, 405)):
                    trouble = f"status {response.status}"
            if not done.done():
                done.set_result(trouble)

        attempt = None
        try:
            attempt = self.sender.start(self.sender.template("DELETE", self.url, fields), on_head, urgent=True)
            trouble = await asyncio.wait_for(done, DELETE_TIMEOUT_S)
        except asyncio.TimeoutError:
            trouble = f"no answer within {DELETE_TIMEOUT_S:g} s"
        except Exception as error:  # header_func's
            trouble = str(error)
        finally:
            if attempt is not None:
                attempt.cancel()
        if trouble is not None:
            self.options.logger.warning("session could not be deleted on the server: %s", trouble)
