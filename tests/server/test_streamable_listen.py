"""subscriptions/listen of 2026-07-28."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from mcpfast.server.streamable import StreamableHTTPHandler
from tests.server.streamable_peer import Answer, Peer, error_of, make_server

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]

ID_KEY = "io.modelcontextprotocol/subscriptionId"
ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


class Rig:
    def __init__(self, **options: Any) -> None:
        self.server = make_server()
        self.handler = StreamableHTTPHandler(lambda request: self.server, **options)
        self.peer = Peer(self.handler)

    def listen(self, asked: Any, id: Any = 1, **headers: str) -> Answer:
        return self.peer.modern("subscriptions/listen", {"notifications": asked}, id, **headers)

    async def listening(self, asked: Any, id: Any = 1) -> Answer:
        """Open a stream and read its acknowledgement."""
        answer = await self.listen(asked, id).started()
        assert answer.is_stream, answer.exchange.body
        acknowledgement = await answer.next_message()
        assert acknowledgement["method"] == "notifications/subscriptions/acknowledged"
        return answer


async def test_the_acknowledgement_comes_first_and_says_what_is_granted() -> None:
    """M26-S-54, M26-S-56, M26-S-57."""
    rig = Rig()
    asked = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": ["a://b"], "other": True}
    answer = await rig.listen(asked, "sub").started()
    rig.server.publish("notifications/tools/list_changed")
    assert await answer.next_message() == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "_meta": {ID_KEY: "sub"},
            "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a://b"]},
        },
    }
    assert (await answer.next_message())["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize("id", [1, "1", 0, "", 'a\u00e9"', 2**60])
async def test_each_notification_carries_the_requests_id_with_its_type(id: Any) -> None:
    """M26-S-56."""
    rig = Rig()
    answer = await rig.listening(ALL | {"resourceSubscriptions": ["a://b"]}, id)
    rig.server.publish("notifications/tools/list_changed")
    rig.server.publish("notifications/resources/updated", {"uri": "a://b", "_meta": {"x": 1, ID_KEY: "foreign"}})
    first, second = await answer.next_message(), await answer.next_message()
    assert first["params"] == {"_meta": {ID_KEY: id}}
    assert second["params"] == {"_meta": {ID_KEY: id, "x": 1}, "uri": "a://b"}
    assert type(first["params"]["_meta"][ID_KEY]) is type(id)


async def test_only_what_was_asked_for_is_delivered() -> None:
    """M26-S-55, M26-S-19."""
    rig = Rig()
    streams = {
        "tools": await rig.listening({"toolsListChanged": True}, 1),
        "uri": await rig.listening({"resourceSubscriptions": ["a://1"]}, 2),
        "nothing": await rig.listening({"toolsListChanged": 1, "promptsListChanged": None}, 3),
    }
    for method, params in (
        ("notifications/prompts/list_changed", None),
        ("notifications/resources/updated", {"uri": "a://2"}),
        ("notifications/resources/updated", {}),
        ("notifications/resources/updated", None),
        ("notifications/message", {"level": "info", "data": "x"}),
        ("notifications/progress", {"progressToken": 1, "progress": 1}),
        ("toolsListChanged", None),
        ("notifications/tools/list_changed", None),
        ("notifications/resources/updated", {"uri": "a://1"}),
    ):
        rig.server.publish(method, params)
    assert (await streams["tools"].next_message())["method"] == "notifications/tools/list_changed"
    assert (await streams["uri"].next_message())["params"]["uri"] == "a://1"
    await asyncio.sleep(0)
    assert [stream.exchange.body.count(b"data:") for stream in streams.values()] == [2, 2, 1]


async def test_one_client_holds_several_streams() -> None:
    """M26-S-60: also with one id, as each request is complete in itself."""
    rig = Rig()
    streams = [await rig.listening(ALL, id) for id in (1, 1, "1")]
    rig.server.publish("notifications/tools/list_changed")
    for stream in streams:
        assert (await stream.next_message())["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize("asked", [None, [], "all", {"resourceSubscriptions": "a://b"}, {"resourceSubscriptions": [1]}])
async def test_a_filter_that_is_none_is_refused(asked: Any) -> None:
    assert error_of(await Rig().listen(asked, 5).ended()) == (400, -32602, 5)


async def test_it_needs_a_client_that_takes_streams_whatever_the_server_prefers() -> None:
    """M26-S-57."""
    rig = Rig(responses="json")
    assert (await rig.listen(ALL, accept="application/json").ended()).status == 406
    assert await rig.listening(ALL)


async def test_the_body_of_a_subscription_is_bounded() -> None:
    uris = ["a://" + "x" * 1000] * 70
    assert (await Rig().listen({"resourceSubscriptions": uris}).ended()).status == 413


async def test_a_client_that_leaves_frees_its_stream() -> None:
    """M26-S-22, M26-S-24."""
    rig = Rig()
    before = rig.handler.shared.load.in_flight
    answer = await rig.listening(ALL)
    assert rig.handler.shared.stats.streams == 1
    assert answer.exchange.task is None, "a stream costs no task"
    assert rig.handler.shared.load.in_flight == before + 1
    answer.leave()
    assert (rig.handler.shared.stats.streams, rig.handler.shared.load.in_flight) == (0, before)
    rig.server.publish("notifications/tools/list_changed")


async def test_a_stopping_server_answers_the_request_and_closes() -> None:
    """M26-S-58, M26-S-59: the result ends the stream; no cancelled notification is sent."""
    rig = Rig()
    answer = await rig.listening(ALL, "bye")
    await rig.handler.drain()
    messages = await answer.messages()
    assert len(messages) == 1
    assert messages[0]["id"] == "bye"
    assert messages[0]["result"]["resultType"] == "complete"
    assert messages[0]["result"]["_meta"][ID_KEY] == "bye"
    assert "io.modelcontextprotocol/serverInfo" in messages[0]["result"]["_meta"]
    assert (await rig.listen(ALL).ended()).status == 503


async def test_quiet_streams_are_kept_alive() -> None:
    """C034, M26-S-17."""
    rig = Rig(keepalive_s=0.1)
    answer = await rig.listening(ALL)
    await answer.exchange.until(lambda: answer.exchange.body.count(b"\n: ") >= 3)


async def test_a_slow_reader_is_dropped_and_others_do_not_notice() -> None:
    """C070."""
    rig = Rig(max_unsent_bytes=500)
    slow, quick = await rig.listening(ALL), await rig.listening(ALL)
    slow.exchange.stall()
    for _ in range(20):
        rig.server.publish("notifications/tools/list_changed")
    assert slow.exchange.aborted == "slow_reader"
    for _ in range(20):
        assert (await quick.next_message())["method"] == "notifications/tools/list_changed"


async def test_publishing_from_another_thread_and_to_all_eras_at_once() -> None:
    rig = Rig()
    listen = await rig.listening(ALL)
    session = await Peer(rig.handler).initialize()
    get = await session.send("GET").started()
    thread = threading.Thread(target=rig.server.publish, args=("notifications/tools/list_changed",))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert (await listen.next_message())["params"] == {"_meta": {ID_KEY: 1}}
    assert json.loads((await get.next_event()).data) == {  # type: ignore[union-attr]
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
    }


async def test_the_application_cannot_take_the_methods_name() -> None:
    for name in ("subscriptions/listen", "server/discover"):
        with pytest.raises(ValueError, match="built in"):
            make_server().method(name)
