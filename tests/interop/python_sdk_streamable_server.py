"""A server of the official Python SDK over Streamable HTTP, under uvicorn: a program that prints its port.

Arguments: any of ``json``, ``stateless``, ``store``.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore

server = MCPServer("python-sdk", instructions="be kind")


@server.tool(structured_output=False)
def echo(text: str) -> str:
    return text


@server.tool(structured_output=False)
def big(characters: int) -> str:
    return "x" * characters


@server.tool(structured_output=False)
async def progress(steps: int, ctx: Context) -> str:
    for done in range(steps):
        await ctx.report_progress(done, steps, f"step-{done}.")
        await asyncio.sleep(0.05)
    return "done"


class Gate:
    """Opens once for each call of the tool ``go``."""

    waiting: asyncio.Event | None = None


@server.tool(structured_output=False)
async def gated(steps: int, ctx: Context) -> str:
    """Report progress in three goes of so many steps."""
    for done in range(3 * steps):
        if done and done % steps == 0:
            Gate.waiting = asyncio.Event()
            await Gate.waiting.wait()
            # What the SDK sends between a replay and its end reaches the store only; that is not what is tested.
            await asyncio.sleep(1)
        await ctx.report_progress(done, None, f"step-{done}.")
    return "done"


@server.tool(structured_output=False)
async def go() -> str:
    assert Gate.waiting is not None
    Gate.waiting.set()
    return "gone"


@server.tool(structured_output=False)
async def roots(ctx: Context) -> str:
    found = await ctx.session.list_roots()
    return ",".join(str(root.uri) for root in found.roots)


@server.tool(structured_output=False)
async def changed(ctx: Context) -> str:
    await ctx.session.send_resource_list_changed()
    return "done"


class Store(EventStore):
    """Keeps everything, as an example would."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream_id = self._events[last - 1][0]
        for number, (its_stream, message) in enumerate(self._events[last:], start=last + 1):
            if its_stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


def main() -> None:
    options: dict[str, Any] = {"json_response": "json" in sys.argv, "stateless_http": "stateless" in sys.argv}
    if "store" in sys.argv:
        options |= {"event_store": Store(), "retry_interval": 100}
    sock = socket.create_server(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    config = uvicorn.Config(server.streamable_http_app(**options), log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
