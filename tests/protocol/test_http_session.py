"""The machine of one Streamable HTTP session."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpfast.jsonrpc import Request
from mcpfast.protocol.http_session import STREAM_OPEN, UNKNOWN_EVENT, EventId, HTTPSession, Stream, wire_revision
from mcpfast.protocol.refusal import Refusal
from mcpfast.protocol.revisions import REVISIONS


def session(**options: Any) -> HTTPSession:
    return HTTPSession(REVISIONS["2025-11-25"], **{"event_tag": "t", "now": 0.0, **options})


def opened(machine: HTTPSession, *ids: Any, method: str = "tools/call") -> Stream:
    stream = machine.open([Request(id, method) for id in ids])
    assert isinstance(stream, Stream)
    return stream


def test_each_post_has_a_stream_that_ends_with_its_last_answer() -> None:
    """L25-S-09, L03-S-02."""
    machine = session()
    one, two = opened(machine, 1), opened(machine, 2, 3)
    assert (one.number, two.number) == (1, 2)
    assert machine.settle(1) == (one, None)
    assert one.is_done
    assert machine.settle(3) == (two, None)
    assert not two.is_done
    assert machine.settle(2) == (two, None)
    assert two.is_done
    assert not machine.standing.is_done
    assert list(machine.streams) == [0]


def test_ids_are_told_apart_by_type() -> None:
    """C052, C054."""
    machine = session()
    number, text = opened(machine, 1), opened(machine, "1")
    assert machine.settle("1") == (text, None)
    assert machine.in_flight == {1: number}


def test_an_id_that_is_in_flight_is_refused_and_nothing_of_its_post_is_taken() -> None:
    """C052."""
    machine = session()
    opened(machine, 1)
    for ids in ([1], [2, 1], [3, 3]):
        refusal = machine.open([Request(id, "x") for id in ids])
        assert isinstance(refusal, Refusal)
        assert (refusal.status, refusal.id) == (400, ids[-1])
    assert list(machine.in_flight) == [1]
    machine.settle(1)
    opened(machine, 1)


def test_requests_in_flight_are_bounded_and_pings_have_room_of_their_own() -> None:
    machine = session(max_in_flight=2)
    opened(machine, 1, 2)
    refusal = machine.open([Request(3, "x")])
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.id) == (503, 3)
    opened(machine, 3, method="ping")
    opened(machine, 4, method="ping")
    assert isinstance(machine.open([Request(5, "ping")]), Refusal)


def test_settling_what_is_not_in_flight_does_nothing() -> None:
    """M26-S-26 says it of the modern era; a session must survive it as well."""
    machine = session()
    opened(machine, 1)
    machine.settle(1)
    assert machine.settle(1) is None
    assert machine.settle("other") is None


def test_event_ids_name_session_and_stream_and_are_read_back() -> None:
    """L25-S-16."""
    machine = session(event_tag="abc")
    stream = opened(machine, 1)
    text = machine.event_id(stream, 0)
    assert text == "abc-1-0"
    assert machine.locate(text) == EventId("abc", 1, 0)
    assert str(EventId("abc", 1, 0)) == text


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "u-1-0", "t-1", "t-1-0-0", "t-1-1", "t-2-0", "t-1-0\n", "t--1-0", "t-\u0661-0", "t-1-" + "9" * 99],
)
def test_ids_that_are_foreign_unknown_or_damaged_are_refused_with_400(text: str) -> None:
    """C044, L25-S-17: never 404, for which a client would drop the session."""
    machine = session()
    opened(machine, 1)
    assert machine.locate(text) is UNKNOWN_EVENT
    assert UNKNOWN_EVENT.status == 400


def test_without_a_store_there_are_no_ids() -> None:
    machine = session(event_tag=None)
    stream = opened(machine, 1)
    assert machine.event_id(stream, 1) is None
    assert machine.locate("t-1-0") is UNKNOWN_EVENT


def test_a_stream_whose_storing_failed_can_be_resumed_no_more() -> None:
    machine = session()
    stream = opened(machine, 1)
    stream.is_resumable = False
    assert machine.event_id(stream, 1) is None
    assert machine.locate("t-1-0") is UNKNOWN_EVENT


def test_a_stream_that_is_done_may_still_be_in_the_store() -> None:
    machine = session()
    opened(machine, 1)
    machine.settle(1)
    assert machine.locate("t-1-0") == EventId("t", 1, 0)


def test_a_second_standing_stream_is_refused_and_a_resumed_one_takes_over() -> None:
    machine = session()
    assert machine.open_standing() is None
    machine.attach(machine.standing, "first")
    assert machine.open_standing() is STREAM_OPEN
    assert STREAM_OPEN.status == 409
    assert machine.standing.claim("second") == "first"
    assert not machine.standing.detach("first"), "the old connection's end is not the stream's"
    assert machine.standing.detach("second")
    assert machine.open_standing() is None


def test_messages_for_a_standing_stream_that_is_not_open_are_held_up_to_a_bound() -> None:
    machine = session(max_backlog=2, max_backlog_bytes=10)
    for frame in (b"a", b"b", b"c"):
        machine.hold(frame)
    assert machine.lost == 1
    assert machine.take_backlog() == b"bc"
    assert machine.take_backlog() == b""
    machine.hold(b"x" * 8)
    machine.hold(b"y" * 8)
    assert machine.take_backlog() == b"y" * 8
    machine.hold(b"z" * 20)
    assert machine.take_backlog() == b"z" * 20, "the last one is held whatever its size"


def test_a_session_never_followed_up_ends_early_and_others_when_idle() -> None:
    machine = session(idle_s=1000.0, follow_up_s=30.0)
    assert machine.time_left(10.0) == 20.0
    assert machine.time_left(30.0) <= 0
    machine.touch(20.0)
    assert machine.time_left(30.0) == 990.0
    assert machine.time_left(1020.0) <= 0


def test_a_running_request_or_an_open_connection_keeps_a_session() -> None:
    machine = session(idle_s=1000.0)
    machine.touch(0.0)
    opened(machine, 1)
    assert machine.time_left(5000.0) == 1000.0
    machine.settle(1)
    machine.connected()
    assert machine.time_left(5000.0) == 1000.0
    machine.disconnected(5000.0)
    assert machine.time_left(5500.0) == 500.0


def test_it_closes_once() -> None:
    machine = session()
    machine.hold(b"x")
    assert machine.close()
    assert not machine.close()
    assert machine.take_backlog() == b""


def test_a_session_negotiated_at_the_revision_of_http_sse_follows_the_first_streamable_one() -> None:
    assert wire_revision(REVISIONS["2024-11-05"]).version == "2025-03-26"
    assert wire_revision(REVISIONS["2025-06-18"]).version == "2025-06-18"


class World:
    """A stream, its store, and connections that come and go: every step is one that an event loop could interleave."""

    def __init__(self) -> None:
        self.machine = session()
        self.stream = opened(self.machine, 1)
        self.log: list[int] = []  # the store
        self.storing: list[int] = []  # numbered, not stored
        self.settling: list[int] = []  # stored, and the sender does not know yet
        self.got: list[int] = []  # what the client has, over all connections
        self.client: Any = None
        self.position = 0  # of the replay
        self.page: list[int] | None = None  # read from the store, not sent yet

    def sends(self) -> None:
        self.storing.append(self.stream.number_next())

    def store_appends(self) -> None:
        if self.storing and not self.settling:  # one at a time: that is the shell's lock
            self.settling.append(self.storing.pop(0))
            self.log.append(self.settling[0])

    def sender_resumes(self) -> None:
        if self.settling and self.stream.store_done(self.settling[0]):
            self.delivered(self.settling[0])
        self.settling.clear()

    def delivered(self, sequence: int) -> None:
        self.got.append(sequence)

    def client_leaves(self) -> None:
        if self.client is not None:
            self.stream.detach(self.client)
            self.client = self.page = None

    def client_resumes(self) -> None:
        self.client = object()
        self.position = self.got[-1] if self.got else 0
        self.page = None
        self.stream.claim(self.client)

    def replay_reads(self) -> None:
        if self.client is not None and not self.stream.is_live and self.page is None:
            self.page = [n for n in self.log if n > self.position]

    def replay_writes(self) -> None:
        if self.client is None or self.page is None or self.stream.is_live:
            return
        for sequence in self.page:
            self.delivered(sequence)
            self.position = sequence
        self.page = None
        self.stream.try_attach(self.client, self.position)


STEPS: list[Callable[[World], None]] = [
    World.sends,
    World.store_appends,
    World.sender_resumes,
    World.client_leaves,
    World.client_resumes,
    World.replay_reads,
    World.replay_writes,
]


SENDER = [World.sends, World.store_appends, World.sender_resumes] * 3
CLIENT = [World.client_resumes, World.replay_reads, World.replay_writes, World.replay_reads, World.replay_writes]


@pytest.mark.parametrize("client", [CLIENT, [*CLIENT[:3], World.client_leaves, *CLIENT[:3]]], ids=["stays", "leaves"])
def test_each_event_arrives_once_in_order_in_every_interleaving(client: list[Callable[[World], None]]) -> None:
    """L25-S-15, L25-S-17."""
    total = len(SENDER) + len(client)
    for turns in combinations(range(total), len(client)):
        world = World()
        sender_steps, client_steps = iter(SENDER), iter(client)
        for turn in range(total):
            next(client_steps if turn in turns else sender_steps)(world)
        finish(world)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=60))
def test_each_event_arrives_once_in_order_in_random_lives(steps: list[Any]) -> None:
    """L25-S-15, L25-S-17."""
    world = World()
    for step in steps:
        step(world)
        assert world.got == list(range(1, len(world.got) + 1))
    if world.client is None:
        world.client_resumes()
    finish(world)


def finish(world: World) -> None:
    """Send one more event, let everything come to rest, and look at what the client has."""
    world.sends()
    while world.storing or world.settling or not world.stream.is_live:
        world.replay_reads()
        world.store_appends()
        world.sender_resumes()
        world.replay_writes()
    assert world.got == list(range(1, world.stream.sequence + 1))
