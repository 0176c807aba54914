"""What every shell promises its handlers, on every shell: see ``mcpfast.http.interface``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from mcpfast.errors import TransportClosed
from mcpfast.http.interface import BodyTooLarge, ClientDisconnected, Handler, Request, Responder
from mcpfast.http.limits import HTTPLimits
from tests.support.raw_http import Truncated
from tests.support.shells import SHELLS, Shell, open_shell
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio

SSE = ((b"content-type", b"text/event-stream"),)
LIMITS = HTTPLimits(max_body_bytes=100_000, max_unsent_bytes=200_000)

# What a shell raises for a handler that breaks the order of calls; the memory shell is an assertion.
MISUSE = (RuntimeError, ValueError, AssertionError)


class Served:
    """A shell whose handler is set by each test, and what the handler was given."""

    shell: Shell

    def __init__(self) -> None:
        self.handler: Handler = lambda request, responder: responder.respond(204)
        self.requests: list[Request] = []
        self.responders: list[Responder] = []
        self.called = asyncio.Event()

    def __call__(self, request: Request, responder: Responder) -> Awaitable[None] | None:
        self.requests.append(request)
        self.responders.append(responder)
        self.called.set()
        return self.handler(request, responder)

    async def responder(self) -> Responder:
        """The responder of the next request."""
        await asyncio.wait_for(self.called.wait(), WAIT_S)
        self.called.clear()
        return self.responders[-1]


@pytest.fixture(params=SHELLS)
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    served = Served()
    async with open_shell(request.param, served, LIMITS) as shell:
        served.shell = shell
        yield served


def keep(request: Request, responder: Responder) -> None:
    """A handler that answers later."""


def start_stream(request: Request, responder: Responder) -> None:
    responder.start(200, SSE)
    responder.write(b"data: 1\n\n")


# Answers


async def test_respond_sends_status_fields_body_and_its_length(served: Served) -> None:
    served.handler = lambda request, responder: responder.respond(201, [(b"x-a", b"1"), (b"x-b", b"\xe9")], b"hello")
    exchange = await served.shell.open("POST", "/x", body=b"{}")
    body = await exchange.rest()
    status, fields = await exchange.head() if served.shell.name in ("memory", "asgi") else (201, {})
    assert body == b"hello"
    if fields:
        assert (status, fields["x-a"], fields["x-b"], fields["content-length"]) == (201, "1", "é", "5")
    assert served.responders[0].is_ended
    assert not served.responders[0].is_disconnected


async def test_fields_come_as_the_handler_gave_them(served: Served) -> None:
    served.handler = lambda request, responder: responder.respond(202, ((b"mcp-session-id", b"abc"),))
    exchange = await served.shell.open("GET", "/")
    status, fields = await exchange.head()
    assert status == 202
    assert fields["mcp-session-id"] == "abc"
    assert await exchange.rest() == b""


async def test_pieces_arrive_as_they_are_written_and_end_completes(served: Served) -> None:
    served.handler = start_stream
    exchange = await served.shell.open("GET", "/")
    assert await exchange.read_until(b"data: 1\n\n") == b"data: 1\n\n"
    responder = await served.responder()
    responder.write(b"data: 2\n\n")
    responder.write(b"")
    responder.write(b"data: 3\n\n")
    responder.end()
    responder.end()
    assert await exchange.rest() == b"data: 1\n\ndata: 2\n\ndata: 3\n\n"
    assert responder.is_ended
    assert not responder.is_disconnected


async def test_head_of_a_stream_does_not_wait_for_its_first_piece(served: Served) -> None:
    served.handler = lambda request, responder: responder.start(200, SSE)
    exchange = await served.shell.open("GET", "/")
    status, fields = await exchange.head()
    assert status == 200
    assert fields["content-type"] == "text/event-stream"
    (await served.responder()).end()
    assert await exchange.rest() == b""


@pytest.mark.parametrize("way", ["respond", "stream"])
async def test_answer_to_head_has_no_body(served: Served, way: str) -> None:
    def handler(request: Request, responder: Responder) -> None:
        if way == "respond":
            responder.respond(200, SSE, b"not sent")
        else:
            responder.start(200, SSE)
            responder.write(b"not sent")
            responder.end()

    served.handler = handler
    exchange = await served.shell.open("HEAD", "/")
    assert (await exchange.head())[0] == 200
    assert await exchange.rest() == b""


@pytest.mark.parametrize("status", [204, 304])
async def test_status_without_body_has_no_length_either(served: Served, status: int) -> None:
    served.handler = lambda request, responder: responder.respond(status)
    exchange = await served.shell.open("GET", "/")
    got, fields = await exchange.head()
    assert got == status
    assert "content-length" not in fields
    assert "transfer-encoding" not in fields
    assert await exchange.rest() == b""


async def test_awaitable_handler_answers_after_waiting(served: Served) -> None:
    go = asyncio.Event()

    async def handler(request: Request, responder: Responder) -> None:
        await go.wait()
        responder.respond(200, (), b"late")

    served.handler = handler
    exchange = await served.shell.open("GET", "/")
    await served.responder()
    go.set()
    assert await exchange.rest() == b"late"


async def test_answer_may_be_given_after_the_handler_returned(served: Served) -> None:
    served.handler = keep
    exchange = await served.shell.open("GET", "/")
    responder = await served.responder()
    assert not responder.is_started
    responder.respond(200, (), b"kept")
    assert responder.is_started
    assert await exchange.rest() == b"kept"


async def test_handler_may_work_on_after_its_answer(served: Served) -> None:
    go = asyncio.Event()
    done = asyncio.Event()

    async def handler(request: Request, responder: Responder) -> None:
        responder.respond(200, (), b"early")
        await go.wait()
        done.set()

    served.handler = handler
    exchange = await served.shell.open("GET", "/")
    assert await exchange.rest() == b"early"
    go.set()
    await asyncio.wait_for(done.wait(), WAIT_S)


async def test_large_answer_arrives_whole(served: Served) -> None:
    body = bytes(range(256)) * 8000
    served.handler = lambda request, responder: responder.respond(200, (), body)
    exchange = await served.shell.open("GET", "/")
    assert await exchange.rest() == body


# Misuse


def _start_twice(responder: Responder) -> None:
    responder.start(200, SSE)
    responder.start(200, SSE)


def _respond_after_start(responder: Responder) -> None:
    responder.start(200, SSE)
    responder.respond(200)


def _write_after_end(responder: Responder) -> None:
    responder.respond(200)
    responder.write(b"x")


def _split(responder: Responder) -> None:
    responder.respond(200, [(b"x-a", b"1\r\nset-cookie: stolen")])


def _nul(responder: Responder) -> None:
    responder.start(200, [(b"x-a", b"1\0")])


@pytest.mark.parametrize(
    "misuse",
    [
        pytest.param(lambda responder: responder.write(b"x"), id="write before start"),
        pytest.param(lambda responder: responder.end(), id="end before start"),
        pytest.param(lambda responder: responder.start(99, ()), id="no such status"),
        pytest.param(lambda responder: responder.respond(101), id="an interim status"),
        _start_twice,
        _respond_after_start,
        _write_after_end,
        _split,
        _nul,
    ],
)
async def test_misuse_raises_and_spoils_nothing(served: Served, misuse: Callable[[Responder], None]) -> None:
    raised: list[BaseException] = []

    def handler(request: Request, responder: Responder) -> None:
        try:
            misuse(responder)
        except MISUSE as error:
            raised.append(error)
        if not responder.is_started:
            responder.respond(200)
        responder.end()

    served.handler = handler
    exchange = await served.shell.open("GET", "/")
    if served.shell.name == "memory":
        with pytest.raises(AssertionError):  # kept, in case a handler swallows it
            await exchange.rest()
    else:
        status, fields = await exchange.head()
        assert status == 200
        assert "set-cookie" not in fields
        assert await exchange.rest() == b""
    assert len(raised) == 1


async def test_handler_that_raises_is_answered_with_500_without_its_text(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(request: Request, responder: Responder) -> None:
        raise ValueError("my secret")

    served.handler = handler
    exchange = await served.shell.open("GET", "/x?session_id=token")
    assert (await exchange.head())[0] == 500
    assert b"secret" not in await exchange.rest()
    assert "token" not in caplog.text


async def test_task_that_raises_is_answered_with_500(served: Served) -> None:
    async def handler(request: Request, responder: Responder) -> None:
        await asyncio.sleep(0)
        raise ValueError("my secret")

    served.handler = handler
    exchange = await served.shell.open("GET", "/")
    assert (await exchange.head())[0] == 500
    assert b"secret" not in await exchange.rest()


@pytest.mark.parametrize("is_async", [False, True])
async def test_handler_that_raises_in_mid_answer_leaves_it_visibly_cut_off(
    served: Served, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(request: Request, responder: Responder) -> Awaitable[None] | None:
        start_stream(request, responder)
        if is_async:
            return later()
        raise ValueError("mine")

    async def later() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("mine")

    served.handler = handler
    exchange = await served.shell.open("GET", "/")
    if served.shell.name == "uvicorn" and not is_async:
        assert (await exchange.head())[0] == 500  # nothing had been sent yet: uvicorn can still say so
    else:
        with pytest.raises((Truncated, ConnectionError)):
            await exchange.rest()
    assert served.responders[0].is_disconnected


# The client leaves


async def test_client_leaving_a_stream_is_told_once_and_later_calls_do_nothing(served: Served) -> None:
    told: list[str] = []
    served.handler = start_stream
    exchange = await served.shell.open("GET", "/")
    await exchange.read_until(b"1\n\n")
    responder = await served.responder()
    gone = asyncio.Event()
    responder.on_disconnect(lambda: told.append("first"))
    responder.on_disconnect(lambda: told.append("second"))
    responder.on_disconnect(gone.set)
    await exchange.leave()
    await asyncio.wait_for(gone.wait(), WAIT_S)
    assert told == ["first", "second"]
    assert responder.is_disconnected
    assert responder.is_ended
    assert responder.is_started
    responder.write(b"x")
    responder.end()
    responder.abort("twice")
    assert responder.unsent_bytes == 0
    with pytest.raises(TransportClosed):
        await responder.drain()
    responder.on_disconnect(lambda: told.append("at once"))
    assert told == ["first", "second", "at once"]


async def test_client_leaving_cancels_the_handler(served: Served) -> None:
    cancelled, begun = asyncio.Event(), asyncio.Event()

    async def handler(request: Request, responder: Responder) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            responder.respond(200, (), b"to nobody")
            cancelled.set()
            raise

    served.handler = handler
    exchange = await served.shell.open("POST", "/", body=b"{}")
    await asyncio.wait_for(begun.wait(), WAIT_S)
    await exchange.leave()
    await asyncio.wait_for(cancelled.wait(), WAIT_S)


async def test_disconnect_is_not_told_after_the_end(served: Served) -> None:
    told: list[int] = []

    def handler(request: Request, responder: Responder) -> None:
        responder.on_disconnect(lambda: told.append(1))
        responder.respond(200, (), b"x")
        responder.on_disconnect(lambda: told.append(2))

    served.handler = handler
    exchange = await served.shell.open("GET", "/")
    await exchange.rest()
    await exchange.leave()
    second = await served.shell.open("GET", "/")
    await second.rest()
    assert told == []
    assert not served.responders[0].is_disconnected


async def test_failing_disconnect_callback_does_not_keep_the_others_from_being_called(served: Served) -> None:
    if served.shell.name == "memory":
        pytest.skip("a failing callback is a failing test there")
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    gone = asyncio.Event()

    def handler(request: Request, responder: Responder) -> None:
        responder.on_disconnect(lambda: 1 / 0)
        responder.on_disconnect(gone.set)
        start_stream(request, responder)

    served.handler = handler
    exchange = await served.shell.open("GET", "/")
    await exchange.read_until(b"1\n\n")
    await exchange.leave()
    await asyncio.wait_for(gone.wait(), WAIT_S)
    asyncio.get_running_loop().set_exception_handler(None)
    assert isinstance(failures[0]["exception"], ZeroDivisionError)


@pytest.mark.parametrize("is_started", [False, True])
async def test_abort_drops_the_client_and_is_counted(served: Served, is_started: bool) -> None:
    gone = asyncio.Event()

    def handler(request: Request, responder: Responder) -> None:
        responder.on_disconnect(gone.set)
        if is_started:
            start_stream(request, responder)

    served.handler = handler
    exchange = await served.shell.open("GET", "/")
    responder = await served.responder()
    if is_started:
        await exchange.read_until(b"1\n\n")
    responder.abort("over_the_limit")
    await asyncio.wait_for(gone.wait(), WAIT_S)
    assert responder.is_disconnected
    if is_started or served.shell.name != "uvicorn":  # uvicorn answers 500 where no answer began
        with pytest.raises((Truncated, ConnectionError)):
            await exchange.rest()
    stats = served.shell.stats()
    if stats is not None:
        await until(lambda: (served.shell.stats() or {})["closed"].get("over_the_limit") == 1)


# Requests


async def test_request_is_given_as_it_was_made(served: Served) -> None:
    fields = [("X-One", "a"), ("Accept", " text/event-stream , application/json\t"), ("X-Empty", "")]
    exchange = await served.shell.open("DELETE", "/a/b?x=1&y=%20z&x=2&flag", fields)
    await exchange.rest()
    request = served.requests[0]
    assert request.method == "DELETE"
    assert request.path == "/a/b"
    assert request.query_string == "x=1&y=%20z&x=2&flag"
    assert request.query == {"x": ["1", "2"], "y": [" z"], "flag": [""]}
    assert request.headers["x-ONE"] == "a"
    assert request.headers["accept"] == "text/event-stream , application/json"
    assert request.headers["x-empty"] == ""
    assert request.headers.get("absent") is None
    assert request.headers.find(b"host") == b"localhost"
    assert request.scheme == "http"
    assert request.root_path == ""
    assert request.client is not None
    assert request.client[0] == "127.0.0.1"
    assert request.body_nowait == b""
    assert await request.body() == b""


async def test_small_body_is_there_when_the_handler_is_called(served: Served) -> None:
    exchange = await served.shell.open("POST", "/", body=b'{"a": 1}')
    await exchange.rest()
    assert served.requests[0].body_nowait == b'{"a": 1}'


async def test_body_in_pieces_is_waited_for(served: Served) -> None:
    async def handler(request: Request, responder: Responder) -> None:
        assert request.body_nowait is None
        body = await request.body()
        assert await request.body() == body
        responder.respond(200, (), body)

    served.handler = handler
    exchange = await served.shell.open("POST", "/", body=None)
    await served.responder()
    exchange.send(b"one,")
    exchange.send(b"two,")
    exchange.send(b"three", is_last=True)
    assert await exchange.rest() == b"one,two,three"


async def test_client_leaving_in_mid_body_raises_in_who_waits_for_it(served: Served) -> None:
    raised: list[BaseException] = []
    done = asyncio.Event()

    async def read(request: Request) -> None:
        try:
            await request.body()
        except ClientDisconnected as error:
            raised.append(error)
        done.set()

    def handler(request: Request, responder: Responder) -> None:
        # Not the handler's own task: that one is cancelled, as ever.
        served.reader = asyncio.ensure_future(read(request))  # type: ignore[attr-defined]

    served.handler = handler
    exchange = await served.shell.open("POST", "/", body=None)
    responder = await served.responder()
    exchange.send(b"half of")
    await exchange.leave()
    await asyncio.wait_for(done.wait(), WAIT_S)
    assert len(raised) == 1
    assert responder.is_disconnected


@pytest.mark.parametrize("announced", [True, False])
async def test_body_over_the_shells_limit_is_413_if_the_handler_does_not_care(served: Served, announced: bool) -> None:
    """DESIGN's table: request body over its limit is 413."""

    async def handler(request: Request, responder: Responder) -> None:
        responder.respond(200, (), await request.body())

    served.handler = handler
    exchange = await served.shell.open("POST", "/", body=bytes(LIMITS.max_body_bytes + 1) if announced else None)
    if not announced:
        for _ in range(11):
            exchange.send(bytes(10_000))
    status, _ = await exchange.head()
    assert status == 413
    await exchange.rest()


