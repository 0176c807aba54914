"""The floor: a JSON echo on uvloop, httptools and orjson, without any of what makes a server.

No limits, no time-outs, no checks, no answer but 200. What a call costs here is what sockets, parser
and JSON cost; DESIGN's targets for the native server are multiples of it. Prints its port::

    python -m benchmarks.e2e.bare --port 0
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import httptools
import orjson
import uvloop


class BareEcho(asyncio.Protocol):
    """Answers each POST of a ``tools/call`` with the text it came with, as a modern result."""

    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body = body

    def on_message_complete(self) -> None:
        answer = echo(self.body)
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer)
        )


def echo(body: bytes) -> bytes:
    """Return the answer to a ``tools/call`` with the argument ``text``."""
    message = orjson.loads(body)
    result = {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}], "resultType": "complete"}
    return orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})


async def serve(port: int) -> None:
    """Serve until cancelled, after printing the port."""
    server = await asyncio.get_running_loop().create_server(BareEcho, "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=0)
    try:
        uvloop.run(serve(parser.parse_args().port))
    except KeyboardInterrupt:
        pass
