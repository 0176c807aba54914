"""mcpfast's HTTP+SSE server. First argument: ``native`` for its own listener, ``asgi`` for uvicorn."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.e2e.peers.host import Command, host, longest_turn, main, serve_asgi
from mcpfast import Server, serve

_KEEPALIVE_S = 15.0
_MAX_SESSIONS = 20_000  # ten thousand that are open, and some that have just left


def echo_server() -> Server:
    server = Server("bench", "1")

    @server.method("tools/call")
    async def call(ctx: Any, params: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": params["arguments"]["text"]}]}

    return server


async def program(shell: str, keepalive_s: float) -> None:
    server = echo_server()

    def publish() -> None:
        server.publish("notifications/resources/updated", {"uri": "bench://resource"})

    commands: dict[str, Command] = {"publish": publish, "turns": longest_turn}
    if shell == "asgi":
        await serve_asgi(server.asgi(keepalive_s=keepalive_s, max_sessions=_MAX_SESSIONS), commands)
        return
    async with serve(server, keepalive_s=keepalive_s, max_sessions=_MAX_SESSIONS) as listener:
        await host(listener.port, commands)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("shell", choices=("native", "asgi"))
    parser.add_argument("--keepalive-s", type=float, default=_KEEPALIVE_S)
    options = parser.parse_args()
    main(program(options.shell, options.keepalive_s))
