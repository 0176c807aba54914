"""One request under an ASGI server.

Who runs what::

    the server's task    builds the request, calls the handler, then sends what the responder queued
    the handler's task   only if the handler returned an awaitable
    the receiver's task  only once the answer is a stream, or the handler takes its time: it sees
                         the client leave, and takes in what is left of the body

An answer that is complete when its handler returns costs no task and no waiting. ``receive`` has one
caller at any time: the receiver if there is one, else whoever reads the body.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import TransportClosed
from ._backlog import Backlog
from ._h1_head import NO_BODY_STATUSES, encode_head
from ._running import answer_failure, start_task
from .deadlines import Deadline, Deadlines
from .interface import BodyTooLarge, ClientDisconnected, Headers, Request
from .limits import MIN_BODY_BYTES_PER_S

if TYPE_CHECKING:
    from .asgi import ASGIApp
    from .interface import HeaderList

__all__ = ["ASGIExchange", "Message", "Receive", "Scope", "Send"]

Scope: TypeAlias = "MutableMapping[str, Any]"
Message: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[Message]]"
Send: TypeAlias = "Callable[[Message], Awaitable[None]]"

# A body announced to be no larger is read before the handler is called, which can then answer at once.
_READ_AHEAD_BYTES = 64 << 10
# A handler at work for so long is worth a task that watches for its client to leave.
_WATCH_AFTER_S = 0.05
_CANCEL_WAIT_S = 1.0


class ASGIExchange:
    """Is the :class:`mcpfast.http.interface.Responder` of its request as well."""

    __slots__ = (
        "_app",
        "_backlog",
        "_body",
        "_body_is_complete",
        "_callbacks",
        "_changed",
        "_deadlines",
        "_handler_task",
        "_has_no_body",
        "_head",
        "_is_disconnected",
        "_is_ended",
        "_is_interrupted",
        "_is_reading",
        "_is_sending",
        "_is_watch_wanted",
        "_length",
        "_loop",
        "_queue",
        "_queued_bytes",
        "_receive",
        "_received",
        "_receiver_task",
        "_send",
        "_task",
        "_waiter",
        "_watch_timer",
        "bytes_out",
        "last_message_bytes",
        "request",
        "status",
    )

    def __init__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        self._app = app
        self._receive = receive
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines.for_loop(self._loop)
        self._task = asyncio.current_task(self._loop)
        self._handler_task: asyncio.Future[None] | None = None
        self._receiver_task: asyncio.Task[None] | None = None
        self._watch_timer: Deadline | None = None
        # The request's body.
        self._length = 0  # as announced
        self._received = 0
        self._body = bytearray()
        self._body_is_complete = True
        self._is_reading = False
        self._is_watch_wanted = False
        self._changed: asyncio.Event | None = None  # the receiver's news for who reads the body
        # The answer.
        self.status = 0
        self._head: list[tuple[bytes, bytes]] | None = None  # to be sent
        self._has_no_body = False
        self._queue: list[bytes] = []
        self._queued_bytes = 0  # in _queue, or on the way in a send() that has not returned
        self._is_ended = False
        self._is_disconnected = False
        self._callbacks: list[Callable[[], None]] = []
        self._waiter: asyncio.Future[None] | None = None  # the server's task waits here for output
        self._is_sending = False  # it is in send()
        self._is_interrupted = False  # the server's task was cancelled by ourselves
        self.bytes_out = 0
        self.last_message_bytes = 0
        self._backlog: Backlog | None = None  # not None: more than the limit is unsent
        self.request = self._build_request(scope)

    def _build_request(self, scope: Scope) -> Request:
        # Servers lower names; uvicorn on httptools leaves white space after values.
        fields = [(bytes(name), bytes(value).strip(b" \t")) for name, value in scope["headers"]]
        announced: bytes | None = None
        may_have_body = not str(scope.get("http_version", "1.1")).startswith("1")
        for name, value in fields:
            if name == b"content-length":
                announced = value
            elif name == b"transfer-encoding":
                may_have_body = True
        if announced is not None:
            self._length = int(announced) if announced.isdigit() and len(announced) <= 18 else 0
            may_have_body = self._length > 0
        if may_have_body:
            self._body_is_complete = False
        root_path = scope.get("root_path", "").rstrip("/")
        path: str = scope["path"]
        # ASGI has paths include the root path; servers and frameworks that leave it out still exist.
        if root_path and path.startswith(root_path) and path[len(root_path) : len(root_path) + 1] in ("", "/"):
            path = path[len(root_path) :]
        client = scope.get("client")
        request = Request(
            scope["method"],
            path or "/",
            scope.get("query_string", b"").decode("latin-1"),
            Headers(fields),
            client=None if client is None else (client[0], client[1]),
            scheme=scope.get("scheme", "http"),
            root_path=root_path,
            body=None if may_have_body else b"",
            receive_body=self._receive_body,
            extensions={"asgi": scope},
        )
        request.state = self._app.state
        return request

    # The server's task

    async def run(self) -> None:
        """Serve the request, until its answer is sent or its client has left."""
        try:
            await self._read_ahead()
            if not self.is_ended:
                self._call_handler()
            await self._send_queued()
            if self._handler_task is not None and not self._is_disconnected:
                await asyncio.wait([self._handler_task])  # it may have work to do after its answer
        except asyncio.CancelledError:
            # By abort(), or by a server that stops: then the handler is told, and the answer completed,
            # so that clients see a clean end and the server has nothing to complain of.
            if not self._is_interrupted:
                await self._finish_early()
        except OSError:
            pass  # how ASGI's send() says that the client has left
        finally:
            self.disconnect("client")
            self._end_backlog()
            if self._watch_timer is not None:
                self._watch_timer.cancel()
            await self._end_tasks()

    async def _read_ahead(self) -> None:
        """Read a small body before the handler is called, which can then do without a task."""
        if 0 < self._length <= min(_READ_AHEAD_BYTES, self._app.limits.max_body_bytes):
            if self.request.headers.find(b"expect") is not None:
                return  # the handler may refuse before the client is asked for the body
            try:
                self.request._body = await self._receive_body(None)
            except ClientDisconnected:
                self.disconnect("client")

    def _call_handler(self) -> None:
        try:
            awaitable = self._app.handler(self.request, self)
        except Exception as error:
            self._handler_failed(error)
            return
        if awaitable is not None:
            self._start_task(awaitable)
        elif not self.is_ended:
            self._watch()

    async def _send_queued(self) -> None:
        while True:
            if self._is_disconnected and not self._is_ended:
                return
            if self._head is not None:
                head, self._head = self._head, None
                await self._transmit({"type": "http.response.start", "status": self.status, "headers": head})
            elif self._queue:
                data = self._queue[0] if len(self._queue) == 1 else b"".join(self._queue)
                self._queue.clear()
                is_last = self._is_ended
                await self._transmit({"type": "http.response.body", "body": data, "more_body": not is_last})
                self._sent(len(data))
                if is_last:
                    return
            elif self._is_ended:
                await self._transmit({"type": "http.response.body", "body": b"", "more_body": False})
                return
            else:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None

    async def _transmit(self, message: Message) -> None:
        self._is_sending = True
        try:
            await self._send(message)
        finally:
            self._is_sending = False

    async def _finish_early(self) -> None:
        is_head_sent = self.status != 0 and self._head is None
        self.disconnect("cancelled")
        try:
            if not is_head_sent:
                await self._send({"type": "http.response.start", "status": 503, "headers": []})
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            pass  # nobody is there to see it

    async def _end_tasks(self) -> None:
        tasks = [task for task in (self._handler_task, self._receiver_task) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_WAIT_S)

    # The handler's task

    def _start_task(self, awaitable: Awaitable[None]) -> None:
        task = start_task(awaitable, self._loop)
        if task.done():
            self._task_done(task)
            if not self.is_ended:
                self._watch()  # it keeps the answer open
            return
        self._handler_task = task
        task.add_done_callback(self._task_done)
        if self.status:
            self._watch()
        else:
            self._watch_timer = self._deadlines.after(_WATCH_AFTER_S, self._watch)

    def _task_done(self, task: asyncio.Future[None]) -> None:
        if task.cancelled():
            self.abort("handler_cancelled")
        else:
            error = task.exception()
            if error is not None:
                self._handler_failed(error)

    def _handler_failed(self, error: BaseException) -> None:
        answer_failure(self.request, self, error, self._app.count_refused)

    # The receiver's task, and the body

    def _watch(self) -> None:
        """Have a task see the client leave, from when nobody else waits for its body."""
        self._is_watch_wanted = True
        if self._receiver_task is None and not self._is_reading and not self.is_ended:
            self._receiver_task = self._loop.create_task(self._receive_all())

    async def _receive_all(self) -> None:
        try:
            while not self._take(await self._receive()):
                pass
        except OSError:
            self.disconnect("client")

    def _take(self, message: Message) -> bool:
        """Take in one message; True if the client has left."""
        if message["type"] == "http.disconnect":
            self.disconnect("client")
            return True
        data = message.get("body", b"")
        self._received += len(data)
        self._app.bytes_in += len(data)
        if self._received <= self._app.limits.max_body_bytes:
            self._body += data
        else:
            self._body.clear()
        self._body_is_complete = not message.get("more_body", False)
        if self._changed is not None:
            self._changed.set()
        return False

    async def _receive_body(self, limit: int | None) -> bytes:
        limits = self._app.limits
        most = limits.max_body_bytes if limit is None else min(limit, limits.max_body_bytes)
        # Time for what has come, as on the native server: a trickle must not hold a connection for days.
        slowest = self._deadlines.now() + limits.body_timeout_s
        while max(self._received, self._length) <= most:
            if self._body_is_complete:
                return bytes(self._body)
            if self._is_disconnected:
                raise ClientDisconnected("the client left in the middle of its request's body")
            if self._receiver_task is not None or self._is_reading:
                if self._changed is None:
                    self._changed = asyncio.Event()
                self._changed.clear()
                await self._changed.wait()
                continue
            left = slowest + self._received / MIN_BODY_BYTES_PER_S - self._deadlines.now()
            await self._receive_within(min(left, limits.body_timeout_s))
        raise BodyTooLarge(most)

    async def _receive_within(self, seconds: float) -> None:
        """Take in one message in the current task; refuse the request if none comes in time."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        is_late = False

        def expire() -> None:
            nonlocal is_late
            is_late = True
            task.cancel()

        deadline = self._deadlines.after(seconds, expire)
        self._is_reading = True
        try:
            self._take(await self._receive())
        except asyncio.CancelledError:
            if not is_late:
                raise
            if sys.version_info >= (3, 11):
                task.uncancel()
            self._refuse_late_body()
        finally:
            deadline.cancel()
            self._is_reading = False
            if self._changed is not None:
                self._changed.set()
            if self._is_watch_wanted and self._body_is_complete:
                self._watch()

    def _refuse_late_body(self) -> None:
        self._app.count_refused("body_timeout")
        if self.status:
            self.abort("body_timeout")
        else:
            # To the handler its client is gone; to the client there is still an answer.
            self.respond(408)
            self._tell_disconnected()

    # The Responder

    @property
    def is_started(self) -> bool:
        return self.status != 0

    @property
    def is_ended(self) -> bool:
        return self._is_ended or self._is_disconnected

    @property
    def is_disconnected(self) -> bool:
        return self._is_disconnected

    @property
    def unsent_bytes(self) -> int:
        return self._queued_bytes

    def start(self, status: int, headers: HeaderList) -> None:
        if self._is_disconnected:
            return
        self._begin(status, headers)
        # An answer in pieces takes its time, as a rule: the client may leave before its end.
        if self._handler_task is not None:
            self._watch()
        self._wake()

    def respond(self, status: int, headers: HeaderList = (), body: bytes = b"") -> None:
        if self._is_disconnected:
            return
        head = self._begin(status, headers)
        if status not in NO_BODY_STATUSES:
            head.append((b"content-length", b"%d" % len(body)))
        self.write(body)
        self.end()

    def write(self, data: bytes) -> None:
        if self._is_disconnected:
            return
        if not self.status or self._is_ended:
            raise RuntimeError("write after end" if self.status else "write before start")
        if not data or self._has_no_body:
            return
        size = len(data)
        self._app.bytes_out += size
        self._queue.append(data)
        self._queued_bytes += size
        self.bytes_out += size
        self.last_message_bytes = size
        if self._queued_bytes > self._app.limits.max_unsent_bytes and self._backlog is None:
            self._backlog = Backlog(self, self._app.limits, self._deadlines)
        self._wake()

    def end(self) -> None:
        if self._is_disconnected or self._is_ended:
            return
        if not self.status:
            raise RuntimeError("end before start")
        self._is_ended = True
        self._callbacks.clear()
        self._wake()

    async def drain(self) -> None:
        while self._backlog is not None:
            await self._backlog.wait()
        if self._is_disconnected:
            raise TransportClosed("the client has left")

    def abort(self, reason: str) -> None:
        """Return to the server without completing the answer: it closes the connection then."""
        if self.is_ended:
            return
        self.disconnect(reason)
        if self._is_sending and self._task is not None:
            self._is_interrupted = True
            self._task.cancel()

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        if self._is_disconnected:
            callback()
        elif not self._is_ended:
            self._callbacks.append(callback)

    def _begin(self, status: int, headers: HeaderList) -> list[tuple[bytes, bytes]]:
        if self.status:
            raise RuntimeError("the answer was started before")
        encode_head(status, headers)  # not all servers refuse what would split the answer
        self.status = status
        self._has_no_body = self.request.method == "HEAD" or status in NO_BODY_STATUSES
        self._head = list(headers)
        return self._head

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The client that leaves, and the one that reads slowly

    def disconnect(self, reason: str) -> None:
        """The client has left, or is dropped: tell the handler, unless the answer is complete."""
        if self.is_ended:
            return
        self._app.count_closed(reason)
        self._head = None
        self._queue.clear()
        self._tell_disconnected()
        self._wake()

    def _tell_disconnected(self) -> None:
        self._is_disconnected = True
        if self._changed is not None:
            self._changed.set()
        self._end_backlog()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                self._loop.call_exception_handler({"message": "a disconnect callback failed", "exception": error})
        task = self._handler_task
        if task is not None and task is not asyncio.current_task(self._loop):
            task.cancel()

    def _sent(self, size: int) -> None:
        self._queued_bytes -= size
        if self._queued_bytes <= self._app.limits.max_unsent_bytes:
            self._end_backlog()

    def _end_backlog(self) -> None:
        if self._backlog is not None:
            self._backlog.close()
            self._backlog = None
