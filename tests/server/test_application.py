"""Server: registration, capabilities, built-in methods, errors, threads."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Mapping
from enum import Enum
from functools import partial, wraps
from types import MappingProxyType
from typing import Any

import pytest

from mcpfast.errors import ProtocolError, RPCError
from mcpfast.jsonrpc import ErrorResponse, Notification, Request, Response
from mcpfast.server import Context, Server
from mcpfast.server.application import encode_answer
from mcpfast.server.context import Peer
from mcpfast.server.threads import MAX_THREADS

pytestmark = pytest.mark.anyio


class NoChannel:
    async def send(self, payload: bytes) -> None: ...

    async def call(self, method: str, params: dict[str, Any] | None, timeout: float) -> Any: ...

    def close_stream(self, retry_ms: int | None) -> None: ...


def context(version: str | None = "2025-11-25") -> Context:
    return Context(Peer(protocol_version=version), NoChannel())


async def payload_of(server: Server) -> bytes:
    """Call the method ``m`` and return the answer's bytes."""
    message = Request(1, "m")
    return encode_answer(message, await server.call(message, context()))


async def outcome(server: Server, method: str, params: Any = None, ctx: Context | None = None) -> Any:
    """Return the result, or the error's code."""
    message = Request(1, method) if params is None else Request(1, method, params)
    answer = await server.handle(message, ctx or context())
    return answer.code if isinstance(answer, ErrorResponse) else answer.result  # type: ignore[union-attr]


# initialize, ping, capabilities


@pytest.mark.parametrize(
    ("asked", "answered"),
    [("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), ("2026-07-28", "2025-11-25"), ("x", "2025-11-25")],
)
async def test_initialize_answers_the_version_asked_for_else_the_latest(asked: str, answered: str) -> None:
    """L25-S-23."""
    server = Server("name", "1.2", title="Title", instructions="Use it.")
    ctx = context(None)
    params = {"protocolVersion": asked, "clientInfo": {"name": "c"}, "capabilities": {"roots": {}}}
    assert await outcome(server, "initialize", params, ctx) == {
        "protocolVersion": answered,
        "capabilities": {},
        "serverInfo": {"name": "name", "version": "1.2", "title": "Title"},
        "instructions": "Use it.",
    }
    assert ctx.protocol_version == answered
    assert ctx.client_info == {"name": "c"}
    assert ctx.client_capabilities == {"roots": {}}
    assert await outcome(server, "initialize", params, ctx) == -32600


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 5}, ["2024-11-05"]])
async def test_initialize_without_a_version_is_refused(params: Any) -> None:
    ctx = context(None)
    assert await outcome(Server("x", "1"), "initialize", params, ctx) == -32602
    assert ctx.protocol_version is None


async def test_before_initialize_only_ping_is_served() -> None:
    server = Server("x", "1")
    server.method("tools/list")(lambda ctx, params: {})
    assert await outcome(server, "ping", ctx=context(None)) == {}
    assert await outcome(server, "tools/list", ctx=context(None)) == -32600
    assert await outcome(server, "tools/list") == {}


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        ([], {}),
        (["tools/call"], {"tools": {}}),
        (["tools/list", "tools/call"], {"tools": {"listChanged": True}}),
        (["resources/read"], {"resources": {}}),
        (["resources/list", "resources/subscribe"], {"resources": {"listChanged": True, "subscribe": True}}),
        (["prompts/get"], {"prompts": {}}),
        (["completion/complete", "logging/setLevel"], {"completions": {}, "logging": {}}),
        (["toolsmith/x"], {}),
    ],
)
def test_capabilities_follow_from_the_methods(methods: list[str], expected: dict[str, Any]) -> None:
    server = Server("x", "1")
    for method in methods:
        server.method(method)(lambda ctx, params: {})
    assert server.capabilities == expected


def test_given_capabilities_are_declared_as_given() -> None:
    given = {"experimental": {"x": {}}}
    server = Server("x", "1", capabilities=given)
    server.method("tools/call")(lambda ctx, params: {})
    assert server.capabilities == {"experimental": {"x": {}}}


def test_a_name_is_registered_once_and_not_over_a_built_in() -> None:
    server = Server("x", "1")

    @server.method("tools/call")
    def call(ctx: Context, params: Any) -> None: ...

    assert callable(call)
    for name in ("tools/call", "ping", "initialize"):
        with pytest.raises(ValueError, match=name):
            server.method(name)
    server.notification("n")(call)
    with pytest.raises(ValueError, match="'n'"):
        server.notification("n")


# Results and errors


async def test_unknown_methods_are_not_found() -> None:
    assert await outcome(Server("x", "1"), "no/such") == -32601


@pytest.mark.parametrize(("params", "seen"), [(None, {}), ({"a": 1}, {"a": 1})])
async def test_params_are_a_dict(params: Any, seen: Any) -> None:
    server = Server("x", "1")
    server.method("m")(lambda ctx, params: {"seen": params})
    assert await outcome(server, "m", params) == {"seen": seen}
    assert await outcome(server, "m", [1]) == -32602


async def test_rpc_errors_pass_as_they_are() -> None:
    server = Server("x", "1")

    @server.method("m")
    async def fail(ctx: Context, params: Any) -> None:
        raise RPCError(-5, "mine", {"why": 1})

    answer = await server.handle(Request("i", "m"), context())
    assert answer == ErrorResponse("i", -5, "mine", {"why": 1})
    assert await payload_of(server) == (
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"mine","data":{"why":1}}}'
    )


