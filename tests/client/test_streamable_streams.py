"""Streams of sessions: the standing GET stream, and answers whose stream breaks. No message is lost, none doubled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcpfast import connect
from mcpfast.client import RetryPolicy, StreamableHTTPClientTransport
from mcpfast.errors import (
    AuthorizationRequired,
    EventTooLarge,
    HTTPStatusError,
    MethodNotAllowed,
    ProtocolError,
    RequestTimeout,
    SessionTerminated,
    TransportClosed,
)
from mcpfast.jsonrpc import Request
from tests.support.scripted_server import Peer, ScriptedServer
from tests.support.scripted_streamable import StreamableScript, body_of, event, note, result_event
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

WAIT_S = 5.0
LEGACY = "2025-11-25"
QUICK = RetryPolicy(first_s=0.01, longest_s=0.05)


def link(script: StreamableScript, server: ScriptedServer, **options: Any) -> Any:
    return connect(script.url(server), "http", LEGACY, **options)


def cut(*pieces: bytes, abort: bool = False) -> Any:
    """Begin a stream, send these, end it."""

    async def action(peer: Peer, message: Any) -> None:
        peer.start_stream()
        for piece in pieces:
            peer.chunk(piece)
        if abort:
            await peer.drain()
            await asyncio.sleep(0.02)  # else what was sent may be lost with the connection
            peer.abort()
        else:
            peer.end_stream()

    return action


async def stay(peer: Peer, message: Any) -> None:
    peer.start_stream()
    peer.chunk(b": open\n\n")
    await peer.until_left()


# Answers


@pytest.mark.parametrize("abort", [False, True])
async def test_a_broken_answer_is_resumed_without_loss_or_doubles(anyio_backend: Any, abort: bool) -> None:
    """B13, L25-C-05, L25-C-08: over several breaks, with what the server replays too much of."""
    script = StreamableScript()
    script.on("x", cut(b"id: a0\nretry: 10\ndata: \n\n", event(note(1), "a1"), event(note(2), "a2"), abort=abort))

    def second(peer: Peer, message: Any) -> Any:
        return cut(event(note(2), "a2"), event(note(3), "a3"), b"id: a4\n\n", abort=abort)(peer, message)

    def third(peer: Peer, message: Any) -> Any:
        owed = script.last("x")[0]
        return cut(event(note(1), "a1"), event(note(4)), event(note(5), "a5"), result_event(owed, {"ok": 1}, "a6"))(
            peer, message
        )

    async with ScriptedServer(script) as server:
        seen: list[Any] = []
        script.on("GET", lambda p, m: p.respond(405))
        async with link(script, server, on_notification=seen.append, continuous_listening=False) as client:
            script.on("GET", second, third)
            assert await client.request("x") == {"ok": 1}
            # note(4) has no id of its own, so it counts as what stands before it: seen.
            assert [message.params["number"] for message in seen] == [1, 2, 3, 5]
            assert [received.header("last-event-id") for received in script.gets] == ["a2", "a4"]
            for received in script.gets:
                assert received.header("mcp-session-id") == "session-1"
                assert received.header("mcp-protocol-version") == LEGACY
                assert received.header("accept") == "text/event-stream"


@pytest.mark.parametrize("retry_ms", [300, 700])
async def test_retry_is_kept_to_within_50_ms(anyio_backend: Any, retry_ms: int) -> None:
    """C042, L25-C-04, L25-C-05"""
    script = StreamableScript()
    ended = 0.0

    async def first(peer: Peer, message: Any) -> None:
        nonlocal ended
        await cut(b"id: p0\nretry: %d\ndata: \n\n" % retry_ms)(peer, message)
        ended = asyncio.get_running_loop().time()

    def answer(peer: Peer, message: Any) -> Any:
        return cut(result_event(script.last("x")[0], {"ok": 1}, "p1"))(peer, message)

    script.on("x", first)
    async with ScriptedServer(script) as server, link(script, server, continuous_listening=False) as client:
        script.on("GET", answer)
        assert await client.request("x") == {"ok": 1}
        assert [received.header("last-event-id") for received in script.gets] == ["p0"]
        waited = script.times[0] - ended
        assert retry_ms / 1000 - 0.005 <= waited
        assert waited <= retry_ms / 1000 + 5.0, "no limit to what a busy machine adds; the wait itself is tested below"


async def test_the_wait_is_what_the_loop_is_asked_for(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """L25-C-04: exactly ``retry``, by a timer of the loop that is good to a millisecond."""
    loop = asyncio.get_running_loop()
    waits: list[float] = []
    call_later = loop.call_later

    def record(delay: float, callback: Any, *args: Any, **options: Any) -> Any:
        if getattr(callback, "__name__", "") == "connect":
            waits.append(delay)
        return call_later(delay, callback, *args, **options)

    class Loop:
        def __getattr__(self, name: str) -> Any:
            return record if name == "call_later" else getattr(loop, name)

    script = StreamableScript()
    script.on("x", cut(b"id: p0\nretry: 170\ndata: \n\n"))
    async with ScriptedServer(script) as server, link(script, server, continuous_listening=False) as client:
        script.on("GET", lambda p, m: cut(result_event(script.last("x")[0], {}))(p, m))
        from mcpfast.client import resumable

        class Asyncio:
            TimerHandle = asyncio.TimerHandle

            @staticmethod
            def get_running_loop() -> Any:
                return Loop()

        monkeypatch.setattr(resumable, "asyncio", Asyncio)
        assert await client.request("x") == {}
        assert waits == [0.17]


async def test_an_answer_that_came_before_the_end_is_not_resumed(anyio_backend: Any) -> None:
    """C042's variants: no GET after the answer, none after close."""
    script = StreamableScript()

    def answer(peer: Peer, message: Any) -> Any:
        return cut(b"id: p0\nretry: 1\ndata: \n\n", result_event(message, {}, "p1"))(peer, message)

    script.on("x", answer)
    script.on("y", cut(b"id: p0\nretry: 50\ndata: \n\n"))
    async with ScriptedServer(script) as server:
        async with link(script, server, continuous_listening=False) as client:
            await client.request("x")
            call = asyncio.ensure_future(client.request("y"))
            await server.until(lambda: "y" in script.methods())
            await asyncio.sleep(0.01)
        with pytest.raises(TransportClosed):
            await call
        await asyncio.sleep(0.1)
        assert not script.gets


