"""The floor: an echo on uvloop, httptools and orjson, with nothing of MCP but its shapes.

No sessions' rules, no limits, no checks, no time-outs: what the sockets, the parser and the JSON cost.
First argument: ``json`` for `benchmarks.e2e.bare`, which answers a POST with JSON, in one write; ``sse`` to
answer as HTTP+SSE has it, in two: the 202, and the event on the stream that a GET has opened.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httptools
import orjson

from benchmarks.e2e.bare import BareEcho
from benchmarks.e2e.peers.host import host, longest_turn, main

_ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_NOTIFICATION = (
    b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/resources/updated",'
    b'"params":{"uri":"bench://resource"}}\n\n'
)
_INITIALIZED = {
    "protocolVersion": "2024-11-05",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bare", "version": "1"},
}

_streams: dict[bytes, Any] = {}


class BareSSE(asyncio.Protocol):
    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.session = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        _streams.pop(self.session, None)

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_body(self, body: bytes) -> None:
        self.body = body

    def on_message_complete(self) -> None:
        if self.parser.get_method() == b"GET":
            self.session = b"%d" % id(self)
            _streams[self.session] = self.transport
            self.transport.write(_STREAM + _chunk(b"event: endpoint\ndata: /sse?sessionid=%b\n\n" % self.session))
            return
        message: dict[str, Any] = orjson.loads(self.body)
        stream = _streams[self.url.partition(b"=")[2]]
        self.transport.write(_ACCEPTED)
        if message["method"] == "tools/call":
            text = message["params"]["arguments"]["text"]
            result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        elif message["method"] == "initialize":
            result = _INITIALIZED
        else:
            return
        answer = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        stream.write(_chunk(b"event: message\ndata: %b\n\n" % answer))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def publish() -> None:
    """Write one notification to every stream."""
    frame = _chunk(_NOTIFICATION)
    for stream in _streams.values():
        stream.write(frame)


def tick() -> None:
    """Write one keep-alive comment to every stream: the loop that a keep-alive tick is measured against."""
    frame = _chunk(b": keep-alive\n\n")
    for stream in _streams.values():
        stream.write(frame)


async def program(kind: str) -> None:
    factory = {"json": BareEcho, "sse": BareSSE}[kind]
    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0, backlog=2048)
    port = server.sockets[0].getsockname()[1]
    await host(port, {"publish": publish, "tick": tick, "turns": longest_turn})


if __name__ == "__main__":
    main(program(sys.argv[1]))
