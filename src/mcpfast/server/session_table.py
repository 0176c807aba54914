"""The sessions of one Streamable HTTP handler: how they begin, how requests find theirs, how all of them end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from secrets import token_hex
from typing import Any, TypeAlias

from ..errors import ProtocolError
from ..http.interface import Request, Responder
from ..jsonrpc import Message
from ..jsonrpc import Request as RPCRequest
from ..protocol.era import legacy_version
from ..protocol.http_session import NO_SESSION_ID, UNKNOWN_SESSION, EventId, HTTPSession, wire_revision
from ..protocol.refusal import Refusal
from ..protocol.revisions import REVISIONS
from ..protocol.standard_headers import VERSION_HEADER, find_repeated
from .answer import NOT_ACCEPTABLE, Answer, Form, Takes, form_of
from .context import Peer
from .finder import Finder
from .gate import FAILED, refuse
from .hosting import Hosted
from .principal import Principal, is_owner
from .shared import Shared
from .sse_post import INITIALIZE_TOO_LARGE, MAX_INITIALIZE_BYTES, NO_BATCHES
from .streamable_session import StreamableSession

__all__ = ["STOPPING", "SessionTable"]

logger = logging.getLogger("mcpfast.server")

Body: TypeAlias = "Message | list[Message | ProtocolError]"

SESSION_HEADER = b"mcp-session-id"
EVENT_HEADER = b"last-event-id"
_ONCE = frozenset({VERSION_HEADER, SESSION_HEADER, EVENT_HEADER})
_FIRST = "2025-03-26"
"""The revision of a request that names none (L25-S-22)."""

STOPPING = Refusal(503, "stopping", "server is stopping")
INITIALIZED = Refusal(400, "initialized", "session is initialized already")
INITIALIZE_IN_BATCH = Refusal(400, "batch", "initialize must not be part of a batch")


class SessionTable:
    """Serves what belongs to the revisions with ``initialize``, for one handler."""

    def __init__(self, shared: Shared, finder: Finder) -> None:
        self._shared = shared
        self._finder = finder
        self._sessions: dict[str, StreamableSession] = {}
        self._unnamed: set[StreamableSession] = set()  # those that serve a single POST
        self.is_stopping = False
        """No session and no GET stream begins any more."""
        self._is_hurried = False
        self._emptied: asyncio.Future[None] | None = None  # while drain() waits for sessions to end

    def _refuse(self, refusal: Refusal, responder: Responder) -> None:
        refuse(refusal, responder, self._shared.stats)

    # POST

    def receive(
        self,
        message: Body,
        size: int,
        principal: Principal | None,
        takes: Takes,
        request: Request,
        responder: Responder,
    ) -> Awaitable[None] | None:
        """Serve what a POST holds.

        Args:
            size: bytes of the body.
        """
        options = self._shared.options
        form = form_of(takes, options.responses)
        if form is None:
            self._refuse(NOT_ACCEPTABLE, responder)
            return None
        is_initialize = type(message) is RPCRequest and message.method == "initialize"
        if is_initialize and size > MAX_INITIALIZE_BYTES:
            self._refuse(INITIALIZE_TOO_LARGE, responder)
            return None
        version = self._legacy_version(request, getattr(message, "id", None))
        if isinstance(version, Refusal):
            self._refuse(version, responder)
            return None
        if options.stateless:
            return self._serve_once(message, version, form, principal, request, responder)
        if is_initialize and request.headers.find(SESSION_HEADER) is None:
            return self._initialize(message, form, principal, request, responder)  # type: ignore[arg-type]
        session = self._session_of(principal, request)
        if isinstance(session, Refusal):
            self._refuse(session, responder)
            return None
        session.touch()
        self._hand_over(session, message, form, request, responder)
        return None

    def _legacy_version(self, request: Request, id: Any) -> str | Refusal | None:
        """Return the revision the header names (C057). One that came twice is none."""
        headers = request.headers
        repeated = find_repeated(headers.raw, _ONCE)
        if repeated is not None:
            return Refusal(400, "repeated_header", f"{repeated} header came more than once", id=id)
        version = legacy_version(headers.find(VERSION_HEADER))
        if isinstance(version, Refusal):
            return Refusal(version.status, version.reason, version.message, version.code, id, data=version.data)
        return version

    def _session_of(self, principal: Principal | None, request: Request) -> StreamableSession | Refusal:
        """Return the session a request names; somebody else's is not told apart from one that is not there (C065)."""
        version = self._legacy_version(request, None)
        if isinstance(version, Refusal):
            return version
        session_id = request.headers.find(SESSION_HEADER)
        if session_id is None:
            return NO_SESSION_ID
        session = self._sessions.get(session_id.decode("latin-1"))
        if session is None or not is_owner(session.peer.principal, principal):
            return UNKNOWN_SESSION
        return session

    def _hand_over(
        self,
        session: StreamableSession,
        message: Body,
        form: Form,
        request: Request,
        responder: Responder,
    ) -> None:
        stats = self._shared.stats
        if type(message) is list:
            if not session.machine.revision.accepts_batches:
                self._refuse(NO_BATCHES, responder)
                return
            if any(type(member) is RPCRequest and member.method == "initialize" for member in message):
                self._refuse(INITIALIZE_IN_BATCH, responder)
                return
            stats.messages_in += len(message)
            session.receive_batch(message, form, request, responder)
            return
        assert not isinstance(message, list)
        if type(message) is RPCRequest and message.method == "initialize" and session.peer.session_id is not None:
            self._refuse(INITIALIZED, responder)
            return
        stats.messages_in += 1
        session.receive(message, form, request, responder)

    def _initialize(
        self,
        message: RPCRequest,
        form: Form,
        principal: Principal | None,
        request: Request,
        responder: Responder,
    ) -> Awaitable[None] | None:
        """Open a session (L25-S-18)."""

        def serve(hosted: Hosted) -> None:
            refusal: Refusal | None = None
            try:
                refusal = self._open(hosted, message, form, principal, responder)
            except Exception:
                logger.exception("a session could not be opened")
                refusal = FAILED
            if refusal is not None:
                self._refuse(refusal, responder)

        return self._finder.go_on(serve, request, responder)

    def _open(
        self, hosted: Hosted, message: RPCRequest, form: Form, principal: Principal | None, responder: Responder
    ) -> Refusal | None:
        shared, options = self._shared, self._shared.options
        if self.is_stopping:
            return STOPPING
        if len(self._sessions) >= options.max_sessions:
            return Refusal(503, "sessions", f"server has {options.max_sessions} sessions, the limit", id=message.id)
        peer = Peer(principal=principal)
        payload = hosted.server.answer_now(message, peer)
        assert payload is not None
        shared.stats.messages_in += 1
        if peer.protocol_version is None:
            Answer(shared, responder, form).respond(400, payload)
            return None
        session_id = options.new_session_id()
        if session_id in self._sessions:
            raise ValueError("session_id_factory gave an id that is in use")
        peer.session_id = session_id
        machine = HTTPSession(
            wire_revision(REVISIONS[peer.protocol_version]),
            event_tag=None if options.event_store is None else token_hex(6),
            now=shared.loop.time(),
            max_in_flight=options.max_in_flight,
            max_backlog=options.max_backlog_messages,
            max_backlog_bytes=options.max_unsent_bytes,
            idle_s=options.session_idle_s,
            follow_up_s=options.session_follow_up_s,
        )
        session = StreamableSession(shared, hosted, peer, machine, self._forget)
        if options.on_connection is not None:
            options.on_connection(session)
        self._sessions[session_id] = session
        shared.stats.sessions += 1
        session.open()
        Answer(shared, responder, form).respond(200, payload, ((SESSION_HEADER, session_id.encode("ascii")),))
        return None

    def _serve_once(
        self,
        message: Body,
        version: str | None,
        form: Form,
        principal: Principal | None,
        request: Request,
        responder: Responder,
    ) -> Awaitable[None] | None:
        """Serve a POST by itself: it is of the revision its header names, else of the first one (L25-S-22)."""
        is_initialize = type(message) is RPCRequest and message.method == "initialize"
        peer = Peer(principal=principal, protocol_version=None if is_initialize else version or _FIRST)

        def serve(hosted: Hosted) -> None:
            machine = HTTPSession(
                wire_revision(REVISIONS[version or _FIRST]),
                event_tag=None,
                now=self._shared.loop.time(),
                max_in_flight=self._shared.options.max_in_flight,
            )
            session = StreamableSession(self._shared, hosted, peer, machine, self._forget_unnamed)
            self._unnamed.add(session)
            self._hand_over(session, message, form, request, responder)
            session.end_if_served()

        return self._finder.go_on(serve, request, responder)

    # GET and DELETE

    def get(self, principal: Principal | None, request: Request, responder: Responder) -> Awaitable[None] | None:
        """Begin the standing stream of a session, or take one of its streams up again."""
        session = self._session_of(principal, request)
        if isinstance(session, Refusal):
            self._refuse(session, responder)
            return None
        session.touch()
        if self.is_stopping:
            self._refuse(STOPPING, responder)
            return None
        last_event_id = request.headers.find(EVENT_HEADER)
        if last_event_id:
            place = session.machine.locate(last_event_id.decode("latin-1"))
            if not isinstance(place, Refusal):
                return self._resume(session, place, responder)
            refusal: Refusal | None = place
        else:
            refusal = session.streams.listen(responder)
        if refusal is not None:
            self._refuse(refusal, responder)
        return None

    def delete(self, principal: Principal | None, request: Request, responder: Responder) -> None:
        """End a session for its client (L25-S-21)."""
        session = self._session_of(principal, request)
        if isinstance(session, Refusal):
            self._refuse(session, responder)
        else:
            session.end("deleted")
            responder.respond(200)

    async def _resume(self, session: StreamableSession, place: EventId, responder: Responder) -> None:
        refusal = await session.streams.resume(place, responder)
        if refusal is not None:
            self._refuse(refusal, responder)

    # The end

    def _forget(self, session: StreamableSession, reason: str) -> None:
        assert session.peer.session_id is not None
        del self._sessions[session.peer.session_id]
        self._shared.stats.sessions -= 1
        self._shared.stats.end(reason)
        self._wake_drain()

    def _forget_unnamed(self, session: StreamableSession, reason: str) -> None:
        self._unnamed.discard(session)

    def _wake_drain(self) -> None:
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    async def drain(self, grace_s: float) -> None:
        """End all sessions: idle ones now, others when what they run has ended or the grace is over."""
        self.is_stopping = True
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + grace_s
        while True:
            for session in list(self._sessions.values()):
                if session.is_idle:
                    session.end("shutdown", STOPPING)
            left = give_up_at - loop.time()
            if not (self._sessions or self._unnamed) or left <= 0 or self._is_hurried:
                break
            self._emptied = loop.create_future()
            await asyncio.wait([self._emptied], timeout=min(left, 0.05))
        for session in [*self._sessions.values(), *self._unnamed]:
            session.end("shutdown", STOPPING)

    def hurry(self) -> None:
        """Let :meth:`drain` wait no longer."""
        self._is_hurried = True
        self._wake_drain()
