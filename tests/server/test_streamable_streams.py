"""The streams of a session: the standing one, event ids, resuming, polling."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from mcpfast.protocol.event_store import MemoryEventStore, StoredEvent
from mcpfast.server.streamable import StreamableHTTPHandler
from tests.server.streamable_peer import Answer, Gates, Peer, error_of, make_server, note

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]


class Rig:
    """A server and its handler."""

    def __init__(self, **options: Any) -> None:
        self.gates = Gates()
        self.server = make_server(self.gates)
        self.handler = StreamableHTTPHandler(lambda request: self.server, **options)

    async def client(self, version: str = "2025-11-25") -> Peer:
        return await Peer(self.handler).initialize(version)

    def publish(self, *numbers: int) -> None:
        for number in numbers:
            self.server.publish("notifications/n", {"n": number})


def stored(**options: Any) -> Rig:
    return Rig(event_store=MemoryEventStore(**options))


async def numbers(stream: Answer, count: int) -> list[int]:
    found = []
    for _ in range(count):
        message = await asyncio.wait_for(stream.next_message(), 5)
        found.append(message["params"].get("n", message["params"].get("number")))
    return found


# The standing stream


async def test_get_brings_a_stream_of_what_belongs_to_no_request() -> None:
    """L25-S-01, L25-S-13, L25-S-14, M26-S-16."""
    rig = Rig()
    client = await rig.client()
    stream = await client.send("GET").started()
    assert (stream.status, stream.content_type) == (200, "text/event-stream")
    assert stream.exchange.headers["x-accel-buffering"] == "no"
    rig.publish(1, 2)
    answer = client.request("say", {"count": 1})
    assert len(await answer.messages()) == 2
    rig.publish(3)
    assert await numbers(stream, 3) == [1, 2, 3]
    assert b"said" not in stream.exchange.body, "what belongs to a request stays on its stream"


async def test_what_a_notifications_handler_says_goes_on_the_standing_stream() -> None:
    """L25-S-14."""
    client = await Rig().client()
    stream = await client.send("GET").started()
    await client.fetch("POST", note("notifications/tell", {"n": 7}))
    assert await numbers(stream, 1) == [7]


async def test_what_is_said_after_the_answer_goes_on_the_standing_stream() -> None:
    rig = Rig()
    late: list[Any] = []

    @rig.server.method("keep")
    async def keep(ctx: Any, params: Any) -> Any:
        late.append(ctx)
        return {}

    client = await rig.client()
    stream = await client.send("GET").started()
    await client.request("keep").ended()
    await late[0].notify("notifications/n", {"n": 1})
    assert await numbers(stream, 1) == [1]


async def test_a_second_get_is_refused() -> None:
    client = await Rig().client()
    stream = await client.send("GET").started()
    assert error_of(await client.fetch("GET"))[0] == 409
    stream.leave()
    assert (await client.send("GET").started()).status == 200


async def test_each_message_goes_on_one_stream_only() -> None:
    """L25-S-15."""
    rig = Rig()
    one, two = await rig.client(), await rig.client()
    streams = [await one.send("GET").started(), await two.send("GET").started()]
    await one.fetch("POST", note("notifications/tell", {"n": 1}))
    assert await numbers(streams[0], 1) == [1]
    assert streams[1].exchange.body == b""


async def test_messages_wait_for_a_stream_that_is_not_open_yet() -> None:
    rig = Rig()
    client = await rig.client()
    rig.publish(1)
    await client.fetch("POST", note("notifications/tell", {"n": 2}))
    stream = await client.send("GET").started()
    rig.publish(3)
    assert await numbers(stream, 3) == [1, 2, 3]
    stream.leave()
    rig.publish(4)
    assert await numbers(await client.send("GET").started(), 1) == [4]


async def test_what_waits_is_bounded_and_the_oldest_go() -> None:
    rig = Rig(max_backlog_messages=3)
    client = await rig.client()
    rig.publish(*range(10))
    assert await numbers(await client.send("GET").started(), 3) == [7, 8, 9]


@pytest.mark.parametrize("options", [{}, {"event_store": MemoryEventStore()}], ids=["plain", "stored"])
async def test_publishing_from_another_thread(options: Any) -> None:
    rig = Rig(**options)
    client = await rig.client()
    stream = await client.send("GET").started()
    thread = threading.Thread(target=rig.publish, args=(1, 2, 3))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert await numbers(stream, 3) == [1, 2, 3]


async def test_a_quiet_stream_is_kept_alive_and_an_ended_one_is_not() -> None:
    """C034."""
    rig = Rig(keepalive_s=0.1)
    client = await rig.client()
    stream = await client.send("GET").started()
    await stream.exchange.until(lambda: stream.exchange.body.count(b"\n\n") >= 3)
    assert set(stream.exchange.body.split(b"\n\n")) == {b": keep-alive", b""}
    assert rig.handler.shared.stats.streams == 1
    await client.fetch("DELETE")
    assert rig.handler.shared.stats.streams == 0


async def test_a_slow_reader_is_dropped_and_its_session_goes_on() -> None:
    """C070."""
    rig = Rig(max_unsent_bytes=1000, max_backlog_messages=5)
    client = await rig.client()
    stream = await client.send("GET").started()
    stream.exchange.stall()
    for number in range(200):
        rig.server.publish("notifications/n", {"n": number, "pad": "x" * 100})
        await asyncio.sleep(0)
    assert stream.exchange.aborted == "slow_reader"
    assert (await client.request("tools/list").ended()).status == 200
    assert (await client.send("GET").started()).status == 200


# Event ids and resuming


async def test_without_a_store_events_have_no_ids_and_nothing_is_resumed() -> None:
    """L06-S-02."""
    client = await Rig().client()
    assert error_of(await client.fetch("GET", last_event_id="t-0-1"))[:2] == (400, -32600)
    said = client.request("say", {"count": 1})
    await said.ended()
    assert (await said.next_event()).id == ""  # type: ignore[union-attr]


async def test_from_2025_11_25_on_a_stream_begins_with_an_id_and_empty_data() -> None:
    """L25-S-06."""
    rig = Rig(event_store=MemoryEventStore(), retry_ms=1500)
    client = await rig.client()
    answer = await client.request("tools/list").ended()
    assert answer.is_stream
    assert answer.exchange.body.startswith(b"id: ")
    assert b"\nretry: 1500\n" in answer.exchange.body
    first = await answer.next_event()
    assert first is not None
    assert (first.data, first.id != "") == ("", True)
    stream = await client.send("GET").started()
    first = await stream.next_event()
    assert first is not None
    assert (first.data, first.id != "") == ("", True)


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
async def test_earlier_revisions_get_no_priming_event_but_ids(version: str) -> None:
    """L06-S-01, L06-S-02."""
    client = await stored().client(version)
    assert not (await client.request("tools/list").ended()).is_stream
    said = client.request("say", {"count": 1})
    await said.ended()
    first = await said.next_event()
    assert first is not None
    assert json.loads(first.data)["method"] == "notifications/said"
    assert first.id


async def test_event_ids_are_unique_over_all_streams_of_a_session_and_of_others() -> None:
    """L25-S-16."""
    rig = stored()
    ids: list[str] = []
    for _ in range(2):
        client = await rig.client()
        stream = await client.send("GET").started()
        rig.publish(1, 2)
        await numbers(stream, 2)
        ids += [line for line in stream.exchange.body.split(b"\n") if line.startswith(b"id:")]  # type: ignore[misc]
        for _ in range(2):
            answer = await client.request("say", {"count": 2}).ended()
            ids += [line for line in answer.exchange.body.split(b"\n") if line.startswith(b"id:")]  # type: ignore[misc]
    assert len(ids) == len(set(ids)) >= 2 * (2 + 2 * 3)


async def last_id(stream: Answer) -> str:
    lines = [line for line in stream.exchange.body.split(b"\n") if line.startswith(b"id: ")]
    return lines[-1][4:].decode()


async def test_a_broken_standing_stream_is_resumed_without_loss_or_duplicates() -> None:
    """L25-S-17."""
    rig = stored()
    client = await rig.client()
    stream = await client.send("GET").started()
    rig.publish(1, 2)
    assert await numbers(stream, 2) == [1, 2]
    id = await last_id(stream)
    stream.leave()
    rig.publish(3, 4)
    await asyncio.sleep(0)
    resumed = await client.send("GET", last_event_id=id).started()
    rig.publish(5)
    assert await numbers(resumed, 3) == [3, 4, 5]


async def test_a_resuming_get_takes_over_from_a_connection_that_may_be_dead() -> None:
    rig = stored()
    client = await rig.client()
    stream = await client.send("GET").started()
    rig.publish(1)
    await numbers(stream, 1)
    resumed = await client.send("GET", last_event_id=await last_id(stream)).started()
    assert resumed.status == 200
    assert await stream.next_event() is None
    rig.publish(2)
    assert await numbers(resumed, 1) == [2]


async def test_a_broken_answer_is_resumed_over_get_with_its_response() -> None:
    """L25-S-12, L25-S-14, L25-S-17, C044."""
    rig = stored()
    client = await rig.client()
    answer = client.request("say", {"count": 3, "gate": "g"}, id="x")
    assert await numbers(answer, 1) == [0]
    id = await last_id(answer)
    answer.leave()
    for number in range(3):
        rig.gates.open(f"g{number}")
        await rig.gates.until(f"entered g{number}")
    resumed = client.send("GET", last_event_id=id)
    messages = await resumed.messages()
    assert [m.get("params") for m in messages] == [{"number": 1}, {"number": 2}, None]
    assert (messages[-1]["id"], messages[-1]["result"]) == ("x", {"said": 3})
    again = await client.send("GET", last_event_id=id).messages()
    assert again == messages, "a stream that has ended is replayed as often as it is asked for"
    assert len(await client.send("GET", last_event_id=id[: id.rindex("-")] + "-0").messages()) == 4


async def test_resuming_while_the_answer_is_still_to_come() -> None:
    """L25-S-17."""
    rig = stored()
    client = await rig.client()
    answer = client.request("say", {"count": 3, "gate": "g"})
    await numbers(answer, 1)
    id = await last_id(answer)
    answer.leave()
    rig.gates.open("g0")
    await rig.gates.until("entered g1")
    resumed = await client.send("GET", last_event_id=id).started()
    assert await numbers(resumed, 1) == [1]
    rig.gates.open("g1")
    rig.gates.open("g2")
    assert await numbers(resumed, 1) == [2]
    assert (await resumed.next_message())["result"] == {"said": 3}
    assert await resumed.next_event() is None


@pytest.mark.parametrize("id", ["nonsense", "", "x" * 2000, "a\tb", "0-0-0"])
async def test_ids_that_are_none_get_400_and_an_empty_one_is_no_id(id: str) -> None:
    """C044: never 404, for which a client would drop its session."""
    client = await stored().client()
    answer = await client.send("GET", last_event_id=id).started()
    assert answer.status == (200 if id == "" else 400)


async def test_ids_of_other_sessions_and_streams_bring_nothing_of_theirs() -> None:
    """C044, L25-S-17."""
    rig = stored()
    one, two = await rig.client(), await rig.client()
    streams = [await client.send("GET").started() for client in (one, two)]
    rig.publish(1)
    assert [await numbers(stream, 1) for stream in streams] == [[1], [1]]
    own = await last_id(streams[0])
    answer = await one.request("say", {"count": 1}).ended()
    posted = (await answer.next_event()).id  # type: ignore[union-attr]
    rig.publish(2, 3)
    streams[0].leave()
    foreign = await one.send("GET", last_event_id=await last_id(streams[1])).started()
    assert foreign.status == 400
    assert b"notifications/n" not in (await one.send("GET", last_event_id=posted).ended()).exchange.body
    assert await numbers(await one.send("GET", last_event_id=own).started(), 2) == [2, 3]


async def test_resuming_before_what_was_purged_gets_400_and_the_session_goes_on() -> None:
    rig = stored(max_events=2)
    client = await rig.client()
    stream = await client.send("GET").started()
    rig.publish(1)
    await numbers(stream, 1)
    id = await last_id(stream)
    stream.leave()
    rig.publish(2, 3, 4)
    await asyncio.sleep(0)
    assert error_of(await client.fetch("GET", last_event_id=id))[0] == 400
    assert await numbers(await client.send("GET").started(), 3) == [2, 3, 4], "they are held for a new stream"


async def test_the_last_event_of_a_stream_can_be_resumed_after_though_it_was_purged() -> None:
    rig = stored(max_events=1)
    client = await rig.client()
    stream = await client.send("GET").started()
    rig.publish(1)
    await numbers(stream, 1)
    id = await last_id(stream)
    await client.request("say", {"count": 3}).ended()
    stream.leave()
    resumed = await client.send("GET", last_event_id=id).started()
    assert resumed.status == 200
    rig.publish(2)
    assert await numbers(resumed, 1) == [2]


async def test_the_end_of_a_session_frees_its_events() -> None:
    store = MemoryEventStore()
    client = await Rig(event_store=store).client()
    await client.request("say", {"count": 3}).ended()
    assert len(store) == 4
    await client.fetch("DELETE")
    await asyncio.sleep(0)
    assert (len(store), store.bytes) == (0, 0)


# Stores that take their time, or fail


class SlowStore(MemoryEventStore):
    """A store whose every call takes some turns of the loop."""

    async def append(self, session_id: str, stream: int, sequence: int, message: bytes) -> None:
        for _ in range(sequence % 3 + 1):
            await asyncio.sleep(0)
        await super().append(session_id, stream, sequence, message)
        await asyncio.sleep(0)

    async def after(self, session_id: str, stream: int, sequence: int) -> list[StoredEvent] | None:
        await asyncio.sleep(0)
        events = await super().after(session_id, stream, sequence)
        await asyncio.sleep(0)
        return events


@pytest.mark.parametrize("store", [SlowStore, MemoryEventStore])
async def test_a_client_that_breaks_off_again_and_again_gets_each_message_once(store: type[MemoryEventStore]) -> None:
    """L25-S-15, L25-S-17: also while new messages come and the store takes its time."""
    rig = Rig(event_store=store())
    client = await rig.client()
    stream = await client.send("GET").started()
    got: list[int] = []
    id = ""
    for number in range(90):
        rig.publish(number)
        for _ in range(number % 4):
            await asyncio.sleep(0)
        if number % 5 == 4:
            # Read a few, leave what else has come unread, and come back with the last id read.
            while len(got) < number - number % 3:
                event = await asyncio.wait_for(stream.next_event(), 5)
                assert event is not None
                id = event.id
                if event.data:
                    got.append(json.loads(event.data)["params"]["n"])
            if number % 2:
                stream.leave()
            stream = client.send("GET", last_event_id=id)
    got += await numbers(stream, 90 - len(got))
    assert got == list(range(90))


class FailingStore(MemoryEventStore):
    async def append(self, session_id: str, stream: int, sequence: int, message: bytes) -> None:
        raise OSError("secret")


async def test_a_store_that_fails_costs_resuming_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    client = await Rig(event_store=FailingStore()).client()
    answer = client.request("say", {"count": 2})
    messages = await answer.messages()
    assert len(messages) == 3
    assert "could not be stored" in caplog.text
    id = await last_id(answer)
    assert (await client.fetch("GET", last_event_id=id)).status == 400


class FailingReader(MemoryEventStore):
    async def after(self, session_id: str, stream: int, sequence: int) -> list[StoredEvent] | None:
        raise OSError("secret")


async def test_a_store_that_cannot_be_read_gives_400(caplog: pytest.LogCaptureFixture) -> None:
    client = await Rig(event_store=FailingReader()).client()
    answer = await client.request("say", {"count": 2}).ended()
    first = await answer.next_event()
    assert first is not None
    assert (await client.fetch("GET", last_event_id=first.id)).status == 400


# Polling


async def test_a_handler_closes_its_stream_and_the_client_polls() -> None:
    """L25-S-07, L25-S-08, L25-S-09."""
    rig = stored()
    client = await rig.client()
    answer = client.request("poll", {"retry_ms": 250}, id=5)
    await answer.ended()
    assert answer.exchange.body.endswith(b"retry: 250\n\n")
    assert await numbers(answer, 1) == [0]
    id = await last_id(answer)
    rig.gates.open("polled")
    messages = await client.send("GET", last_event_id=id).messages()
    assert messages[0]["params"] == {"number": 1}
    assert (messages[1]["id"], messages[1]["result"]) == (5, {"polled": True})


async def test_the_time_to_wait_comes_from_the_options_where_the_handler_gives_none() -> None:
    rig = Rig(event_store=MemoryEventStore(), retry_ms=900)
    client = await rig.client()
    answer = await client.request("poll").ended()
    assert answer.exchange.body.endswith(b"retry: 900\n\n")
    resumed = await client.send("GET", last_event_id=await last_id(answer)).started()
    assert resumed.exchange.body.startswith(b"retry: 900\n\n")
    rig.gates.open("polled")
    assert len(await resumed.messages()) == 2


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
async def test_streams_of_earlier_revisions_are_not_closed_before_their_answer(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    """L06-S-01."""
    rig = stored()
    client = await rig.client(version)
    messages = await client.request("poll").messages()
    assert messages[-1]["error"]["code"] == -32603


async def test_without_a_store_polling_is_refused_to_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    client = await Rig().client()
    messages = await client.request("poll").messages()
    assert messages[-1]["error"]["code"] == -32603
    assert "event_store" in caplog.text


async def test_a_notifications_handler_can_close_the_standing_stream() -> None:
    """L25-S-07, L25-S-08."""
    rig = stored()

    @rig.server.notification("notifications/close")
    async def close(ctx: Any, params: Any) -> None:
        ctx.close_stream(retry_ms=1)

    client = await rig.client()
    stream = await client.send("GET").started()
    await client.fetch("POST", note("notifications/close"))
    await stream.ended()
    assert stream.exchange.body.endswith(b"retry: 1\n\n")
    rig.publish(1)
    assert await numbers(await client.send("GET", last_event_id=await last_id(stream)).started(), 1) == [1]


async def test_cancelling_a_request_whose_stream_was_taken_up_again_ends_it() -> None:
    rig = stored()
    client = await rig.client()
    answer = client.request("poll", id=1)
    await answer.ended()
    resumed = await client.send("GET", last_event_id=await last_id(answer)).started()
    await client.fetch("POST", note("notifications/cancelled", {"requestId": 1}))
    assert await resumed.messages() == []


async def test_a_request_to_the_client_reaches_it_after_it_came_back() -> None:
    """L25-S-17."""
    rig = stored()

    @rig.server.method("later")
    async def later(ctx: Any, params: Any) -> Any:
        await rig.gates.wait("later")
        return await ctx.request("roots/list", timeout=5)

    client = await rig.client()
    answer = await client.request("later").started()
    await rig.gates.until("entered later")
    first = await answer.next_event()
    assert first is not None
    answer.leave()
    rig.gates.open("later")
    resumed = await client.send("GET", last_event_id=first.id).started()
    question = await resumed.next_message()
    await client.fetch("POST", {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})
    assert (await resumed.next_message())["result"] == {"roots": []}
