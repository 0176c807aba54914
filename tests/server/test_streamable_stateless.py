"""Clients of the revisions with initialize, served without sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcpfast.server.streamable import StreamableHTTPHandler
from tests.server.streamable_peer import Answer, Gates, Peer, error_of, initialize, make_server, note

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]


def peer(gates: Gates | None = None, **options: Any) -> Peer:
    server = make_server(gates)
    return Peer(StreamableHTTPHandler(lambda request: server, stateless=True, **options))


async def result(answer: Answer) -> Any:
    (message,) = await answer.messages()
    assert answer.status == 200
    return message["result"]


async def test_every_post_is_served_by_itself() -> None:
    """L25-S-18, L25-S-22: no id is issued, none is needed, and one that comes is ignored."""
    client = peer()
    answer = await client.fetch("POST", initialize())
    assert answer.json()["result"]["protocolVersion"] == "2025-11-25"
    assert "mcp-session-id" not in answer.exchange.headers
    assert (await client.fetch("POST", note("notifications/initialized"))).status == 202
    found = await result(client.request("who"))
    assert (found["version"], found["session"]) == ("2025-03-26", False)
    found = await result(client.request("who", mcp_protocol_version="2025-06-18", mcp_session_id="whatever"))
    assert found["version"] == "2025-06-18"
    assert client.shell.handler._sessions._unnamed == set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD"])
async def test_post_is_all_there_is(method: str) -> None:
    """L25-S-13, L25-S-21."""
    answer = await peer().fetch(method)
    assert (answer.status, answer.exchange.headers["allow"]) == (405, "POST")


async def test_notifications_go_to_the_post_that_asked() -> None:
    """L25-S-10."""
    messages = await peer().request("say", {"count": 2}).messages()
    assert len(messages) == 3


async def test_a_request_to_the_client_is_refused_to_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    messages = await peer().request("ask").messages()
    assert messages[-1]["error"]["code"] == -32603
    assert "stateless" in caplog.text


async def test_two_requests_with_one_id_are_two_requests() -> None:
    """C052."""
    gates = Gates()
    client = peer(gates)
    first, second = client.request("wait", {"gate": "a"}, 1), client.request("wait", {"gate": "b"}, 1)
    await gates.until("entered b")
    gates.open("b")
    assert (await result(second))["waited"] == "b"
    gates.open("a")
    assert (await result(first))["waited"] == "a"


async def test_a_client_that_leaves_has_not_cancelled_and_nothing_is_left_behind() -> None:
    """L25-S-12."""
    gates = Gates()
    client = peer(gates)
    answer = client.request("wait")
    await gates.until("entered gate")
    answer.leave()
    gates.open("gate")
    for _ in range(5):
        await asyncio.sleep(0)
    assert client.shell.handler._sessions._unnamed == set()  # type: ignore[attr-defined]
    assert gates.cancelled == []


async def test_a_cancellation_finds_nobody() -> None:
    gates = Gates()
    client = peer(gates)
    running = client.request("wait", id=1)
    await gates.until("entered gate")
    assert (await client.fetch("POST", note("notifications/cancelled", {"requestId": 1}))).status == 202
    gates.open("gate")
    assert (await result(running))["waited"] == "gate"


async def test_batches_of_the_first_revision_and_of_no_other() -> None:
    """L03-B-01, L03-S-02."""
    client = peer()
    body = [client.call("ping"), client.call("tools/list")]
    assert len(await (await client.fetch("POST", body)).messages()) == 2
    assert (await client.fetch("POST", body, mcp_protocol_version="2025-06-18")).status == 400
    assert (await client.fetch("POST", [initialize()])).status == 400


async def test_versions_that_are_not_served_are_refused() -> None:
    """L25-S-22, C057."""
    assert error_of(await peer().request("ping", mcp_protocol_version="nonsense").ended())[:2] == (400, -32022)


async def test_a_notifications_handler_runs_to_its_end() -> None:
    gates = Gates()
    server = make_server(gates)
    done = asyncio.Event()

    @server.notification("notifications/slow")
    async def slow(ctx: Any, params: Any) -> None:
        await gates.wait("slow")
        done.set()

    client = Peer(StreamableHTTPHandler(lambda request: server, stateless=True))
    assert (await client.fetch("POST", note("notifications/slow"))).status == 202
    await gates.until("entered slow")
    gates.open("slow")
    await asyncio.wait_for(done.wait(), 5)


async def test_stopping_waits_for_what_runs_and_cancels_it_after_the_grace() -> None:
    """C074."""
    gates = Gates()
    client = peer(gates)
    handler: Any = client.shell.handler
    running = client.request("wait", id=1)
    await gates.until("entered gate")
    draining = asyncio.ensure_future(handler.drain(5))
    await asyncio.sleep(0)
    assert not draining.done()
    gates.open("gate")
    assert (await result(running))["waited"] == "gate"
    await asyncio.wait_for(draining, 5)
    client = peer(gates := Gates())
    running = client.request("wait", id=1)
    await gates.until("entered gate")
    await asyncio.wait_for(client.shell.handler.drain(0), 5)  # type: ignore[attr-defined]
    assert error_of(await running.ended()) == (503, -32603, 1)


async def test_2026_07_28_is_served_as_ever() -> None:
    """M26-S-63."""
    assert (await result(peer().modern("tools/list")))["tools"] == []


@pytest.mark.parametrize("option", ["event_store", "retry_ms"])
async def test_options_that_would_do_nothing_are_refused(option: str) -> None:
    from mcpfast.protocol.event_store import MemoryEventStore

    value: Any = MemoryEventStore() if option == "event_store" else 5
    with pytest.raises(ValueError, match="event_store"):
        peer(**{option: value})
