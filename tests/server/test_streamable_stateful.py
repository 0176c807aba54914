"""Random clients against a session: whatever they do, each message reaches them exactly once and in order.

A client opens streams, loses connections, takes streams up again, cancels and deletes; meanwhile handlers say things
and the server publishes. The store may take its time. What must hold is stated in :meth:`RandomClient.check`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcpfast.codec import SSEDecoder
from mcpfast.server import Context, MemoryEventStore, Server, StoredEvent
from mcpfast.server.load import PROCESS
from mcpfast.server.streamable import StreamableHTTPHandler
from tests.server.streamable_peer import Answer, Peer, note

T = TypeVar("T")


class SlowStore(MemoryEventStore):
    """A store whose calls take turns of the loop, before and after they do their work."""

    def __init__(self, turns: tuple[int, int, int, int]) -> None:
        super().__init__()
        self.turns = turns

    async def _wait(self, number: int) -> None:
        for _ in range(self.turns[number]):
            await asyncio.sleep(0)

    async def append(self, session_id: str, stream: int, sequence: int, message: bytes) -> None:
        await self._wait(0)
        await super().append(session_id, stream, sequence, message)
        await self._wait(1)

    async def after(self, session_id: str, stream: int, sequence: int) -> list[StoredEvent] | None:
        await self._wait(2)
        events = await super().after(session_id, stream, sequence)
        await self._wait(3)
        return events


class Stream:
    """One stream as its client sees it, over all its connections."""

    def __init__(self, connection: Answer, request_id: int | None) -> None:
        self.request_id = request_id  # None: the standing stream
        self.connection: Answer | None = connection
        self.last_id = ""
        self.got: list[int] = []
        self.sent: list[int] = []
        self.is_answered = False
        self.is_given_up = False  # cancelled: what was under way may or may not have come
        self._decoder = SSEDecoder()

    def connect(self, connection: Answer) -> None:
        self.connection = connection
        self._decoder.reset()

    def read(self) -> None:
        """Take what has come on the connection."""
        if self.connection is None:
            return
        exchange = self.connection.exchange
        for piece in exchange.pieces[exchange._read :]:
            for event in self._decoder.feed(piece):
                self.last_id = event.id
                if event.data:
                    self._take(json.loads(event.data))
        exchange._read = len(exchange.pieces)

    def _take(self, message: Any) -> None:
        if "method" in message:
            self.got.append(message["params"]["n"])
        else:
            assert message["id"] == self.request_id
            assert not self.is_answered, "a second answer"
            self.is_answered = True


class RandomClient(RuleBasedStateMachine):
    @initialize(turns=st.tuples(*[st.integers(0, 6)] * 4))
    def begin(self, turns: tuple[int, int, int, int]) -> None:
        self.loop = asyncio.new_event_loop()
        self.before = PROCESS.in_flight
        self.numbers = iter(range(1_000_000))
        self.orders: dict[int, asyncio.Queue[Any]] = {}
        self.streams: list[Stream] = []
        self.standing: Stream | None = None
        self.running: dict[int, Stream] = {}
        server = self.server = Server("random", "1")

        @server.method("obey")
        async def obey(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
            orders = self.orders[params["id"]]
            while (order := await orders.get()) is not None:
                await ctx.notify("n", {"n": order})
            return {}

        self.handler = StreamableHTTPHandler(lambda request: server, event_store=SlowStore(turns))
        self.peer = self.wait(Peer(self.handler).initialize())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 10))

    def settle(self, turns: int = 60) -> None:
        async def turn() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.wait(turn())
        for stream in self.streams:
            stream.read()

    # What a client does

    @precondition(lambda self: len(self.running) < 4)
    @rule()
    def call(self) -> None:
        id = next(self.numbers)
        self.orders[id] = asyncio.Queue()
        message = self.peer.call("obey", {"id": id}, id)

        async def send() -> Answer:
            return self.peer.send("POST", message)

        stream = Stream(self.wait(send()), id)
        self.streams.append(stream)
        self.running[id] = stream

    @precondition(lambda self: self.standing is None)
    @rule()
    def listen(self) -> None:
        async def send() -> Answer:
            return self.peer.send("GET")

        self.standing = Stream(self.wait(send()), None)
        self.streams.append(self.standing)

    @rule(data=st.data(), reads_first=st.booleans())
    def lose_a_connection(self, data: st.DataObject, reads_first: bool) -> None:
        open_ = [s for s in self.streams if s.connection is not None and s.last_id]
        if open_:
            stream = data.draw(st.sampled_from(open_))
            if reads_first:
                stream.read()
            self.leave(stream)

    def leave(self, stream: Stream) -> None:
        async def leave(connection: Answer) -> None:
            connection.leave()

        if stream.connection is not None:
            self.wait(leave(stream.connection))
            stream.connection = None

    @rule(data=st.data(), is_lost_first=st.booleans(), turns=st.tuples(st.integers(0, 12), st.integers(0, 12)))
    def resume(self, data: st.DataObject, is_lost_first: bool, turns: tuple[int, int]) -> None:
        """Take a stream up again while messages for it are on their way, at a random moment of each."""
        known = [s for s in self.streams if s.last_id and not s.is_answered and not s.is_given_up]
        if not known:
            return
        stream = data.draw(st.sampled_from(known))
        for _ in range(data.draw(st.integers(0, 5))):
            self.say_on(stream)
        self.let_some_time_pass(turns[0])
        if data.draw(st.integers(0, 3)) == 0:
            stream.read()
        if is_lost_first:
            self.leave(stream)
        self.come_back(stream)  # what came since is not read: it must come again
        self.let_some_time_pass(turns[1])
        self.say_on(stream)

    def say_on(self, stream: Stream) -> None:
        if stream is self.standing:
            self.publish(1)
        elif stream.request_id in self.running:
            number = next(self.numbers)
            stream.sent.append(number)
            self.orders[stream.request_id].put_nowait(number)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.running)))
        stream = self.running.pop(id)
        stream.is_given_up = True
        answer = self.wait(self.peer.fetch("POST", note("notifications/cancelled", {"requestId": id})))
        assert answer.status == 202

    # What the server does

    @precondition(lambda self: self.running)
    @rule(data=st.data(), count=st.integers(1, 3))
    def say(self, data: st.DataObject, count: int) -> None:
        id = data.draw(st.sampled_from(sorted(self.running)))
        for _ in range(count):
            number = next(self.numbers)
            self.running[id].sent.append(number)
            self.orders[id].put_nowait(number)

    @precondition(lambda self: self.standing is not None)
    @rule(count=st.integers(1, 3))
    def publish(self, count: int) -> None:
        assert self.standing is not None
        for _ in range(count):
            number = next(self.numbers)
            self.standing.sent.append(number)

            async def publish(number: int = number) -> None:
                self.server.publish("n", {"n": number})

            self.wait(publish())

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.running)))
        self.running.pop(id)
        self.orders[id].put_nowait(None)

    @rule(turns=st.integers(0, 12))
    def let_some_time_pass(self, turns: int) -> None:
        async def turn() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.wait(turn())

    @rule()
    def read_all(self) -> None:
        for stream in self.streams:
            stream.read()

    # What must hold

    @invariant()
    def check(self) -> None:
        for stream in getattr(self, "streams", ()):
            assert stream.got == stream.sent[: len(stream.got)], "lost, doubled, or out of order"

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self.settle()
            for id in list(self.running):
                self.running.pop(id)
                self.orders[id].put_nowait(None)
            self.settle()
            for stream in self.streams:
                if stream.last_id and not stream.is_answered and not stream.is_given_up:
                    self.come_back(stream)
            self.settle(400)
            for stream in self.streams:
                if not stream.is_given_up:
                    assert stream.got == stream.sent
                    assert stream.is_answered is (stream.request_id is not None)
            self.wait(self.peer.fetch("DELETE"))
            self.settle()
            stats = self.handler.shared.stats
            assert (stats.sessions, stats.streams) == (0, 0)
            assert PROCESS.in_flight == self.before
            self.wait(self.peer.shell.aclose())
            assert len(asyncio.all_tasks(self.loop)) == 0
        finally:
            self.loop.close()

    def come_back(self, stream: Stream) -> None:
        async def send() -> Answer:
            return self.peer.send("GET", last_event_id=stream.last_id)

        stream.connect(self.wait(send()))


TestRandomClients = RandomClient.TestCase
TestRandomClients.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
