"""Random clients against an SSEHandler: each request is answered exactly once, unless cancelled or its client left."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from mcpfast.server import Context, Server, SSEHandler
from tests.server.sse_peer import SSEPeer
from tests.support.memory import MemoryShell

IDS = st.one_of(st.integers(0, 3), st.sampled_from(["0", "1", "a"]))
MAX_IN_FLIGHT = 3


class Client:
    """What is expected of one session."""

    def __init__(self, peer: SSEPeer) -> None:
        self.peer = peer
        self.running: dict[Any, str] = {}  # requests in flight by (type, id): what they wait for
        self.expected: list[Any] = []  # ids whose answer must come
        self.published = 0  # how many were published before it opened
        self.got: list[Any] = []
        self.heard: list[int] = []
        self.asked: list[int] = []  # ids of the server's unanswered questions
        self.is_open = True


class Clients(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.server = Server("x", "1")
        self.gates: dict[tuple[str, Any], asyncio.Event] = {}
        self.published = 0
        self.all: list[Client] = []

        @self.server.method("now")
        async def now(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
            return {"id": ctx.request_id}

        @self.server.method("wait")
        async def wait(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
            assert ctx.session_id is not None
            gate = self.gates[ctx.session_id, key(ctx.request_id)] = asyncio.Event()
            await gate.wait()
            return {"id": ctx.request_id}

        @self.server.method("ask")
        async def ask(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
            await ctx.request("question", {"for": ctx.request_id})
            return {"id": ctx.request_id}

        self.handler = SSEHandler(lambda request: self.server, max_sessions=3, max_in_flight=MAX_IN_FLIGHT)
        self.shell = MemoryShell(self.handler)

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    async def settle(self) -> None:
        """Let everything run that can, then read all streams."""
        for _ in range(12):
            await asyncio.sleep(0)
        for client in self.all:
            peer = client.peer
            while client.is_open and peer.get._read < len(peer.get.pieces):
                peer.events += peer._decoder.feed(await peer.get.next_piece())
            for event in peer.events:
                message = json.loads(event.data)
                if message.get("method") == "published":
                    client.heard.append(message["params"]["number"])
                elif message.get("method") == "question":
                    client.asked.append(message["id"])
                elif message.get("method") == "notifications/cancelled":
                    client.asked.remove(message["params"]["requestId"])
                else:
                    assert message["result"] in ({}, {"id": message["id"]})
                    client.got.append(message["id"])
            peer.events.clear()

    async def post(self, client: Client, message: dict[str, Any]) -> int:
        exchange = client.peer.send({"jsonrpc": "2.0", **message})
        await exchange.until_ended()
        await self.settle()
        assert exchange.status is not None
        return exchange.status

    @rule(target=clients)
    def open(self) -> Client:
        room = sum(client.is_open for client in self.all) < 3

        async def go() -> Client:
            peer = SSEPeer(self.shell)
            client = Client(peer)
            client.published = self.published
            if not room:
                assert (await self.shell.fetch("GET", "/sse")).status == 503
                client.is_open = False
                peer.endpoint = "/sse?sessionid=none"
                return client
            await peer.start()
            return client

        client = self.run(go())
        self.all.append(client)
        return client

    @rule(client=clients, id=IDS, method=st.sampled_from(["now", "wait", "ask"]))
    def call(self, client: Client, id: Any, method: str) -> None:
        status = self.run(self.post(client, {"id": id, "method": method}))
        if not client.is_open:
            assert status == 404
        elif key(id) in client.running:
            assert status == 400
        elif len(client.running) >= MAX_IN_FLIGHT:
            assert status == 503
        else:
            assert status == 202
            if method == "now":
                client.expected.append(id)
            else:
                client.running[key(id)] = method

    @rule(client=clients, id=IDS)
    def ping(self, client: Client, id: Any) -> None:
        status = self.run(self.post(client, {"id": id, "method": "ping"}))
        if not client.is_open:
            assert status == 404
        elif key(id) in client.running:
            assert status == 400
        else:
            assert status == 202
            client.expected.append(id)

    @rule(client=clients, id=IDS)
    def cancel(self, client: Client, id: Any) -> None:
        status = self.run(self.post(client, {"method": "notifications/cancelled", "params": {"requestId": id}}))
        assert status == (202 if client.is_open else 404)
        client.running.pop(key(id), None)

    @rule(client=clients, data=st.data())
    def release(self, client: Client, data: st.DataObject) -> None:
        waiting = [k for k, method in client.running.items() if method == "wait"]
        if waiting:
            chosen = data.draw(st.sampled_from(waiting))
            self.gates[client.peer.endpoint.partition("=")[2], chosen].set()
            self.run(self.settle())
            del client.running[chosen]
            client.expected.append(chosen[1])

    @rule(client=clients, data=st.data())
    def answer(self, client: Client, data: st.DataObject) -> None:
        if client.asked and client.is_open:
            id = data.draw(st.sampled_from(client.asked))
            client.asked.remove(id)
            before = len(client.got)
            assert self.run(self.post(client, {"id": id, "result": {}})) == 202
            assert len(client.got) == before + 1
            answered = client.got[-1]
            assert client.running.pop(key(answered)) == "ask"
            client.expected.append(answered)

    @rule()
    def publish(self) -> None:
        self.server.publish("published", {"number": self.published})
        self.published += 1
        self.run(self.settle())

    @rule(client=consumes(clients))
    def leave(self, client: Client) -> None:
        if client.is_open:

            async def go() -> None:
                client.peer.leave()
                client.is_open = False
                await self.settle()

            self.run(go())
            client.running.clear()
            assert self.run(self.post(client, {"id": 1, "method": "ping"})) == 404

    @invariant()
    def nothing_is_lost_doubled_or_left(self) -> None:
        for client in self.all:
            assert client.got == client.expected
            if client.is_open:
                assert client.heard == list(range(client.published, self.published))
        open_ = [client for client in self.all if client.is_open]
        assert len(self.handler._sessions) == len(open_) == self.handler.shared.stats.sessions
        assert self.handler.shared.stats.streams == len(open_)
        assert self.handler.shared.load.in_flight == sum(len(client.running) for client in open_)

    def teardown(self) -> None:
        async def end() -> None:
            await self.handler.drain(0)
            await self.settle()

        self.run(end())
        assert self.handler.shared.load.in_flight == 0
        assert not asyncio.all_tasks(self.loop)
        self.loop.close()


def key(id: Any) -> tuple[type, Any]:
    return type(id), id


Clients.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestRandomClients = Clients.TestCase
