"""A Streamable HTTP client over the in-memory shell, for tests of the server side: it sends whatever it is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mcpfast.codec import ServerSentEvent, SSEDecoder
from mcpfast.http.interface import Handler
from mcpfast.server import Context, Server
from tests.support.memory import Exchange, MemoryShell

MODERN = "2026-07-28"
BOTH = "application/json, text/event-stream"

SHELLS: list[MemoryShell] = []
"""Those that this test has used; the fixture ``nothing_left`` closes them."""


def modern_meta(**more: Any) -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        **more,
    }


class Answer:
    """The answer to one request, as JSON or as a stream."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.events: list[ServerSentEvent] = []  # read, not taken yet
        self._decoder = SSEDecoder()

    @property
    def status(self) -> int | None:
        return self.exchange.status

    @property
    def content_type(self) -> str:
        return self.exchange.headers.get("content-type", "")

    @property
    def is_stream(self) -> bool:
        return self.content_type == "text/event-stream"

    async def started(self) -> Answer:
        await self.exchange.until_started()
        return self

    async def ended(self) -> Answer:
        await self.exchange.until_ended()
        return self

    def json(self) -> Any:
        assert self.content_type == "application/json", (self.status, self.exchange.header_list, self.exchange.body)
        return json.loads(self.exchange.body)

    async def next_event(self) -> ServerSentEvent | None:
        """Return the next event; None once the stream has ended."""
        while not self.events:
            piece = await self.exchange.next_piece()
            if not piece:
                return None
            self.events += self._decoder.feed(piece)
        return self.events.pop(0)

    async def next_message(self) -> Any:
        """Return the next message, skipping the events without one; None once the stream has ended."""
        while (event := await self.next_event()) is not None:
            if event.data:
                assert event.event == "message"
                return json.loads(event.data)
        return None

    async def messages(self) -> list[Any]:
        """Read a stream to its end, or the one JSON answer."""
        await self.ended()
        if not self.is_stream:
            return [self.json()]
        found = []
        while (message := await self.next_message()) is not None:
            found.append(message)
        return found

    def leave(self) -> None:
        self.exchange.disconnect()


class Peer:
    """One client of a Streamable HTTP server."""

    def __init__(self, shell: MemoryShell | Handler, path: str = "/mcp", **headers: str) -> None:
        self.shell = shell if isinstance(shell, MemoryShell) else MemoryShell(shell)
        SHELLS.append(self.shell)
        self.path = path
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.session_id = ""
        self.version = ""
        self._last_id = 0

    def send(self, method: str = "POST", body: Any = b"", /, drop: tuple[str, ...] = (), **headers: str) -> Answer:
        """Begin a request with the headers a client sends, changed by ``headers`` and less those in ``drop``."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"accept": BOTH if method == "POST" else "text/event-stream"}
        if method == "POST":
            fields["content-type"] = "application/json"
        if self.session_id:
            fields["mcp-session-id"] = self.session_id
        if self.version:
            fields["mcp-protocol-version"] = self.version
        fields |= self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        return Answer(self.shell.request(method, self.path, {k: v for k, v in fields.items() if k not in drop}, data))

    async def fetch(
        self, method: str = "POST", body: Any = b"", /, drop: tuple[str, ...] = (), **headers: str
    ) -> Answer:
        return await self.send(method, body, drop, **headers).ended()

    # A session

    async def initialize(self, version: str = "2025-11-25", **headers: str) -> Peer:
        answer = await self.fetch("POST", initialize(version), **headers)
        assert answer.status == 200, (answer.status, answer.exchange.body)
        self.session_id = answer.exchange.headers.get("mcp-session-id", "")
        (message,) = await answer.messages()
        self.version = message["result"]["protocolVersion"]
        if self.version < "2025-06-18":
            self.version = ""
        assert (await self.fetch("POST", note("notifications/initialized"))).status == 202
        return self

    def request(self, method: str, params: Any = None, id: Any = None, **headers: str) -> Answer:
        """Begin a request of a session."""
        return self.send("POST", self.call(method, params, id), **headers)

    def call(self, method: str, params: Any = None, id: Any = None) -> dict[str, Any]:
        if id is None:
            self._last_id += 1
            id = self._last_id
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}

    # 2026-07-28

    def modern(
        self, method: str, params: Any = None, id: Any = None, drop: tuple[str, ...] = (), **headers: str
    ) -> Answer:
        """Begin a request of 2026-07-28, with the headers that belong to it."""
        params = {"_meta": modern_meta(), **(params or {})}
        fields = {"mcp-protocol-version": MODERN, "mcp-method": method}
        name = params.get("uri") if method == "resources/read" else params.get("name")
        if method in ("tools/call", "prompts/get", "resources/read") and name is not None:
            fields["mcp-name"] = name
        fields |= {key.replace("_", "-"): value for key, value in headers.items()}
        return self.send("POST", self.call(method, params, id), drop, **fields)


def initialize(version: str = "2025-11-25", id: Any = 0, **more: Any) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "peer", "version": "1"}}
    return {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": {**params, **more}}


def note(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params or {}}


def error_of(answer: Answer) -> tuple[int | None, int, Any]:
    """Return status, code and id of an answer that is an error."""
    body = answer.json()
    return answer.status, body["error"]["code"], body["id"]


class Gates:
    """Lets tests decide when handlers go on."""

    def __init__(self) -> None:
        self._gates: dict[str, asyncio.Event] = {}
        self.entered: list[str] = []
        self.cancelled: list[str] = []

    def __getitem__(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    async def wait(self, name: str) -> None:
        self.entered.append(name)
        self["entered " + name].set()
        try:
            await self[name].wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            self["cancelled " + name].set()
            raise

    async def until(self, name: str) -> None:
        await asyncio.wait_for(self[name].wait(), 5)

    def open(self, name: str) -> None:
        self[name].set()


def make_server(gates: Gates | None = None, **options: Any) -> Server:
    """A server whose methods do what transports must carry."""
    server = Server("test", "1", **options)
    gates = gates or Gates()

    @server.method("tools/call")
    async def call(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"echo": params.get("arguments"), "name": params.get("name")}

    @server.method("tools/list")
    async def list_tools(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"tools": []}

    @server.method("wait")
    async def wait(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        await gates.wait(params.get("gate", "gate"))
        return {"waited": params.get("gate", "gate")}

    @server.method("say")
    async def say(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        for number in range(params["count"]):
            await ctx.notify("notifications/said", {"number": number})
            if "gate" in params:
                await gates.wait(f"{params['gate']}{number}")
        return {"said": params["count"]}

    @server.method("ask")
    async def ask(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"answer": await ctx.request("sampling/createMessage", {"n": 1}, timeout=5)}

    @server.method("poll")
    async def poll(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        await ctx.notify("notifications/said", {"number": 0})
        ctx.close_stream(retry_ms=params.get("retry_ms"))
        await gates.wait("polled")
        await ctx.notify("notifications/said", {"number": 1})
        return {"polled": True}

    @server.method("fail")
    async def fail(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        from mcpfast import RPCError

        if "code" in params:
            raise RPCError(params["code"], "as told", params.get("data"))
        raise RuntimeError("secret")

    @server.method("who")
    async def who(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "version": ctx.protocol_version,
            "session": ctx.session_id is not None,
            "client": ctx.client_info,
            "capabilities": ctx.client_capabilities,
            "principal": None if ctx.principal is None else ctx.principal.subject,
        }

    @server.notification("notifications/tell")
    async def tell(ctx: Context, params: dict[str, Any]) -> None:
        await ctx.notify("notifications/told", params)

    return server
