"""The load: sessions that call a tool in a closed loop and check every answer.

Closed loop: each session sends its next call when the last one is answered, as an agent does, so the
number of sessions is the number of calls in flight. Each call carries a payload of its own, and a wrong
or missing answer ends the run with `LoadError`: speed with wrong answers is not reported.

A way to call is a class with the members of `Session`. A transport to come adds one; the loop stays.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import orjson

from benchmarks.e2e.wire import Events, Exchanges, LoadError, Target, connect, failing

__all__ = [
    "HTTPSSESession",
    "JSONSession",
    "LoadResult",
    "Session",
    "closed_loop",
    "open_callers",
    "open_sessions",
    "quantile",
]

_OPENING_AT_ONCE = 32
_TIMEOUT_S = 120
"""No step of a run takes this long. It only turns a hang into an error."""

S = TypeVar("S", bound="Session")


class Session(Protocol):
    """One client of the server under load."""

    on_lost: Callable[[LoadError], None]

    async def open(self, target: Target, posts: Exchanges) -> None:
        """Get ready to call over ``posts``, which is connected."""

    def call(self, request: bytes, answer: Callable[[bytes], None]) -> None:
        """Send a JSON-RPC request; ``answer`` gets the answer's bytes when the exchange is over."""

    def close(self) -> None:
        """Leave."""


class JSONSession:
    """A caller without a session: each POST brings its answer as JSON.

    Attributes:
        on_notification: never called; there is no stream.
    """

    def __init__(self) -> None:
        self.on_notification: Callable[[bytes], None] = lambda message: None
        self._posts = Exchanges()
        self._post_head = b""
        self._answer: Callable[[bytes], None] | None = None

    @property
    def on_lost(self) -> Callable[[LoadError], None]:
        return self._posts.on_lost

    @on_lost.setter
    def on_lost(self, callback: Callable[[LoadError], None]) -> None:
        self._posts.on_lost = callback

    async def open(self, target: Target, posts: Exchanges) -> None:
        """Take ``posts`` for the calls. There is no handshake."""
        self._posts = posts
        self._post_head = target.post_head("/mcp")

    def call(self, request: bytes, answer: Callable[[bytes], None]) -> None:
        self._answer = answer
        self._posts.send(_framed(self._post_head, request), self._answered)

    def close(self) -> None:
        pass

    def _answered(self, status: int, body: bytes) -> None:
        if status != 200:
            raise LoadError(f"a POST brought status {status}")
        assert self._answer is not None
        self._answer(body)


class HTTPSSESession:
    """One session of 2024-11-05: a GET stream, and a connection for POSTs that others may share.

    A call is over when both its POST is accepted and its answer has come on the stream, in either order.

    Attributes:
        on_notification: gets each message that is no answer.
        first_byte_s: seconds from sending the GET to the first byte of its answer.
    """

    def __init__(self) -> None:
        self.events = Events(self._received)
        self.on_notification: Callable[[bytes], None] = lambda message: None
        self.first_byte_s = 0.0
        self._posts = Exchanges()
        self._post_head = b""
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answer: Callable[[bytes], None] | None = None
        self._message: bytes | None = None
        self._is_accepted = False

    @property
    def on_lost(self) -> Callable[[LoadError], None]:
        return self.events.on_lost

    @on_lost.setter
    def on_lost(self, callback: Callable[[LoadError], None]) -> None:
        self.events.on_lost = self._posts.on_lost = callback

    async def open(self, target: Target, posts: Exchanges) -> None:
        """Open the stream, then do the handshake of the protocol over ``posts``."""
        self._posts = posts
        self.on_lost = failing(self._endpoint)
        await connect(target, self.events)
        sent_at = time.perf_counter()
        self.events.open(target.get("/sse"))
        path = await self._endpoint
        assert self.events.first_byte_at is not None
        self.first_byte_s = self.events.first_byte_at - sent_at
        self.use(target, path, posts)
        _check_initialized(await self.exchange(_INITIALIZE))
        status, _ = await posts.exchange(_framed(self._post_head, _INITIALIZED))
        if status != 202:
            raise LoadError(f"notifications/initialized brought status {status}")

    def use(self, target: Target, path: str, posts: Exchanges) -> None:
        """Post to ``path`` over ``posts`` from now on."""
        self._posts = posts
        self._post_head = target.post_head(path)

    async def exchange(self, request: bytes) -> bytes:
        """Call and wait: for what is not timed."""
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        on_lost, self.on_lost = self.on_lost, failing(done)
        try:
            self.call(request, done.set_result)
            return await asyncio.wait_for(done, _TIMEOUT_S)
        finally:
            self.on_lost = on_lost

    def call(self, request: bytes, answer: Callable[[bytes], None]) -> None:
        self._answer = answer
        self._message = None
        self._is_accepted = False
        self._posts.send(_framed(self._post_head, request), self._accepted)

    def close(self) -> None:
        self.events.close()

    def _accepted(self, status: int, body: bytes) -> None:
        if status != 202:
            raise LoadError(f"a POST brought status {status}")
        self._is_accepted = True
        if self._message is not None:
            self._finish()

    def _received(self, name: str, data: bytes) -> None:
        if name == "endpoint":
            self._endpoint.set_result(data.decode())
        elif self._answer is None or b'"id"' not in data:
            self.on_notification(data)
        else:
            self._message = data
            if self._is_accepted:
                self._finish()

    def _finish(self) -> None:
        answer, self._answer = self._answer, None
        message, self._message = self._message, None
        assert answer is not None
        assert message is not None
        answer(message)


