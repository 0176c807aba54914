"""Heads that the native client has parsed before are known again; nothing else may change by that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mcpfast.errors import MCPFastError
from mcpfast.http import native_connection
from mcpfast.http.client_interface import fetch
from mcpfast.http.client_request import URL, RequestTemplate
from mcpfast.http.native_client import NativeClient
from tests.support.scripted_server import Peer, ScriptedServer

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"


def sends(*answers: bytes) -> Callable[[Peer], Any]:
    """Answer one request after the other on each connection; the last answer again and again."""

    async def script(peer: Peer) -> None:
        left = list(answers)
        while True:
            await peer.request()
            peer.write(left.pop(0) if len(left) > 1 else left[0])

    return script


async def ask(client: NativeClient, url: str, method: str = "POST") -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    response = await fetch(client, RequestTemplate(method, URL(url)), b"x" if method == "POST" else b"")
    body = await response.read(1000)
    return response.status, body, response.headers.raw


async def test_answers_with_the_same_head_are_the_same_and_share_a_connection(anyio_backend: Any) -> None:
    client = NativeClient()
    async with ScriptedServer(sends(HEAD + b"{}", HEAD + b"[]", HEAD + b"{}")) as server:
        answers = [await ask(client, server.url) for _ in range(4)]
        assert [body for _, body, _ in answers] == [b"{}", b"[]", b"{}", b"{}"]
        assert len({(status, *headers) for status, _, headers in answers}) == 1
        assert len(server.peers) == 1
        await client.aclose()


@pytest.mark.parametrize(
    ("second", "third", "connections"),
    [
        # What comes in pieces is parsed as ever.
        (HEAD[:20], HEAD[20:] + b"ok", 1),
        (HEAD, b"ok", 1),
        (HEAD + b"o", b"k", 1),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"ok", b"", 1),
        (b"HTTP/1.1 100 Continue\r\n\r\n", HEAD + b"ok", 1),
        # An empty line after the answer is let pass (RFC 9112 §2.2), other bytes close the connection.
        (HEAD + b"ok\r\n", b"", 1),
        (HEAD + b"okHTTP/1.1 200 OK\r\n", b"", 2),
    ],
)
async def test_a_known_head_that_comes_in_another_way(
    anyio_backend: Any, second: bytes, third: bytes, connections: int
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number == 0:
            peer.write(HEAD + b"{}")
            await peer.request()
            peer.write(second)
            await peer.drain()
            await asyncio.sleep(0.02)
            peer.write(third)
            await peer.request()
        peer.write(HEAD + b"[]")
        await peer.until_left()

    client = NativeClient()
    async with ScriptedServer(script) as server:
        bodies = [(await ask(client, server.url))[1] for _ in range(3)]
        assert bodies == [b"{}", b"ok", b"[]"]
        assert len(server.peers) == connections
        await client.aclose()


async def test_a_known_head_may_close_its_connection_or_have_no_body(anyio_backend: Any) -> None:
    closing = HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    client = NativeClient()
    async with ScriptedServer(sends(closing + b"{}")) as server:
        for _ in range(3):
            assert (await ask(client, server.url))[1] == b"{}"
        assert len(server.peers) == 3
        await client.aclose()
    client = NativeClient()
    async with ScriptedServer(sends(HEAD + b"{}", HEAD)) as server:
        assert (await ask(client, server.url))[1] == b"{}"
        assert (await ask(client, server.url, "HEAD"))[1] == b""
        await client.aclose()


async def test_a_known_head_with_less_body_waits_for_the_rest(anyio_backend: Any) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.write(HEAD + b"{}")
        await peer.request()
        peer.write(HEAD + b"o")
        await peer.drain()
        peer.abort()

    client = NativeClient()
    async with ScriptedServer(script) as server:
        assert (await ask(client, server.url))[1] == b"{}"
        with pytest.raises((ConnectionError, MCPFastError)):
            await ask(client, server.url)
        await client.aclose()


async def test_how_many_heads_are_kept_is_bounded(anyio_backend: Any) -> None:
    client = NativeClient()

    async def script(peer: Peer) -> None:
        number = 0
        while True:
            await peer.request()
            number += 1
            peer.write(HEAD.replace(b"OK\r\n", b"OK\r\nX-Number: %d\r\n" % number) + b"{}")

    async with ScriptedServer(script) as server:
        for _ in range(3 * native_connection.MAX_KEPT_HEADS):
            assert (await ask(client, server.url))[1] == b"{}"
        (pool,) = client._pools.values()
        assert 0 < len(pool._heads) <= native_connection.MAX_KEPT_HEADS
        await client.aclose()
