"""An HTTP+SSE client over the in-memory shell, for tests of the server side."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from mcpfast.codec import ServerSentEvent, SSEDecoder
from mcpfast.http.interface import Handler
from tests.support.memory import Exchange, MemoryShell

JSON = {"content-type": "application/json"}


class SSEPeer:
    """One session's client: the GET and its POSTs."""

    def __init__(self, shell: MemoryShell | Handler, path: str = "/sse", **headers: str) -> None:
        self.shell = shell if isinstance(shell, MemoryShell) else MemoryShell(shell)
        self.path = path
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.get: Exchange
        self.endpoint = ""
        self.events: list[ServerSentEvent] = []
        self.comments = b""
        self._decoder = SSEDecoder()
        self._last_id = 0

    async def open(self) -> SSEPeer:
        """Send the GET and read the endpoint event."""
        self.get = self.shell.request("GET", self.path, self.headers)
        await self.get.until_started()
        assert self.get.status == 200, (self.get.status, self.get.body)
        event = await self.next_event()
        assert event.event == "endpoint"
        self.endpoint = unquote(event.data)
        return self

    async def start(self, version: str = "2024-11-05") -> SSEPeer:
        """Open the session and initialize it."""
        await self.open()
        answer = await self.call("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {}})
        assert answer["result"]["protocolVersion"] == version
        await self.notify("notifications/initialized")
        return self

    async def next_event(self) -> ServerSentEvent:
        while not self.events:
            piece = await self.get.next_piece()
            assert piece, "the stream has ended"
            self.events += self._decoder.feed(piece)
        return self.events.pop(0)

    async def next_message(self) -> Any:
        """Return the next message; its event must be one."""
        event = await self.next_event()
        assert (event.event, event.id) == ("message", "")
        return json.loads(event.data)

    def send(self, message: Any, target: str | None = None, **headers: str) -> Exchange:
        """Begin a POST."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.shell.request("POST", target or self.endpoint, {**JSON, **self.headers, **headers}, body)

    async def post(self, message: Any, target: str | None = None, **headers: str) -> int:
        """Make a POST and return its status."""
        exchange = self.send(message, target, **headers)
        await exchange.until_ended()
        assert exchange.status is not None
        return exchange.status

    async def notify(self, method: str, params: Any = None) -> None:
        message = {"jsonrpc": "2.0", "method": method}
        assert await self.post(message if params is None else {**message, "params": params}) == 202

    async def request(self, method: str, params: Any = None, id: Any = None) -> Any:
        """Post a request and return its id."""
        if id is None:
            self._last_id += 1
            id = self._last_id
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        assert await self.post(message if params is None else {**message, "params": params}) == 202
        return id

    async def call(self, method: str, params: Any = None, id: Any = None) -> Any:
        """Post a request and return the next message, which must be its answer."""
        id = await self.request(method, params, id)
        answer = await self.next_message()
        assert answer.get("id") == id, answer
        return answer

    def leave(self) -> None:
        """Close the stream."""
        self.get.disconnect()
