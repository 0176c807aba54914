"""The TypeScript SDK on the other side, as a process of its own: over HTTP+SSE, and its client over Streamable HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import mcpfast
from mcpfast import RPCError, Server, TransportClosed, connect, serve
from mcpfast.jsonrpc import Request
from mcpfast.server import MemoryEventStore
from tests.interop.node import NodeError, NodePeer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]  # the first test may install the SDK

MILLION = 1_000_000


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait, for 10 s at most, until something holds in the other process."""

    async def poll() -> None:
        while not await condition():  # noqa: ASYNC110 -- another process has no event of ours to set
            await asyncio.sleep(0.01)

    await asyncio.wait_for(poll(), 10)


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def big(characters: int) -> str:
    """Text whose characters take one, two, three and four bytes in UTF-8."""
    return ("aé€😀" * (characters // 4 + 1))[:characters]


def digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


# The SDK's client against our server.


class Served:
    """Our server with the tools that the tests call, and what happened in it."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.seen = asyncio.Event()
        self.server = Server("mcpfast-server", "1")
        self.server.method("tools/list")(self.list_tools)
        self.server.method("tools/call")(self.call_tool)
        self.server.notification("notifications/seen")(self.note_seen)
        self.listener: Any = None
        self.url = ""

    async def list_tools(self, ctx: Any, params: Any) -> dict[str, Any]:
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "big")]}

    async def note_seen(self, ctx: Any, params: Any) -> None:
        self.seen.set()

    async def call_tool(self, ctx: Any, params: Any) -> dict[str, Any]:
        arguments = params["arguments"]
        match params["name"]:
            case "echo":
                return text(arguments["text"])
            case "big":
                return text(big(arguments["characters"]))
            case "fail":
                raise RPCError(-32602, "no such luck", {"why": "asked for"})
            case "progress":
                for step in range(1, arguments["steps"] + 1):
                    await ctx.progress(step, arguments["steps"], f"step {step}")
                await self.seen.wait()
                return text("done")
            case "roots":
                return text(json.dumps((await ctx.request("roots/list"))["roots"]))
            case "notify":
                await ctx.notify("notifications/message", {"level": "info", "data": "from the call"})
                return text("notified")
            case "wait":
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
        raise RPCError(-32602, f"no tool {params['name']}")


@pytest.fixture(params=["HTTP+SSE", "Streamable HTTP", "resumable"])
async def served(request: pytest.FixtureRequest, peers: Callable[[str], Path]) -> AsyncIterator[Served]:
    found = Served()
    options = {"event_store": MemoryEventStore()} if request.param == "resumable" else {}
    async with serve(found.server, **options) as found.listener:
        found.url = found.listener.sse_url if request.param == "HTTP+SSE" else found.listener.url
        yield found


@pytest.fixture
async def client(served: Served, peers: Callable[[str], Path]) -> AsyncIterator[NodePeer]:
    """The SDK's client, connected to our server."""
    async with NodePeer.running(peers("client.mjs")) as peer:
        found = await peer.do("connect", url=served.url)
        assert found["server"]["name"] == "mcpfast-server"
        assert "tools" in found["capabilities"]
        yield peer


async def test_typescript_client_lists_calls_and_pings(client: NodePeer) -> None:
    assert await client.do("list") == ["echo", "big"]
    answer = await client.do("call", name="echo", arguments={"text": 'line\nline\r\n"quoted" é😀'})
    assert answer["content"][0]["text"] == 'line\nline\r\n"quoted" é😀'
    assert await client.do("ping") == {}


async def test_typescript_client_gets_a_million_characters(client: NodePeer) -> None:
    found = await client.do("big", characters=MILLION)
    assert found == {"characters": MILLION, "digest": digest(big(MILLION))}


async def test_typescript_client_gets_each_of_a_hundred_concurrent_answers(client: NodePeer) -> None:
    texts = [f"call {number}" for number in range(100)]
    assert await client.do("echoes", texts=texts) == texts


async def test_typescript_client_gets_errors_with_their_code(client: NodePeer) -> None:
    with pytest.raises(NodeError, match="no such luck") as caught:
        await client.do("call", name="fail", arguments={})
    assert caught.value.code == -32602


async def test_typescript_client_gets_progress_in_order(client: NodePeer) -> None:
    seen = await client.do("progress", steps=20)
    assert [step["progress"] for step in seen] == list(range(1, 21))
    assert seen[-1]["total"] == 20


async def test_typescript_client_answers_a_request_of_the_server(client: NodePeer) -> None:
    answer = await client.do("call", name="roots", arguments={})
    assert json.loads(answer["content"][0]["text"]) == [{"uri": "file:///root", "name": "root"}]


async def test_typescript_client_gets_notifications_of_a_call_and_published_ones(
    served: Served, client: NodePeer
) -> None:
    await client.do("call", name="notify", arguments={})
    served.server.publish("notifications/tools/list_changed", {})
    methods = ["notifications/message", "notifications/tools/list_changed"]

    async def both() -> bool:
        state = await client.do("state")
        assert not state["errors"]
        return [notification["method"] for notification in state["notifications"]] == methods

    await until(both)


async def test_typescript_client_cancels_a_call(served: Served, client: NodePeer) -> None:
    assert "enough" in await client.do("cancel")
    await asyncio.wait_for(served.cancelled.wait(), 10)
    assert await client.do("ping") == {}


async def test_session_ends_when_the_typescript_client_closes(served: Served, client: NodePeer) -> None:
    assert served.listener.stats()["sessions"] == 1
    await client.do("close")

    async def gone() -> bool:
        return bool(served.listener.stats()["sessions"] == 0)

    await until(gone)
    assert (await client.do("state"))["closed"]


# Our client against the SDK's server.


@pytest.fixture
async def foreign(peers: Callable[[str], Path]) -> AsyncIterator[tuple[NodePeer, str]]:
    """The SDK's server and the URL of its stream."""
    async with NodePeer.running(peers("server.mjs")) as peer:
        port = (await peer.read())["port"]
        yield peer, f"http://127.0.0.1:{port}/sse"


async def test_client_initializes_lists_and_calls_the_typescript_server(foreign: tuple[NodePeer, str]) -> None:
    _, url = foreign
    async with connect(url, transport="sse") as client:
        tools = (await client.request("tools/list"))["tools"]
        assert "echo" in [tool["name"] for tool in tools]
        value = 'line\nline\r\n"quoted" é😀'
        answer = await client.request("tools/call", {"name": "echo", "arguments": {"text": value}})
        assert answer["content"][0]["text"] == value
        assert await client.request("ping") == {}


async def test_client_gets_a_million_characters_from_the_typescript_server(foreign: tuple[NodePeer, str]) -> None:
    peer, url = foreign
    async with connect(url, transport="sse") as client:
        answer = await client.request("tools/call", {"name": "big", "arguments": {"characters": MILLION}})
    found = answer["content"][0]["text"]
    assert len(found) == MILLION
    assert digest(found) == await peer.do("digest", characters=MILLION)


async def test_client_gets_each_of_a_hundred_concurrent_answers_of_the_typescript_server(
    foreign: tuple[NodePeer, str],
) -> None:
    _, url = foreign
    async with connect(url, transport="sse") as client:

        async def echo(value: str) -> str:
            answer = await client.request("tools/call", {"name": "echo", "arguments": {"text": value}})
            return str(answer["content"][0]["text"])

        texts = [f"call {number}" for number in range(100)]
        assert await asyncio.gather(*map(echo, texts)) == texts


async def test_client_raises_an_error_of_the_typescript_server_with_code_and_data(
    foreign: tuple[NodePeer, str],
) -> None:
    _, url = foreign
    async with connect(url, transport="sse") as client:
        with pytest.raises(RPCError, match="no such luck") as caught:
            await client.request("tools/call", {"name": "fail", "arguments": {}})
    assert caught.value.code == -32602
    assert caught.value.data == {"why": "asked for"}


async def test_client_gets_progress_of_the_typescript_server_in_order(foreign: tuple[NodePeer, str]) -> None:
    _, url = foreign
    seen: list[float] = []
    async with connect(url, transport="sse") as client:
        await client.request(
            "tools/call",
            {"name": "progress", "arguments": {"steps": 20}},
            on_progress=lambda done, total, message: seen.append(done),
        )
    assert seen == list(range(1, 21))


async def test_client_answers_a_request_of_the_typescript_server(foreign: tuple[NodePeer, str]) -> None:
    _, url = foreign
    roots = [{"uri": "file:///root", "name": "root"}]
    async with connect(url, transport="sse", capabilities={"roots": {}}) as client:

        async def answer(request: Request) -> dict[str, Any]:
            assert request.method == "roots/list"
            return {"roots": roots}

        client.on_request(answer)
        found = await client.request("tools/call", {"name": "roots", "arguments": {}})
    assert json.loads(found["content"][0]["text"]) == roots


async def test_client_gets_notifications_of_the_typescript_server(foreign: tuple[NodePeer, str]) -> None:
    peer, url = foreign
    arrived: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    async with connect(url, transport="sse") as client:
        client.on_notification(lambda message: arrived.put_nowait((message.method, message.params)))
        params = {"level": "info", "data": "hello"}
        await peer.do("notify", method="notifications/message", params=params)
        assert await asyncio.wait_for(arrived.get(), 10) == ("notifications/message", params)


async def test_abandoned_request_is_cancelled_in_the_typescript_server(foreign: tuple[NodePeer, str]) -> None:
    peer, url = foreign
    async with connect(url, transport="sse") as client:
        with pytest.raises(mcpfast.RequestTimeout):
            await client.request("tools/call", {"name": "wait", "arguments": {}}, timeout=0.1)

        async def cancelled() -> bool:
            return len((await peer.do("state"))["cancelled"]) == 1

        await until(cancelled)


async def test_session_of_the_typescript_server_ends_when_the_client_closes(foreign: tuple[NodePeer, str]) -> None:
    peer, url = foreign
    async with connect(url, transport="sse"):
        assert (await peer.do("state"))["sessions"] == 1

    async def gone() -> bool:
        return bool((await peer.do("state"))["sessions"] == 0)

    await until(gone)


async def test_request_fails_at_once_when_the_typescript_server_hangs_up(foreign: tuple[NodePeer, str]) -> None:
    peer, url = foreign
    async with connect(url, transport="sse") as client:
        call = asyncio.ensure_future(client.request("tools/call", {"name": "wait", "arguments": {}}))
        # Answered after the call was sent, on the same connection or not: the server has a session by then.
        await client.request("ping")
        await peer.do("hang_up")
        with pytest.raises(TransportClosed):
            await asyncio.wait_for(call, 10)