async def test_a_call_that_is_given_up_is_not_resumed(anyio_backend: Any) -> None:
    """C042: nor is one that was answered on the GET stream while its own waited to be taken up."""
    script = StreamableScript()
    script.on("x", cut(b"id: p0\nretry: 100\ndata: \n\n"))

    async def listening(peer: Peer, message: Any) -> None:
        peer.start_stream()
        await server.until(lambda: script.methods().count("x") == 2)
        peer.chunk(result_event(script.last("x")[0], {"elsewhere": True}))
        await peer.until_left()

    script.on("GET", listening)
    async with ScriptedServer(script) as server, link(script, server) as client:
        with pytest.raises(RequestTimeout):
            await client.request("x", timeout=0.05)
        await server.until(lambda: "notifications/cancelled" in script.methods())
        assert await client.request("x", timeout=WAIT_S) == {"elsewhere": True}
        await asyncio.sleep(0.2)
        assert [received.header("last-event-id") for received in script.gets] == [None]


async def test_a_stream_without_ids_that_ends_is_an_error_at_once(anyio_backend: Any) -> None:
    """B7"""
    script = StreamableScript()
    script.on("x", cut(event(note(1))))
    script.on("y", cut(event(note(1)), abort=True))
    async with ScriptedServer(script) as server, link(script, server, continuous_listening=False) as client:
        with pytest.raises(ProtocolError, match="stream ended without the answer, and had no event id"):
            await client.request("x")
        with pytest.raises(ConnectionError, match="lost"):
            await client.request("y")
        assert not script.gets


