"""The ASGI shell called by hand: mounting, lifespan, and each way in which a client or server can leave."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcpfast.http._asgi_exchange import ASGIExchange
from mcpfast.http._asgi_input import ASGIInput
from mcpfast.http.asgi import ASGIApp
from mcpfast.http.interface import ClientDisconnected, Request, Responder
from mcpfast.http.limits import HTTPLimits
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio

SSE = ((b"content-type", b"text/event-stream"),)
DISCONNECT = {"type": "http.disconnect"}


class Call:
    """One call of an application: what it sends, and what it is given to receive."""

    task: asyncio.Future[None]

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.to_receive: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.on_send: Callable[[MutableMapping[str, Any]], Awaitable[None]] | None = None

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if self.on_send is not None:
            await self.on_send(message)
        self.sent.append(dict(message))

    async def receive(self) -> dict[str, Any]:
        return await self.to_receive.get()

    @property
    def kinds(self) -> list[str]:
        return [message["type"].removeprefix("http.response.") for message in self.sent]

    async def returns(self) -> None:
        await asyncio.wait_for(asyncio.shield(self.task), WAIT_S)


def call(app: ASGIApp, method: str = "GET", path: str = "/", **scope: Any) -> Call:
    made = Call()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [],
        **scope,
    }
    made.task = asyncio.ensure_future(app(scope, made.receive, made.send))
    return made


class Streaming:
    """A handler that starts a stream and keeps it."""

    def __init__(self) -> None:
        self.told = 0
        self.responders: list[Responder] = []

    def __call__(self, request: Request, responder: Responder) -> None:
        self.responders.append(responder)
        responder.on_disconnect(self._tell)
        responder.start(200, SSE)
        responder.write(b"data: 1\n\n")

    def _tell(self) -> None:
        self.told += 1


# C076: a response is started once, and the application returns, however the client leaves


async def test_client_leaving_after_the_first_event() -> None:
    """C076, first run."""
    handler = Streaming()
    made = call(ASGIApp(handler))
    await until(lambda: len(made.sent) == 2)
    made.to_receive.put_nowait(DISCONNECT)
    await made.returns()
    assert made.kinds == ["start", "body"]
    assert handler.told == 1
    handler.responders[0].write(b"to nobody")
    handler.responders[0].end()


async def test_client_leaving_before_any_event() -> None:
    """C076, second run."""
    handler = Streaming()
    app = ASGIApp(handler)
    made = Call()
    made.to_receive.put_nowait(DISCONNECT)
    made.task = asyncio.ensure_future(
        app({"type": "http", "method": "GET", "path": "/", "headers": []}, made.receive, made.send)
    )
    await made.returns()
    assert made.kinds.count("start") <= 1
    assert handler.told == 1
    assert app.stats()["closed"] == {"client": 1}


@pytest.mark.parametrize("failing", [0, 1])
async def test_send_raising_os_error_is_the_client_leaving(failing: int) -> None:
    """C076, third run: ASGI 2.4 lets send() raise for a client that has left."""
    handler = Streaming()
    before = len(asyncio.all_tasks())

    async def fail(message: MutableMapping[str, Any]) -> None:
        if len(made.sent) == failing:
            raise OSError("gone")

    app = ASGIApp(handler)
    made = Call()
    made.on_send = fail
    made.task = asyncio.ensure_future(
        app({"type": "http", "method": "GET", "path": "/", "headers": []}, made.receive, made.send)
    )
    await made.returns()
    assert made.kinds == ["start", "body"][:failing]
    assert handler.told == 1
    assert len(asyncio.all_tasks()) == before


async def test_client_leaving_cancels_a_call_and_no_answer_is_sent() -> None:
    cancelled = asyncio.Event()

    async def handler(request: Request, responder: Responder) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    made = call(ASGIApp(handler))
    await until(lambda: made.to_receive._getters)  # type: ignore[attr-defined]  # it listens for the client
    made.to_receive.put_nowait(DISCONNECT)
    await made.returns()
    assert cancelled.is_set()
    assert made.sent == []


@pytest.mark.parametrize("way", ["read ahead", "awaited"])
async def test_client_leaving_in_mid_body(way: str) -> None:
    seen: list[str] = []

    async def handler(request: Request, responder: Responder) -> None:
        seen.append("called")
        try:
            await request.body()
        except ClientDisconnected:
            seen.append("left")
            raise

    headers = [(b"content-length", b"10")] if way == "read ahead" else [(b"transfer-encoding", b"chunked")]
    made = call(ASGIApp(handler), "POST", headers=headers)
    made.to_receive.put_nowait({"type": "http.request", "body": b"half", "more_body": True})
    made.to_receive.put_nowait(DISCONNECT)
    await made.returns()
    assert made.sent == []
    assert seen in ([], ["called"], ["called", "left"])
    assert (way == "read ahead") == (seen == [])


# Tasks


async def test_complete_answer_needs_no_task_and_a_stream_one() -> None:
    created: list[Any] = []
    loop = asyncio.get_running_loop()
    app = ASGIApp(lambda request, responder: responder.respond(200, (), request.body_nowait or b""))
    made = call(app, "POST", headers=[(b"content-length", b"2")])
    made.to_receive.put_nowait({"type": "http.request", "body": b"{}"})
    loop.set_task_factory(lambda loop, coro, **kw: created.append(coro) or asyncio.Task(coro, loop=loop, **kw))  # type: ignore[func-returns-value,arg-type]
    try:
        await made.returns()
        assert created == []
        made = call(ASGIApp(Streaming()))
        await until(lambda: len(made.sent) == 2)
        assert len(created) == 2  # the application's own, made by this test, and the one that listens
    finally:
        loop.set_task_factory(None)
    made.to_receive.put_nowait(DISCONNECT)
    await made.returns()


async def test_streaming_call_has_at_most_two_tasks_besides_the_servers() -> None:
    go = asyncio.Event()

    async def handler(request: Request, responder: Responder) -> None:
        responder.start(200, SSE)
        responder.write(b"data: 1\n\n")
        await go.wait()
        responder.write(b"data: 2\n\n")
        responder.end()

    before = len(asyncio.all_tasks())
    made = call(ASGIApp(handler))
    await until(lambda: len(made.sent) == 2)
    assert len(asyncio.all_tasks()) - before <= 3
    go.set()
    await made.returns()
    assert len(asyncio.all_tasks()) == before
    assert b"".join(message.get("body", b"") for message in made.sent) == b"data: 1\n\ndata: 2\n\n"
    assert not made.sent[-1]["more_body"]


async def test_calls_leave_nothing_to_the_garbage_collector() -> None:
    """Cycles would be freed late, and the collector's runs cost more than the calls."""

    async def handler(request: Request, responder: Responder) -> None:
        responder.respond(200, (), await request.body())

    async def answered() -> None:
        made = call(ASGIApp(handler), "POST", headers=[(b"content-length", b"2")])
        made.to_receive.put_nowait({"type": "http.request", "body": b"{}"})
        await made.returns()

    async def streamed(is_left: bool) -> None:
        streaming = Streaming()
        made = call(ASGIApp(streaming))
        await until(lambda: len(made.sent) == 2)
        if is_left:
            made.to_receive.put_nowait(DISCONNECT)
        else:
            streaming.responders[0].end()
        await made.returns()
        streaming.responders.clear()  # a cycle of this test's own, by way of the application

    gc.collect()
    gc.disable()
    try:
        await answered()
        await streamed(True)
        await streamed(False)
        await asyncio.sleep(0)
        left = [thing for thing in gc.get_objects() if isinstance(thing, (ASGIExchange, ASGIInput, Request))]
    finally:
        gc.enable()
    assert left == []