async def test_body_over_a_handlers_own_limit_raises_there(served: Served) -> None:
    raised: list[BodyTooLarge] = []

    async def handler(request: Request, responder: Responder) -> None:
        try:
            await request.body(limit=10)
        except BodyTooLarge as error:
            raised.append(error)
            responder.respond(400, (), b"too large for me")

    served.handler = handler
    exchange = await served.shell.open("POST", "/", body=b"x" * 11)
    assert await exchange.rest() == b"too large for me"
    exchange = await served.shell.open("POST", "/", body=None)
    exchange.send(b"x" * 11)
    assert await exchange.rest() == b"too large for me"
    assert [error.limit for error in raised] == [10, 10]


# Slow readers


async def test_drain_returns_at_once_for_a_reader_that_keeps_up(served: Served) -> None:
    async def handler(request: Request, responder: Responder) -> None:
        responder.start(200, SSE)
        for _ in range(10):
            responder.write(b"x" * 100)
            await responder.drain()
        responder.end()

    served.handler = handler
    exchange = await served.shell.open("GET", "/")
    assert await exchange.rest() == b"x" * 1000


async def _stall(exchange: Any) -> None:
    inner = getattr(exchange, "exchange", None)
    if inner is not None:
        inner.stall()
    elif hasattr(exchange, "is_reading"):
        exchange.is_reading.clear()