@pytest.mark.parametrize(
    ("event_id", "header"),
    [(b"caf\xc3\xa9-\xe2\x80\xa6", "café-…"), (b"a\x07b", None), (b"x" * 9000, None), (b"y" * (1 << 20), None)],
)
async def test_which_event_ids_are_sent_back(anyio_backend: Any, event_id: bytes, header: str | None) -> None:
    """C045: as UTF-8, or the call fails with a clear error; no loop."""
    script = StreamableScript()
    script.on("x", cut(b"id: " + event_id + b"\nretry: 1\ndata: \n\n"))
    async with ScriptedServer(script) as server, link(script, server, continuous_listening=False) as client:
        script.on("GET", lambda p, m: cut(result_event(script.last("x")[0], {}))(p, m))
        if header is not None:
            assert await client.request("x") == {}
            assert script.gets[0].header("last-event-id") == header
        else:
            with pytest.raises(ProtocolError, match=r"last event id .* cannot be sent back"):
                await client.request("x")
            assert not script.gets


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, HTTPStatusError),
        (401, AuthorizationRequired),
        (404, SessionTerminated),
        (405, MethodNotAllowed),
        (406, HTTPStatusError),
    ],
)
async def test_a_refusal_to_resume_that_is_final(anyio_backend: Any, status: int, error: type[Exception]) -> None:
    """The call may have been carried out, so it is not made again; after 404 the next one begins a session."""
    script = StreamableScript()
    script.on("x", cut(b"id: p0\nretry: 1\ndata: \n\n"))
    async with ScriptedServer(script) as server, link(script, server, continuous_listening=False) as client:
        script.on("GET", lambda p, m: p.respond(status))
        with pytest.raises(error):
            await client.request("x")
        assert len(script.gets) == 1
        assert script.methods().count("x") == 1
        assert (await client.request("y"))["method"] == "y"
        assert script.methods().count("initialize") == (2 if status == 404 else 1)


@pytest.mark.parametrize("trouble", [500, 503, 429, "abort", "html"])
async def test_resuming_goes_on_for_a_while_and_then_says_why_not(anyio_backend: Any, trouble: Any) -> None:
    script = StreamableScript()
    script.on("x", cut(b"id: p0\nretry: 1\ndata: \n\n"))

    def fail(peer: Peer, message: Any) -> None:
        if trouble == "abort":
            peer.abort()
        elif trouble == "html":
            peer.respond(200, b"<html>", content_type="text/html")
        else:
            peer.respond(trouble)

    options: Any = {"continuous_listening": False, "retry": QUICK}
    async with ScriptedServer(script) as server, link(script, server, **options) as client:
        script.on("GET", fail, fail, lambda p, m: cut(result_event(script.last("x")[0], {"late": 1}))(p, m))
        if trouble == "html":
            with pytest.raises(Exception, match="content type 'text/html'"):
                await client.request("x")
            return
        assert await client.request("x") == {"late": 1}
        script.on("GET", fail)
        with pytest.raises(ConnectionError, match="taking it up failed 5 times"):
            await client.request("x")


async def test_a_retry_limit_of_nothing_means_never(anyio_backend: Any) -> None:
    """C041"""
    script = StreamableScript()
    script.on("x", cut(b"id: p0\nretry: 1\ndata: \n\n"))
    options: Any = {"continuous_listening": False, "retry": RetryPolicy(max_attempts=0)}
    async with ScriptedServer(script) as server, link(script, server, **options) as client:
        with pytest.raises(ConnectionError, match="stream ended without the answer"):
            await client.request("x")
        assert not script.gets


async def test_polling_goes_on_as_long_as_the_call_waits(anyio_backend: Any) -> None:
    """L25-C-05: a server that ends each connection after a new event id is polled; the call's time limits it."""
    script = StreamableScript()
    script.on("x", cut(b"id: p0\nretry: 20\ndata: \n\n"))
    polls = 0

    def poll(peer: Peer, message: Any) -> Any:
        nonlocal polls
        polls += 1
        if polls == 12:
            return cut(result_event(script.last("x")[0], {"polls": polls}))(peer, message)
        return cut(b"id: p%d\ndata: \n\n" % polls)(peer, message)

    async with ScriptedServer(script) as server, link(script, server, continuous_listening=False) as client:
        script.on("GET", poll)
        # A new connection has no retry of its own; what was asked for stays in force.
        assert await client.request("x") == {"polls": 12}
        polls = 100
        with pytest.raises(RequestTimeout):
            await client.request("x", timeout=0.3)