async def test_pieces_written_while_one_is_being_sent_go_out_together() -> None:
    handler = Streaming()
    gate = asyncio.Event()
    gate.set()
    made = Call()

    async def wait(message: MutableMapping[str, Any]) -> None:
        await gate.wait()

    made.on_send = wait
    app = ASGIApp(handler)
    made.task = asyncio.ensure_future(
        app({"type": "http", "method": "GET", "path": "/", "headers": []}, made.receive, made.send)
    )
    await until(lambda: len(made.sent) == 2)
    gate.clear()
    responder = handler.responders[0]
    responder.write(b"a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for piece in (b"b", b"c", b"d"):
        responder.write(piece)
    assert responder.unsent_bytes == 4
    responder.end()
    gate.set()
    await made.returns()
    assert [message.get("body") for message in made.sent[2:]] == [b"a", b"bcd"]
    assert made.sent[-1]["more_body"] is False


async def test_reader_that_stops_is_dropped_and_counted() -> None:
    handler = Streaming()
    app = ASGIApp(handler, limits=HTTPLimits(max_unsent_bytes=1000, slow_reader_timeout_s=0.1))
    made = call(app)
    await until(lambda: len(made.sent) == 2)

    async def never(message: MutableMapping[str, Any]) -> None:
        await asyncio.Event().wait()

    made.on_send = never
    handler.responders[0].write(bytes(2000))
    await made.returns()
    assert app.stats()["closed"] == {"slow_reader": 1}
    assert handler.told == 1


# A server that stops


async def test_stream_that_the_server_cancels_is_ended_properly() -> None:
    """C074: what uvicorn does when its grace is over. A clean end for the client, no complaint for the log."""
    handler = Streaming()
    app = ASGIApp(handler)
    made = call(app)
    await until(lambda: len(made.sent) == 2)
    made.task.cancel()
    await made.returns()
    assert made.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert made.kinds == ["start", "body", "body"]
    assert handler.told == 1
    assert app.stats()["closed"] == {"cancelled": 1}


async def test_call_that_the_server_cancels_is_answered_with_503() -> None:
    cancelled = asyncio.Event()

    async def handler(request: Request, responder: Responder) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    made = call(ASGIApp(handler))
    await asyncio.sleep(0.01)
    made.task.cancel()
    await made.returns()
    assert made.sent[0]["status"] == 503
    assert made.kinds == ["start", "body"]
    assert cancelled.is_set()


# Bodies


async def test_body_that_stalls_is_refused_with_408() -> None:
    def handler(request: Request, responder: Responder) -> None:
        raise AssertionError("called without its body")

    app = ASGIApp(handler, limits=HTTPLimits(body_timeout_s=0.1))
    made = call(app, "POST", headers=[(b"content-length", b"10")])
    await made.returns()
    assert made.sent[0]["status"] == 408
    assert app.stats()["refused"] == {"body_timeout": 1}


async def test_body_that_stalls_under_its_reader_is_refused_with_408() -> None:
    raised: list[BaseException] = []

    async def handler(request: Request, responder: Responder) -> None:
        try:
            await request.body()
        except ClientDisconnected as error:
            raised.append(error)
            responder.respond(200)

    made = call(
        ASGIApp(handler, limits=HTTPLimits(body_timeout_s=0.1)),
        "POST",
        headers=[(b"transfer-encoding", b"chunked")],
    )
    made.to_receive.put_nowait({"type": "http.request", "body": b"half", "more_body": True})
    await made.returns()
    assert made.sent[0]["status"] == 408
    assert len(raised) == 1


async def test_body_that_drips_in_is_refused_with_408() -> None:
    async def handler(request: Request, responder: Responder) -> None:
        responder.respond(200, (), await request.body())

    made = call(
        ASGIApp(handler, limits=HTTPLimits(body_timeout_s=0.3)), "POST", headers=[(b"transfer-encoding", b"chunked")]
    )

    async def drip() -> None:
        while True:
            made.to_receive.put_nowait({"type": "http.request", "body": b"x", "more_body": True})
            await asyncio.sleep(0.05)

    dripping = asyncio.ensure_future(drip())
    await made.returns()
    dripping.cancel()
    assert made.sent[0]["status"] == 408


@pytest.mark.parametrize("http_version", ["1.1", "2"])
async def test_body_that_no_header_announces_is_read(http_version: str) -> None:
    """HTTP/2 need not announce it, and gateways that make the scope themselves leave the headers out."""

    async def handler(request: Request, responder: Responder) -> None:
        responder.respond(200, (), await request.body())

    made = call(ASGIApp(handler), "POST", http_version=http_version)
    made.to_receive.put_nowait({"type": "http.request", "body": b"one", "more_body": True})
    made.to_receive.put_nowait({"type": "http.request", "body": b"two"})
    await made.returns()
    assert made.sent[1]["body"] == b"onetwo"


async def test_client_leaving_while_its_body_is_large_and_a_stream_is_open_is_still_seen() -> None:
    """The stream begins before the body is read; who reads the body then hands the watch over."""
    gone = asyncio.Event()
    bodies: list[bytes] = []

    async def handler(request: Request, responder: Responder) -> None:
        responder.on_disconnect(gone.set)
        responder.start(200, SSE)
        bodies.append(await request.body())
        await asyncio.Event().wait()

    made = call(ASGIApp(handler), "POST", headers=[(b"transfer-encoding", b"chunked")])
    made.to_receive.put_nowait({"type": "http.request", "body": b"one", "more_body": True})
    await until(lambda: made.sent)
    made.to_receive.put_nowait({"type": "http.request", "body": b"two"})
    await until(lambda: bodies)
    made.to_receive.put_nowait(DISCONNECT)
    await asyncio.wait_for(gone.wait(), WAIT_S)
    await made.returns()
    assert bodies == [b"onetwo"]


# Where it is mounted


@pytest.mark.parametrize(
    ("root_path", "path", "seen"),
    [
        ("", "/mcp", "/mcp"),
        ("/api", "/api/mcp", "/mcp"),  # ASGI: the path includes the root path
        ("/api", "/mcp", "/mcp"),  # servers and frameworks before that was said
        ("/api/", "/api/mcp", "/mcp"),
        ("/api", "/api", "/"),
        ("/api", "/api/", "/"),
        ("/api", "/apis/mcp", "/apis/mcp"),
        ("/api", "/api/api/mcp", "/api/mcp"),
        ("/", "/mcp", "/mcp"),
    ],
)
async def test_path_is_what_follows_the_root_path(root_path: str, path: str, seen: str) -> None:
    requests: list[Request] = []

    def handler(request: Request, responder: Responder) -> None:
        requests.append(request)
        responder.respond(200)

    await call(ASGIApp(handler), path=path, root_path=root_path).returns()
    assert requests[0].path == seen
    assert requests[0].root_path == root_path.rstrip("/")


async def test_scope_is_at_hand_and_values_are_stripped() -> None:
    requests: list[Request] = []

    def handler(request: Request, responder: Responder) -> None:
        requests.append(request)
        responder.respond(200)

    # As granian and hypercorn may have them: lists, and no client.
    await call(
        ASGIApp(handler), headers=[[b"mcp-name", b"echo \t"]], client=None, scheme="https", query_string=b"a=%20b"
    ).returns()
    request = requests[0]
    assert request.extensions is not None
    assert request.extensions["asgi"]["type"] == "http"
    assert request.headers["mcp-name"] == "echo"
    assert request.client is None
    assert request.scheme == "https"
    assert request.query == {"a": [" b"]}


@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
async def test_mounted_in_a_framework_it_serves_below_its_prefix_and_has_its_lifespan(framework: str) -> None:
    httpx = pytest.importorskip("httpx")
    requests: list[Request] = []

    def handler(request: Request, responder: Responder) -> None:
        requests.append(request)
        responder.respond(200, (), request.path.encode())

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        yield "state"

    app = ASGIApp(handler, lifespan=lifespan)
    parent: Any
    if framework == "starlette":
        applications = pytest.importorskip("starlette.applications")
        routing = pytest.importorskip("starlette.routing")
        parent = applications.Starlette(
            routes=[routing.Mount("/outer", routes=[routing.Mount("/inner", app)])], lifespan=app.lifespan
        )
    else:
        fastapi = pytest.importorskip("fastapi")
        parent = fastapi.FastAPI(lifespan=app.lifespan)
        parent.mount("/outer/inner", app)
    made = Call()
    made.to_receive.put_nowait({"type": "lifespan.startup"})
    made.task = asyncio.ensure_future(parent({"type": "lifespan", "state": {}}, made.receive, made.send))
    await until(lambda: made.sent)
    assert made.sent[0]["type"] == "lifespan.startup.complete"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(parent), base_url="http://localhost") as client:
        response = await client.post("/outer/inner/mcp", json={})
    assert (response.status_code, response.text) == (200, "/mcp")
    assert requests[0].root_path == "/outer/inner"
    assert requests[0].state == "state"
    made.to_receive.put_nowait({"type": "lifespan.shutdown"})
    await made.returns()


