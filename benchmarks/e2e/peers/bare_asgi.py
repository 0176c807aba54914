"""The floor under an ASGI server: HTTP+SSE's echo as a bare ASGI application on uvicorn, with orjson."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from benchmarks.e2e.peers.host import main, serve_asgi

_INITIALIZED = {
    "protocolVersion": "2024-11-05",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bare", "version": "1"},
}

_streams: dict[bytes, Any] = {}


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["method"] == "GET":
        await _stream(receive, send)
    else:
        await _post(scope, receive, send)


async def _stream(receive: Any, send: Any) -> None:
    session = b"%d" % id(send)
    _streams[session] = send
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send(_piece(b"event: endpoint\ndata: /sse?sessionid=%b\n\n" % session))
    while (await receive())["type"] != "http.disconnect":
        pass
    del _streams[session]


async def _post(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    is_more = True
    while is_more:
        event = await receive()
        body += event.get("body", b"")
        is_more = event.get("more_body", False)
    stream = _streams[scope["query_string"].partition(b"=")[2]]
    await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
    message = orjson.loads(body)
    if message["method"] == "tools/call":
        result: Any = {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
    elif message["method"] == "initialize":
        result = _INITIALIZED
    else:
        return
    answer = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
    await stream(_piece(b"event: message\ndata: %b\n\n" % answer))


def _piece(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def publish() -> None:
    """Send one notification to every stream."""
    data = b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/resources/updated"}\n\n'
    await asyncio.gather(*(stream(_piece(data)) for stream in _streams.values()))


if __name__ == "__main__":
    main(serve_asgi(app, {"publish": publish}))