async def test_a_silent_answer_counts_as_lost(anyio_backend: Any) -> None:
    """Comments are a sign of life."""
    script = StreamableScript()

    async def silent(peer: Peer, message: Any) -> None:
        peer.start_stream()
        for _ in range(4):
            peer.chunk(b": ping\n\n")
            await asyncio.sleep(0.1)
        await peer.until_left()

    script.on("x", silent)
    async with (
        ScriptedServer(script) as server,
        link(script, server, continuous_listening=False, idle_timeout=0.25) as client,
    ):
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeout, match=r"stream was silent for 0\.25 s"):
            await client.request("x")
        assert asyncio.get_running_loop().time() - began > 0.45


async def test_initialize_is_not_resumed(anyio_backend: Any) -> None:
    script = StreamableScript()
    script.on("initialize", cut(b"id: p0\nretry: 1\ndata: \n\n"))
    async with ScriptedServer(script) as server:
        with pytest.raises(ProtocolError, match="stream ended"):
            await link(script, server).__aenter__()
        assert not script.gets


# Listening


async def test_what_belongs_to_no_request_comes_on_the_get_stream_for_ever(anyio_backend: Any) -> None:
    """B9, L25-C-07, L25-C-08: also when it is ended or lost, from where it was."""
    script = StreamableScript()
    seen: list[Any] = []
    script.on(
        "GET",
        cut(event(note(1), "g1"), b"retry: 10\n\n"),
        cut(event(note(1), "g1"), event(note(2), "g2"), b"retry: 10\n\n", abort=True),
        lambda p, m: p.respond(503),
        cut(event(note(3), "g3")),
        stay,
    )
    options: Any = {"retry": QUICK, "on_notification": seen.append}
    async with ScriptedServer(script) as server, link(script, server, **options) as client:
        await server.until(lambda: len(script.gets) == 5)
        assert [message.params["number"] for message in seen] == [1, 2, 3]
        ids = [received.header("last-event-id") for received in script.gets]
        assert ids == [None, "g1", "g2", "g2", "g3"]
        assert (await client.request("x"))["method"] == "x"