# Lifespan, and other scopes


async def test_lifespan_state_reaches_requests_and_ends_with_the_server() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[dict[str, int]]:
        log.append("enter")
        yield {"pool": 1}
        log.append("exit")

    states: list[Any] = []

    def handler(request: Request, responder: Responder) -> None:
        states.append(request.state)
        responder.respond(200)

    app = ASGIApp(handler, lifespan=lifespan)
    made = Call()
    made.task = asyncio.ensure_future(app({"type": "lifespan"}, made.receive, made.send))
    made.to_receive.put_nowait({"type": "lifespan.startup"})
    await until(lambda: made.sent)
    async with app.lifespan():  # by a parent too: once is enough
        await call(app).returns()
    await call(app).returns()
    made.to_receive.put_nowait({"type": "lifespan.shutdown"})
    await made.returns()
    assert [message["type"] for message in made.sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert states == [{"pool": 1}, {"pool": 1}]
    assert log == ["enter", "exit"]


@pytest.mark.parametrize("phase", ["startup", "shutdown"])
async def test_lifespan_that_fails_is_reported_to_the_server(phase: str) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        if phase == "startup":
            raise ValueError("no database")
        yield
        raise ValueError("no database")

    app = ASGIApp(lambda request, responder: None, lifespan=lifespan)
    made = Call()
    made.to_receive.put_nowait({"type": "lifespan.startup"})
    made.to_receive.put_nowait({"type": "lifespan.shutdown"})
    made.task = asyncio.ensure_future(app({"type": "lifespan"}, made.receive, made.send))
    await made.returns()
    assert made.sent[-1] == {"type": f"lifespan.{phase}.failed", "message": "ValueError: no database"}


async def test_websocket_is_refused_before_it_is_accepted() -> None:
    app = ASGIApp(lambda request, responder: None)
    made = Call()
    made.to_receive.put_nowait({"type": "websocket.connect"})
    await app({"type": "websocket"}, made.receive, made.send)
    assert made.sent == [{"type": "websocket.close", "code": 1000}]


async def test_other_scopes_are_an_error_as_the_specification_asks() -> None:
    made = Call()
    with pytest.raises(ValueError, match="scope type is 'mqtt'"):
        await ASGIApp(lambda request, responder: None)({"type": "mqtt"}, made.receive, made.send)
