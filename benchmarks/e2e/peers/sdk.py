"""The official SDK's HTTP+SSE server, on uvicorn. One argument: ``lowlevel`` or ``mcpserver``.

Its log handlers are silenced (`MCPServer` installs Rich's at INFO); everything else is as it comes, the
OpenTelemetry middleware, which finds no exporter here, included. For a notification to everyone the SDK has no call:
its users keep the sessions and send to each, as done here with the sessions that called the tool ``join``.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.sse import SseServerTransport
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from benchmarks.e2e.peers.host import main, serve_asgi

_sessions: list[Any] = []


def lowlevel() -> Starlette:
    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema=schema)])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name == "join":
            _sessions.append(ctx.session)
        return types.CallToolResult(content=[types.TextContent(text=(params.arguments or {})["text"])])

    server = Server("bench", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    transport = SseServerTransport("/messages/")

    async def sse(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as streams:
            await server.run(streams[0], streams[1], server.create_initialization_options())
        return Response()

    return Starlette(routes=[Route("/sse", sse), Mount("/messages/", app=transport.handle_post_message)])


def mcpserver() -> Starlette:
    server = MCPServer("bench", log_level="WARNING")

    @server.tool(structured_output=False)
    async def echo(text: str) -> str:
        return text

    @server.tool(structured_output=False)
    async def join(text: str, ctx: Context[Any]) -> str:
        _sessions.append(ctx.session)
        return text

    return server.sse_app()


async def publish() -> None:
    for session in _sessions:
        await session.send_resource_updated("bench://resource")


if __name__ == "__main__":
    app = {"lowlevel": lowlevel, "mcpserver": mcpserver}[sys.argv[1]]()
    logging.getLogger().setLevel(logging.WARNING)
    main(serve_asgi(app, {"publish": publish}))