@pytest.mark.parametrize("status", [404, 405, 406, 204])
async def test_a_server_without_a_stream_is_asked_once_and_nothing_is_said(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """C040, L25-C-13; B9"""
    script = StreamableScript()
    script.on("GET", lambda p, m: p.respond(status))
    async with ScriptedServer(script) as server, link(script, server, retry=QUICK) as client:
        await server.until(lambda: script.gets)
        for _ in range(5):
            await client.request("x")
            await asyncio.sleep(0.03)
        assert len(script.gets) == 1
        assert client.session_id == "session-1"
    assert not caplog.records


async def test_a_session_that_is_gone_ends_the_listening(anyio_backend: Any) -> None:
    """B9: 404 is final once there was a stream; the next call begins a session, which is listened to again."""
    script = StreamableScript()
    script.on("GET", cut(event(note(1), "g1") + b"retry: 1\n\n"), lambda p, m: p.respond(404), stay)
    async with ScriptedServer(script) as server, link(script, server, retry=QUICK) as client:
        await until(lambda: client.session_id is None)
        await asyncio.sleep(0.1)
        assert len(script.gets) == 2
        await client.request("x")
        assert script.methods().count("initialize") == 2
        await server.until(lambda: len(script.gets) == 3)
        assert script.gets[2].header("last-event-id") is None


async def test_a_stream_that_always_ends_at_once_is_asked_for_ever_less(anyio_backend: Any) -> None:
    """C041: requests are not affected, and what comes later is delivered."""
    script = StreamableScript()
    seen: list[Any] = []

    async def live(peer: Peer, message: Any) -> None:
        peer.start_stream()
        peer.chunk(event(note(1)))
        await peer.until_left()

    script.on("GET", cut(), cut(), cut(), cut(), live)
    options: Any = {"retry": RetryPolicy(first_s=0.1), "on_notification": seen.append}
    # The wait after the first clean end is retry's default of 1 s, and so is each one below it.
    async with ScriptedServer(script) as server, link(script, server, **options) as client:
        for _ in range(5):
            await client.request("x")
            await asyncio.sleep(0.02)
        assert len(script.gets) == 1
        await until(lambda: seen, seconds=10)
        gaps = [later - earlier for earlier, later in zip(script.times, script.times[1:], strict=False)]
        assert all(gap > 0.9 for gap in gaps)


@pytest.mark.parametrize(
    ("option", "session_id", "gets"), [(None, "s", 1), (None, None, 0), (True, None, 1), (False, "s", 0)]
)
async def test_when_there_is_listening(
    anyio_backend: Any, option: bool | None, session_id: str | None, gets: int
) -> None:
    """B2, B9"""
    script = StreamableScript(session_id=session_id)
    async with ScriptedServer(script) as server, link(script, server, continuous_listening=option) as client:
        await client.request("x")
        await asyncio.sleep(0.05)
        assert len(script.gets) == gets


async def test_401_to_the_listening_is_final_and_said(anyio_backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    """C064: GET does not loop."""
    script = StreamableScript()
    script.on("GET", lambda p, m: p.respond(401, b"", "www-authenticate: Bearer"))
    async with ScriptedServer(script) as server, link(script, server, retry=QUICK) as client:
        await server.until(lambda: script.gets)
        await until(lambda: "no more listening" in caplog.text)
        await asyncio.sleep(0.1)
        assert len(script.gets) == 1
        assert (await client.request("x"))["method"] == "x"


async def test_an_event_id_the_server_does_not_know_any_more_is_forgotten(anyio_backend: Any) -> None:
    script = StreamableScript()
    script.on("GET", cut(event(note(1), "old"), b"retry: 1\n\n"), lambda p, m: p.respond(400), stay)
    async with ScriptedServer(script) as server, link(script, server, retry=QUICK):
        await server.until(lambda: len(script.gets) == 3)
        assert [received.header("last-event-id") for received in script.gets] == [None, "old", None]


async def test_an_event_beyond_the_limit_is_passed_over(anyio_backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    script = StreamableScript()
    seen: list[Any] = []
    script.on("GET", cut(event(note(1), "g1"), b"data: " + b"x" * 5000 + b"\n\n"), cut(event(note(2), "g3")), stay)
    options: Any = {"retry": QUICK, "on_notification": seen.append, "max_event_bytes": 1000}
    async with ScriptedServer(script) as server, link(script, server, **options) as client:
        await server.until(lambda: len(script.gets) >= 2)
        assert script.gets[1].header("last-event-id") is None, "else it would come again"
        await until(lambda: len(seen) == 2)
        assert "limit is 1000" in caplog.text
        script.on("x", cut(b"id: 1\ndata: " + b"x" * 5000 + b"\n\n"))
        with pytest.raises(EventTooLarge):
            await client.request("x")


async def test_raw_messages_nobody_takes_are_not_read_from_the_wire(anyio_backend: Any) -> None:
    script = StreamableScript()
    sent = 0

    async def flood(peer: Peer, message: Any) -> None:
        nonlocal sent
        peer.start_stream()
        one = event({"jsonrpc": "2.0", "method": "n", "params": {"pad": "x" * 20_000}})
        for _ in range(5000):
            peer.chunk(one)
            await peer.drain()
            sent += 1

    script.on("GET", flood)
    options: Any = {"session_id": "s", "protocol_version": LEGACY}
    async with (
        ScriptedServer(script) as server,
        StreamableHTTPClientTransport(script.url(server), **options) as connection,
    ):
        before = -1
        while sent != before or not sent:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 2000
        for _ in range(300):
            await asyncio.wait_for(connection.recv(), WAIT_S)
        script.on("y", lambda p, m: p.respond(200, body_of(m, {})))
        await connection.send(Request(1, "y"))


async def test_a_storm_of_streams_that_ask_for_no_wait_is_bounded(anyio_backend: Any) -> None:
    """``retry: 0`` on streams that end at once, and that bring something each time; and one of 5,000 digits."""
    script = StreamableScript()
    number = 0

    async def hurry(peer: Peer, message: Any) -> None:
        nonlocal number
        number += 1
        await cut(b"retry: 0\n" + event(note(number), f"g{number}"))(peer, message)

    script.on("GET", hurry)
    async with ScriptedServer(script) as server, link(script, server) as client:
        await asyncio.sleep(1.2)
        assert 2 <= len(script.gets) <= 20
        script.on("x", cut(b"id: 1\nretry: " + b"9" * 5000 + b"\ndata: \n\n"))
        with pytest.raises(RequestTimeout):
            await client.request("x", timeout=0.2)
