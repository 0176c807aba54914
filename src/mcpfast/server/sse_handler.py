"""``SSEHandler``: HTTP+SSE at one URL. GET opens a session, POST feeds it (rows A6 to A12, H24-S-01 to 06)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from ..errors import TransportClosed
from ..http.interface import Request, Responder
from ..protocol.connection import Connection
from ..protocol.endpoint import SESSION_PARAMETER, build_endpoint
from ..protocol.headers import EVENT_STREAM, parse_accept
from ..protocol.refusal import Refusal
from ..protocol.sse_session import MISSING, STOPPING, UNKNOWN, SSESession
from .application import Server
from .context import Peer
from .gate import FAILED, refuse
from .hosting import Hosted
from .options import HANDLER, ServerOptions
from .principal import Principal, is_owner
from .shared import Shared
from .sse_post import receive_post
from .sse_session import SSEServerSession
from .sse_transport import SSEConnection
from .stream import STREAM_HEADERS

__all__ = ["GetServer", "SSEHandler"]

logger = logging.getLogger("mcpfast.server")

RawApplication: TypeAlias = Callable[[Connection], Coroutine[Any, Any, None]]
_Found: TypeAlias = Server | RawApplication | None
GetServer: TypeAlias = Callable[[Request], _Found | Awaitable[_Found]]

_Answer: TypeAlias = Callable[[Principal | None, Request, Responder], Awaitable[None] | None]

_ALLOW = ((b"allow", b"GET, POST, HEAD"),)
NOT_ALLOWED = Refusal(405, "method_not_allowed", "this URL takes GET and POST", headers=_ALLOW)
NOT_ACCEPTABLE = Refusal(406, "not_acceptable", f"the answer is {EVENT_STREAM}, which Accept rules out")

# Ten thousand at once would hold up what still runs.
_ENDED_PER_TURN = 100

_PREFIX = SESSION_PARAMETER + "="


class SSEHandler:
    """A Handler for the one URL of an HTTP+SSE server.

    Args:
        get_server: ``(request) -> server``, sync or async, called for each GET. It gives the Server to serve the
            session with, or an async function that takes a Connection to read the raw messages from (the session ends
            when it returns), or None to refuse with ``no_server_status``. What it raises is answered with 500.
        **options: see :class:`~mcpfast.server.options.ServerOptions`.

    Raises:
        TypeError: an option is not known; the message names those that are.
    """

    def __init__(self, get_server: GetServer, **options: Any) -> None:
        self._begin(get_server, Shared(ServerOptions.of(options, HANDLER, "SSEHandler")))
        warning = self.shared.rules.startup_warning()
        if warning is not None:
            logger.warning("%s", warning)

    @classmethod
    def on(cls, shared: Shared, get_server: GetServer) -> SSEHandler:
        """Return a handler that shares its parts with others of one app, which checks Origin and Host for them."""
        handler = cls.__new__(cls)
        handler._begin(get_server, shared)
        return handler

    def _begin(self, get_server: GetServer, shared: Shared) -> None:
        self.shared = shared
        self._gate = shared.gate
        self._get_server = get_server
        self._sessions: dict[str, SSEServerSession | SSEConnection] = {}
        self._raw_tasks: dict[str, asyncio.Task[None]] = {}
        self._is_stopping = False
        self._emptied: asyncio.Future[None] | None = None  # while drain() waits for sessions to end

    def __call__(self, request: Request, responder: Responder) -> Awaitable[None] | None:
        """Serve one request: see :data:`~mcpfast.http.interface.Handler`."""
        stranger = self._gate.stranger(request)
        if stranger is not None:
            refuse(stranger, responder, self.shared.stats)
            return None
        return self.serve(request, responder)

    def serve(self, request: Request, responder: Responder) -> Awaitable[None] | None:
        """Serve a request whose Origin and Host were checked."""
        method = request.method
        if method == "POST":
            if not self._gate.asks:
                return self._post(None, request, responder)
            return self._as_principal(self._post, request, responder)
        if method == "GET":
            return self._as_principal(self._get, request, responder)
        if method == "HEAD":
            return self._as_principal(self._head, request, responder)
        refuse(NOT_ALLOWED, responder, self.shared.stats)
        return None

    def _as_principal(self, answer: _Answer, request: Request, responder: Responder) -> Awaitable[None] | None:
        """Let ``answer`` answer a request of somebody known, or of anybody if there is no authentication."""
        gate = self._gate
        if not gate.asks:
            return answer(None, request, responder)
        if gate.is_async:
            # Called in the task: a client that leaves before its first step must not leave a coroutine unawaited.
            return self._when_known(None, answer, request, responder)
        found = gate.principal(request)
        if isinstance(found, Principal):
            return answer(found, request, responder)
        if isinstance(found, Refusal):
            refuse(found, responder, self.shared.stats)
            return None
        return self._when_known(found, answer, request, responder)

    async def _when_known(
        self, found: Awaitable[Principal | Refusal] | None, answer: _Answer, request: Request, responder: Responder
    ) -> None:
        principal = self._gate.principal(request) if found is None else found
        if not isinstance(principal, (Principal, Refusal)):
            principal = await principal
        if isinstance(principal, Refusal):
            refuse(principal, responder, self.shared.stats)
            return
        waiting = answer(principal, request, responder)
        if waiting is not None:
            await waiting

    # POST

    def _post(self, principal: Principal | None, request: Request, responder: Responder) -> Awaitable[None] | None:
        shared = self.shared
        query = request.query_string
        # The common case: nothing else in the query, and nothing encoded.
        session = self._sessions.get(query[len(_PREFIX) :]) if query.startswith(_PREFIX) else None
        if session is None:
            session_id = _session_id(request)
            if session_id is None:
                refuse(MISSING, responder, shared.stats)
                return None
            session = self._sessions.get(session_id)
        # Somebody else's session is not told apart from one that is not there (C065).
        if session is None or not (session.principal is principal or is_owner(session.principal, principal)):
            refuse(UNKNOWN, responder, shared.stats)
            return None
        return receive_post(session, request, responder, shared.stats, shared.options.max_body_bytes)

    # GET

    def _accepts(self, request: Request, responder: Responder) -> bool:
        accept = request.headers.find(b"accept")
        if accept is None or accept == b"text/event-stream":
            return True
        if parse_accept(", ".join(request.headers.getall("accept"))).quality(EVENT_STREAM) > 0:
            return True
        refuse(NOT_ACCEPTABLE, responder, self.shared.stats)
        return False

    def _head(self, principal: Principal | None, request: Request, responder: Responder) -> None:
        if self._accepts(request, responder):
            responder.respond(200, STREAM_HEADERS)

    async def _get(self, principal: Principal | None, request: Request, responder: Responder) -> None:
        if not self._accepts(request, responder):
            return
        refusal = self._no_room()
        if refusal is None:
            try:
                server = self._get_server(request)
                if not isinstance(server, Server) and inspect.isawaitable(server):
                    server = await server
                if isinstance(server, Server):
                    hosted = self.shared.hosting.get(server) or await self.shared.hosting.enter(server)
                    refusal = self._no_room()  # again, as others came while this one waited
                    if refusal is None:
                        self._open(hosted, principal, request, responder)
                elif server is None:
                    refusal = Refusal(self.shared.options.no_server_status, "no_server", "there is no server here")
                else:
                    refusal = self._no_room()
                    if refusal is None:
                        self._open_raw(server, principal, request, responder)
            except Exception:
                logger.exception("a session could not be opened")
                refusal = FAILED
        if refusal is not None:
            refuse(refusal, responder, self.shared.stats)

    def _no_room(self) -> Refusal | None:
        if self._is_stopping:
            return STOPPING
        limit = self.shared.options.max_sessions
        if len(self._sessions) >= limit:
            return Refusal(503, "sessions", f"server has {limit} sessions, the limit")
        return None

    def _new_session(self, request: Request) -> tuple[str, str, SSESession]:
        options = self.shared.options
        session_id = options.new_session_id()
        if session_id in self._sessions:
            raise ValueError("session_id_factory gave an id that is in use")
        endpoint = build_endpoint(request.path, session_id, options.root_path or request.root_path)
        machine = SSESession(max_queued=options.max_queued_messages, max_in_flight=options.max_in_flight)
        return session_id, endpoint, machine

    def _open(self, hosted: Hosted, principal: Principal | None, request: Request, responder: Responder) -> None:
        session_id, endpoint, machine = self._new_session(request)
        peer = Peer(session_id=session_id, principal=principal)
        session = SSEServerSession(self.shared, hosted, endpoint, request, responder, peer, machine, self._forget)
        if self.shared.options.on_connection is not None:
            self.shared.options.on_connection(session)
        self._remember(session_id, session)
        session.open()

    def _open_raw(
        self, application: RawApplication, principal: Principal | None, request: Request, responder: Responder
    ) -> None:
        if not callable(application):
            raise TypeError(f"get_server gave {type(application).__name__}, expected a Server or an async function")
        session_id, endpoint, machine = self._new_session(request)
        options = self.shared.options
        connection = SSEConnection(
            endpoint,
            responder,
            machine,
            self.shared.keepalive,
            self.shared.stats,
            queue_timeout_s=options.queue_timeout_s,
            max_body_bytes=options.max_body_bytes,
            max_unsent_bytes=options.max_unsent_bytes,
        )
        connection.session_id = session_id
        connection.principal = principal
        connection.request = request
        if options.on_connection is not None:
            options.on_connection(connection)
        self._remember(session_id, connection)
        connection.on_closed = lambda reason: self._forget(session_id, reason)
        connection.open()
        if session_id in self._sessions:  # the client has not left meanwhile
            self._raw_tasks[session_id] = self.shared.loop.create_task(_run_raw(application, connection))

    # The table

    def _remember(self, session_id: str, session: SSEServerSession | SSEConnection) -> None:
        self._sessions[session_id] = session
        self.shared.stats.sessions += 1

    def _forget(self, session_id: str, reason: str) -> None:
        del self._sessions[session_id]
        self.shared.stats.sessions -= 1
        self.shared.stats.end(reason)
        task = self._raw_tasks.pop(session_id, None)
        if task is not None:
            task.cancel()
        if self._emptied is not None and not self._sessions and not self._emptied.done():
            self._emptied.set_result(None)

    async def drain(self, grace_s: float | None = None) -> None:
        """End all sessions: idle ones now, others when what they run has ended, at the latest after ``grace_s``.

        From the call on new sessions and requests get 503; answers and cancellations are still taken.
        """
        self._is_stopping = True
        for session in self._sessions.values():
            session.begin_drain()
        grace_s = self.shared.options.shutdown_grace_s if grace_s is None else grace_s
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + grace_s
        while True:
            for number, session in enumerate(list(self._sessions.values()), 1):
                if session.is_idle:
                    session.end("shutdown")
                if number % _ENDED_PER_TURN == 0:
                    await asyncio.sleep(0)
            left = give_up_at - loop.time()
            if not self._sessions or left <= 0:
                break
            self._emptied = loop.create_future()
            await asyncio.wait([self._emptied], timeout=min(left, 0.05))
        self.hurry()

    def hurry(self) -> None:
        """End all sessions now, whatever they run."""
        for session in list(self._sessions.values()):
            session.end("shutdown")

    async def aclose(self) -> None:
        """Drain, then leave the lifespans of the servers. For a handler that is used without an app."""
        await self.drain()
        await self.shared.hosting.aclose()


async def _run_raw(application: RawApplication, connection: SSEConnection) -> None:
    try:
        await application(connection)
    except TransportClosed:
        pass  # the client left while it was being read from or written to
    except Exception:
        logger.exception("the application of a connection failed")
    finally:
        connection.end("server_closed")


def _session_id(request: Request) -> str | None:
    """Return the session id of a POST; None if there is not exactly one."""
    values = set(request.query.get(SESSION_PARAMETER, ()))
    return values.pop() or None if len(values) == 1 else None
