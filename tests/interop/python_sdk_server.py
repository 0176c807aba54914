"""A server of the official Python SDK over HTTP+SSE, under uvicorn: a program that prints its port."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("python-sdk", instructions="be kind")


@server.tool(structured_output=False)
def echo(text: str) -> str:
    return text


@server.tool(structured_output=False)
def big(characters: int) -> str:
    return "x" * characters


@server.tool(structured_output=False)
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@server.tool(structured_output=False)
async def progress(ctx: Context) -> str:
    for done in range(3):
        await ctx.report_progress(done, 3, f"step {done}")
    await ctx.session.send_resource_list_changed()
    return "done"


@server.tool(structured_output=False)
async def fail() -> str:
    raise RuntimeError("boom")


def main() -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    config = uvicorn.Config(server.sse_app(), log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