@dataclass(frozen=True)
class LoadResult:
    """What one turn of the closed loop brought.

    Attributes:
        calls: calls answered, each answer checked.
        seconds: from the first call sent to the last answer.
        latencies_s: seconds from sending a call to the end of its exchange, sorted.
    """

    calls: int
    seconds: float
    latencies_s: Sequence[float]

    @property
    def per_second(self) -> float:
        return self.calls / self.seconds

    @property
    def p50_s(self) -> float:
        return statistics.median(self.latencies_s)

    @property
    def p99_s(self) -> float:
        return quantile(self.latencies_s, 0.99)


class _ClosedLoop:
    """The state of one turn: who has sent what, and when. Runs in callbacks, without a task per session."""

    def __init__(self, sessions: Sequence[Session], calls: int, seconds: float, text_size: int) -> None:
        self._sessions = sessions
        self._calls = calls
        self._seconds = seconds
        self._padding = "x" * text_size
        self._text_size = text_size
        self._sent = 0
        self._running = 0
        self._latencies: list[float] = []
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> LoadResult:
        fail = failing(self._done)
        before = [session.on_lost for session in self._sessions]
        for session in self._sessions:
            session.on_lost = fail
        start = time.perf_counter()
        self._deadline = start + self._seconds
        for session in self._sessions:
            if self._sent < self._calls:
                self._running += 1
                self._next(session)
        await asyncio.wait_for(self._done, _TIMEOUT_S)
        took = time.perf_counter() - start
        for session, on_lost in zip(self._sessions, before, strict=True):
            session.on_lost = on_lost
        return LoadResult(len(self._latencies), took, sorted(self._latencies))

    def _next(self, session: Session) -> None:
        self._sent = number = self._sent + 1
        text = f"{number:x}-{self._padding}"[: self._text_size]
        started = time.perf_counter()

        def answered(message: bytes) -> None:
            now = time.perf_counter()
            self._latencies.append(now - started)
            _check_answer(message, number, text)
            if self._sent < self._calls and now < self._deadline:
                self._next(session)
            else:
                self._running -= 1
                if self._running == 0 and not self._done.done():
                    self._done.set_result(None)

        session.call(_call(number, text), answered)


async def closed_loop(
    sessions: Sequence[Session], *, calls: int = 1 << 62, seconds: float = 1e9, text_size: int = 64
) -> LoadResult:
    """Call the echo tool from every session at once until ``calls`` were sent or ``seconds`` are over.

    Args:
        text_size: characters each call carries and gets back.

    Raises:
        LoadError: an answer was wrong, or a connection was lost.
    """
    return await _ClosedLoop(sessions, calls, seconds, text_size).run()


@asynccontextmanager
async def open_callers(kind: Callable[[], S], target: Target, count: int, *, shared: int = 0) -> AsyncIterator[list[S]]:
    """Open ``count`` sessions and do their handshakes.

    Args:
        kind: how they call.
        shared: POST connections for all of them together; 0 gives each session its own. Sessions that
            share one must not call at the same time.

    Raises:
        LoadError: at the end, if one of them was lost while nobody looked.
    """
    sessions: list[S] = []
    lost: list[LoadError] = []
    connections: list[Exchanges] = []
    remaining = iter(range(count))

    async def worker() -> None:
        posts: Exchanges | None = None
        for _ in remaining:
            if posts is None or not shared:
                posts = Exchanges()
                await connect(target, posts)
                connections.append(posts)
            session = kind()
            sessions.append(session)
            await session.open(target, posts)
            session.on_lost = lost.append

    try:
        await _all(worker() for _ in range(min(count, shared or _OPENING_AT_ONCE)))
        yield sessions
        if lost:
            raise lost[0]
    finally:
        for session in sessions:
            session.close()
        for connection in connections:
            connection.close()


def open_sessions(target: Target, count: int, *, shared: int = 0) -> AbstractAsyncContextManager[list[HTTPSSESession]]:
    """Open sessions of HTTP+SSE: see `open_callers`."""
    return open_callers(HTTPSSESession, target, count, shared=shared)


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the value below which ``part`` of the sorted values lie (nearest rank)."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


async def _all(jobs: Iterable[Coroutine[Any, Any, None]]) -> None:
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        await asyncio.wait_for(asyncio.gather(*tasks), _TIMEOUT_S)
    finally:
        for task in tasks:
            task.cancel()


def _framed(head: bytes, message: bytes) -> bytes:
    return b"%b%d\r\n\r\n%b" % (head, len(message), message)


def _call(number: int, text: str) -> bytes:
    return (b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%b"}}}') % (
        number,
        text.encode(),
    )


def _check_answer(message: bytes, number: int, text: str) -> None:
    answer = orjson.loads(message)
    try:
        is_right = answer["id"] == number and answer["result"]["content"][0]["text"] == text
    except (KeyError, IndexError, TypeError):
        is_right = False
    if not is_right:
        raise LoadError(f"call {number} was answered wrongly: {message[:200]!r}")


def _check_initialized(message: bytes) -> None:
    version = orjson.loads(message).get("result", {}).get("protocolVersion")
    if version != "2024-11-05":
        raise LoadError(f"initialize was answered wrongly: {message[:200]!r}")


_INITIALIZE = orjson.dumps(
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "mcpfast-load", "version": "1"},
        },
    }
)
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
