"""An HTTP+SSE server under a test's control, on real sockets.

::

    script = SSEScript()
    async with ScriptedServer(script) as server, SSEClientTransport(server.url) as connection:
        await script.until_open()
        script.send({"jsonrpc": "2.0", "method": "notifications/x"})

Each POST to the endpoint is kept in ``posts`` and answered with 202, and a request among them with a result over the
stream; ``on_post`` may do otherwise.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.scripted_server import WAIT_S, Peer, Received

ENDPOINT = b"event: endpoint\ndata: /messages?sessionid=s1\n\n"

INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "scripted", "version": "1"},
    "instructions": "be kind",
}

OnPost = Callable[[Peer, Any, Received], Awaitable[bool]]
"""Gets the peer, the decoded message and the request; True if it has answered the POST."""


class SSEScript:
    """The script; give it to a ScriptedServer."""

    def __init__(self, first: bytes = ENDPOINT, *, on_post: OnPost | None = None, answers: bool = True) -> None:
        self.first = first
        self.on_post = on_post
        self.answers = answers
        self.streams: list[Peer] = []
        self.posts: list[Any] = []
        self._changed = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        while True:
            received = await peer.request()
            if received.method == "GET":
                peer.start_stream()
                if self.first:
                    peer.chunk(self.first)
                self.streams.append(peer)
                self._changed.set()
                await peer.until_left()
                return
            if received.target == "/sse":
                peer.respond(405)  # as servers do that know GET alone there: a client looked for a newer revision
                continue
            message = json.loads(received.body)
            self.posts.append(message)
            self._changed.set()
            if self.on_post is None or not await self.on_post(peer, message, received):
                peer.respond(202)
                if self.answers and "id" in message and "method" in message:
                    self.answer(message)

    def answer(self, message: Any) -> None:
        """Give a request the result a plain server would."""
        if message["method"] == "initialize":
            result: Any = INITIALIZED
        else:
            result = {"method": message["method"], "params": message.get("params")}
        self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def send(self, message: Any) -> None:
        """Send a message over the stream."""
        self.send_raw(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")

    def send_raw(self, data: bytes) -> None:
        self.streams[-1].chunk(data)

    def methods(self) -> list[str]:
        """The methods posted so far."""
        return [message["method"] for message in self.posts if "method" in message]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition()`` is true; it is tried whenever a request has come."""

        async def wait() -> None:
            while not condition():
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(wait(), WAIT_S)

    async def until_open(self) -> None:
        await self.until(lambda: self.streams)