async def _read_on(exchange: Any) -> None:
    inner = getattr(exchange, "exchange", None)
    if inner is not None:
        inner.resume()
    elif hasattr(exchange, "is_reading"):
        exchange.is_reading.set()


async def test_drain_waits_for_a_slow_reader_so_that_memory_stays_flat(served: Served) -> None:
    served.handler = start_stream
    exchange = await served.shell.open("GET", "/")
    await exchange.head()
    responder = await served.responder()
    await _stall(exchange)
    piece = b"x" * 50_000
    most = 0
    written = 0

    async def produce() -> None:
        nonlocal most, written
        for _ in range(400):
            await responder.drain()
            responder.write(piece)
            written += 1
            most = max(most, responder.unsent_bytes)
            await asyncio.sleep(0)
        responder.end()

    producer = asyncio.ensure_future(produce())
    # It stands still once socket buffers and the limit are full.
    last = -1
    while written != last and not producer.done():
        last = written
        await asyncio.sleep(0.05)
    assert not producer.done()
    assert LIMITS.max_unsent_bytes * 0.5 <= most <= LIMITS.max_unsent_bytes + 2 * len(piece)
    await _read_on(exchange)
    body = await exchange.rest()
    assert len(body) == len(b"data: 1\n\n") + 400 * len(piece)
    await producer


async def test_drain_ends_when_the_slow_reader_leaves(served: Served) -> None:
    served.handler = start_stream
    exchange = await served.shell.open("GET", "/")
    await exchange.head()
    responder = await served.responder()
    await _stall(exchange)

    async def produce() -> None:
        while True:
            await responder.drain()
            responder.write(b"x" * 50_000)
            await asyncio.sleep(0)

    producer = asyncio.ensure_future(produce())
    await until(lambda: responder.unsent_bytes > LIMITS.max_unsent_bytes)
    await exchange.leave()
    if served.shell.name == "asgi":
        await _read_on(exchange)
    with pytest.raises(TransportClosed):
        await asyncio.wait_for(producer, WAIT_S)