class Colour(Enum):
    RED = object()


@pytest.mark.parametrize(
    "result",
    [5, [1], "x", True, {"x": object()}, {"x": float("nan")}, {1: 2}, {"x": "\ud800"}, {"x": Colour.RED}],
    ids=repr,
)
async def test_a_result_that_is_no_json_object_is_an_internal_error(
    result: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("x", "1")
    server.method("m")(lambda ctx, params: result)
    payload = await payload_of(server)
    assert payload == b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}'
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_an_rpc_error_whose_data_is_no_json_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("x", "1")

    @server.method("m")
    def fail(ctx: Context, params: Any) -> None:
        raise RPCError(-5, "mine", object())

    assert b"-32603" in await payload_of(server)
    assert caplog.records


@pytest.mark.parametrize(("result", "expected"), [(None, {}), (MappingProxyType({"a": 1}), {"a": 1})])
async def test_results_that_stand_for_an_object(result: Mapping[str, Any] | None, expected: Any) -> None:
    server = Server("x", "1")
    server.method("m")(lambda ctx, params: result)
    assert await outcome(server, "m") == expected


@pytest.mark.parametrize("error", [ValueError, KeyError, ProtocolError, StopIteration, OSError])
async def test_exceptions_leak_nothing_and_are_logged(error: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("x", "1")

    @server.method("m")
    def fail(ctx: Context, params: Any) -> None:
        raise error("secret")

    @server.notification("n")
    async def fail_too(ctx: Context, params: Any) -> None:
        fail(ctx, params)

    payload = await payload_of(server)
    assert b'"internal error"' in payload
    assert b"secret" not in payload
    assert await server.handle(Notification("n"), context()) is None
    assert len(caplog.records) == 2
    assert all(record.name == "mcpfast.server" and record.exc_info for record in caplog.records)


async def test_messages_that_are_owed_no_answer_get_none() -> None:
    server = Server("x", "1")
    seen = []
    server.notification("n")(lambda ctx, params: seen.append(params))
    assert await server.handle(Notification("n", {"a": 1}), context()) is None
    assert await server.handle(Notification("unknown"), context()) is None
    assert await server.handle(Response(1, {}), context()) is None
    assert seen == [{"a": 1}]


# Threads


async def test_a_plain_function_runs_in_a_thread_with_its_context_variables() -> None:
    """C071: it does not stop the loop."""
    server = Server("x", "1")
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    release, running = threading.Event(), threading.Event()

    @server.method("m")
    def work(ctx: Context, params: Any) -> dict[str, Any]:
        running.set()
        assert release.wait(5)
        return {"user": user.get(), "thread": threading.current_thread().name}

    user.set("alice")
    task = asyncio.create_task(outcome(server, "m"))
    assert await asyncio.get_running_loop().run_in_executor(None, running.wait, 5)
    release.set()
    result = await asyncio.wait_for(task, 5)
    assert result["user"] == "alice"
    assert result["thread"].startswith("mcpfast-")


async def test_threads_are_bounded_and_none_is_lost() -> None:
    server = Server("x", "1")
    lock = threading.Lock()
    now, most = 0, 0
    release, full = threading.Event(), threading.Event()

    @server.method("m")
    def work(ctx: Context, params: Any) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            if now == MAX_THREADS:
                full.set()
        release.wait(5)
        with lock:
            now -= 1

    tasks = [asyncio.create_task(outcome(server, "m")) for _ in range(2 * MAX_THREADS)]
    assert await asyncio.get_running_loop().run_in_executor(None, full.wait, 5)
    release.set()
    assert await asyncio.wait_for(asyncio.gather(*tasks), 10) == [{}] * len(tasks)
    assert most == MAX_THREADS


async def test_a_cancelled_call_that_waits_for_a_thread_is_not_run() -> None:
    server = Server("x", "1")
    release = threading.Event()
    ran = []

    @server.method("block")
    def block(ctx: Context, params: Any) -> None:
        release.wait(5)

    server.method("m")(lambda ctx, params: ran.append(1))
    blockers = [asyncio.create_task(outcome(server, "block")) for _ in range(MAX_THREADS)]
    await asyncio.sleep(0)
    task = asyncio.create_task(outcome(server, "m"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    await asyncio.gather(*blockers)
    await outcome(server, "block")
    assert not ran


async def test_exit_in_a_thread_does_not_stop_the_server(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("x", "1")

    @server.method("m")
    def leave(ctx: Context, params: Any) -> None:
        raise SystemExit(1)

    assert await outcome(server, "m") == -32603


async def test_every_kind_of_async_callable_is_awaited() -> None:
    server = Server("x", "1")

    class Callable:
        async def __call__(self, ctx: Context, params: Any) -> dict[str, Any]:
            return {"kind": "object"}

    async def function(kind: str, ctx: Context, params: Any) -> dict[str, Any]:
        return {"kind": kind}

    @wraps(function)
    def wrapped(ctx: Context, params: Any) -> Any:
        return function("wrapped", ctx, params)

    server.method("object")(Callable())
    server.method("partial")(partial(function, "partial"))
    server.method("wrapped")(wrapped)
    for kind in ("object", "partial", "wrapped"):
        assert await outcome(server, kind) == {"kind": kind}
