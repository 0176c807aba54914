"""An application for ASGI servers that run as processes of their own: ``tests.support.asgi_app:app``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from mcpfast.http.asgi import ASGIApp
from mcpfast.http.interface import Request, Responder

told = 0


@asynccontextmanager
async def lifespan() -> AsyncIterator[bytes]:
    yield b"from the lifespan"


def handler(request: Request, responder: Responder) -> Awaitable[None] | None:
    if request.path == "/echo":
        return echo(request, responder)
    if request.path == "/state":
        responder.respond(200, [(b"x-path", request.path.encode())], request.state)
    elif request.path == "/stream":
        responder.on_disconnect(tell)
        responder.start(200, ((b"content-type", b"text/event-stream"),))
        responder.write(b"data: 1\n\n")
        asyncio.get_running_loop().call_later(0.05, responder.write, b"data: 2\n\n")
    elif request.path == "/work":
        return work(responder)
    elif request.path == "/told":
        responder.respond(200, (), b"%d" % told)
    else:
        responder.respond(404, (), b"no")
    return None


async def echo(request: Request, responder: Responder) -> None:
    responder.respond(200, ((b"content-type", b"application/octet-stream"),), await request.body())


async def work(responder: Responder) -> None:
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        tell()
        raise


def tell() -> None:
    global told
    told += 1


app = ASGIApp(handler, lifespan=lifespan)
