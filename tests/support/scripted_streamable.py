"""A Streamable HTTP server under a test's control, on real sockets.

::

    script = StreamableScript()
    script.on("tools/call", lambda peer, message: peer.respond(500))
    async with ScriptedServer(script) as server, connect(script.url(server), "http") as client:
        ...

What nothing is said about is answered as a plain server would: ``initialize`` with a session, ``server/discover`` with
2026-07-28 if ``modern``, other requests with a result that tells what came, notifications and responses with 202, GET
with 405 and DELETE with 200.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.scripted_server import Peer, Received, ScriptedServer

Action = Callable[[Peer, Any], Awaitable[None] | None]

SERVER_INFO = {"name": "scripted", "version": "1"}


class StreamableScript:
    """The script; give it to a ScriptedServer.

    Args:
        modern: serve 2026-07-28; else a request without a session gets 400.
        version: what ``initialize`` answers with.
        session_id: what it gives; None for no session.
    """

    def __init__(
        self, *, modern: bool = False, version: str = "2025-11-25", session_id: str | None = "session-1"
    ) -> None:
        self.modern = modern
        self.version = version
        self.session_id = session_id
        self.posts: list[tuple[Any, Received]] = []
        self.gets: list[Received] = []
        self.times: list[float] = []  # when each GET came
        self.deletes: list[Received] = []
        self._actions: dict[str, list[Action]] = {}

    def url(self, server: ScriptedServer) -> str:
        return f"{server.origin}/mcp"

    def on(self, method: str, *actions: Action) -> None:
        """Answer requests of a method, or ``"GET"``, ``"DELETE"`` and ``"response"``: one action after the other, the
        last one again and again."""
        self._actions[method] = list(actions)

    def methods(self) -> list[str]:
        """The methods posted so far."""
        return [message["method"] for message, _ in self.posts if "method" in message]

    def last(self, method: str) -> tuple[Any, Received]:
        return [post for post in self.posts if post[0].get("method") == method][-1]

    async def __call__(self, peer: Peer) -> None:
        while True:
            received = await peer.request()
            message: Any = None
            if received.method == "GET":
                self.gets.append(received)
                self.times.append(asyncio.get_running_loop().time())
                kind = "GET"
            elif received.method == "DELETE":
                self.deletes.append(received)
                kind = "DELETE"
            else:
                message = json.loads(received.body)
                self.posts.append((message, received))
                first = message[0] if isinstance(message, list) else message
                kind = first.get("method", "response")
            actions = self._actions.get(kind)
            if actions:
                action = actions.pop(0) if len(actions) > 1 else actions[0]
                done = action(peer, message)
                if done is not None:
                    await done
            else:
                self.answer(peer, message, received)

    def answer(self, peer: Peer, message: Any, received: Received) -> None:
        """Answer as a plain server would."""
        if message is None:
            peer.respond(405 if received.method == "GET" else 200)
        elif "method" not in message or "id" not in message:
            peer.respond(202)
        elif message["method"] == "initialize":
            headers = [] if self.session_id is None else [f"mcp-session-id: {self.session_id}"]
            result = {"protocolVersion": self.version, "capabilities": {}, "serverInfo": SERVER_INFO}
            peer.respond(200, body_of(message, result), *headers)
        elif message["method"] == "server/discover":
            if self.modern:
                result = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
                peer.respond(200, body_of(message, result))
            else:
                peer.respond(400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}')
        else:
            peer.respond(200, body_of(message, {"method": message["method"], "params": message.get("params")}))


def body_of(message: Any, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


def error_of(message: Any, code: int, text: str, data: Any = None) -> bytes:
    error = {"code": code, "message": text} | ({} if data is None else {"data": data})
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()


def event(message: Any, id: str | None = None) -> bytes:
    head = b"" if id is None else b"id: " + id.encode() + b"\n"
    return head + b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"


def result_event(message: Any, result: Any, id: str | None = None) -> bytes:
    return event({"jsonrpc": "2.0", "id": message["id"], "result": result}, id)


def note(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/n", "params": {"number": number}}
