"""Our client with the official Python SDK's servers over Streamable HTTP, as real processes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpfast import connect
from mcpfast.client import detection
from mcpfast.errors import RPCError
from mcpfast.jsonrpc import Notification, Request
from tests.support.cutting_proxy import CuttingProxy
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

WAIT_S = 30.0
PROGRAM = Path(__file__).with_name("python_sdk_streamable_server.py")


@pytest.fixture(scope="module", autouse=True)
def sdk() -> None:
    """Skip without the SDK, unless it was said to be there."""
    missing = [name for name in ("mcp", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"{', '.join(missing)} not installed (the SDK needs Python 3.11)"
        if os.environ.get("MCPFAST_REQUIRE_INTEROP") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@contextlib.contextmanager
def running(*flags: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, str(PROGRAM), *flags], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()
            process.wait(WAIT_S)


KINDS: dict[str, tuple[str, ...]] = {"default": (), "json": ("json",), "stateless": ("stateless",), "store": ("store",)}


@pytest.fixture(scope="module", params=KINDS)
def sdk_server(request: pytest.FixtureRequest, sdk: None) -> Iterator[tuple[str, int]]:
    """Kind and port of a server: one process for all tests, as it is slow to load."""
    with running(*KINDS[request.param]) as port:
        yield request.param, port


async def call(client: Any, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
    result = await client.request("tools/call", {"name": name, "arguments": arguments or {}}, **options)
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize("version", [None, "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"])
async def test_detect_list_call_progress_and_close(
    anyio_backend: Any, sdk_server: tuple[str, int], version: str | None
) -> None:
    """B1, B3, B6, B7, B10; M26-C-06, L25-C-03: JSON and streams, sessions and none."""
    kind, port = sdk_server
    detection.forget_all()
    async with connect(f"http://127.0.0.1:{port}/mcp", protocol_version=version) as client:
        spoken = client.protocol_version
        assert spoken == (version or "2026-07-28")
        assert client.server_info["name"] == "python-sdk"
        assert client.instructions == "be kind"
        assert (client.session_id is not None) == (spoken != "2026-07-28" and kind != "stateless")
        tools = await client.request("tools/list")
        assert {tool["name"] for tool in tools["tools"]} == {
            "echo",
            "big",
            "progress",
            "gated",
            "go",
            "roots",
            "changed",
        }
        assert await call(client, "echo", {"text": "é\u2028\U0001f600"}) == "é\u2028\U0001f600"
        assert await call(client, "big", {"characters": 1_000_000}) == "x" * 1_000_000
        answers = await asyncio.gather(*[call(client, "echo", {"text": str(number)}) for number in range(50)])
        assert answers == [str(number) for number in range(50)]
        with pytest.raises(RPCError):
            await client.request("no/such")
        progress: list[Any] = []
        assert await call(client, "progress", {"steps": 3}, on_progress=lambda *p: progress.append(p)) == "done"
        if kind != "json":
            assert progress == [(number, 3, f"step-{number}.") for number in range(3)]


async def test_requests_of_the_server_and_the_standing_stream(anyio_backend: Any, sdk_server: tuple[str, int]) -> None:
    """B9, B14"""
    kind, port = sdk_server
    if kind in ("json", "stateless"):
        pytest.skip("such a server cannot ask")
    seen: list[Notification] = []
    asked: list[Request] = []

    def on_request(request: Request) -> Any:
        asked.append(request)
        return {"roots": [{"uri": "file:///a"}]}

    options: Any = {"on_notification": seen.append, "on_request": on_request, "capabilities": {"roots": {}}}
    async with connect(f"http://127.0.0.1:{port}/mcp", protocol_version="2025-11-25", **options) as client:
        assert await call(client, "roots") == "file:///a"
        assert [request.method for request in asked] == ["roots/list"]
        for _ in range(100):  # until the server has its GET stream: it keeps nothing for later
            await call(client, "changed")
            if seen:
                break
            await asyncio.sleep(0.05)
        assert seen[0].method == "notifications/resources/list_changed"


@pytest.mark.parametrize("backend", ["native", "httpx"])
async def test_an_answer_is_resumed_after_its_connection_was_cut(anyio_backend: Any, backend: str, sdk: None) -> None:
    """B13, L25-C-08: twice within one answer; nothing is lost, nothing comes twice."""
    import httpx

    with running("store") as port:
        async with CuttingProxy(port) as proxy, httpx.AsyncClient(trust_env=False) as http_client:
            options: Any = {"http_client": http_client if backend == "httpx" else None}
            url = f"http://127.0.0.1:{proxy.port}/mcp"
            async with connect(url, protocol_version="2025-11-25", **options) as client:
                progress: list[Any] = []
                proxy.cut_after = [b"step-2.", b"step-7."]
                task = asyncio.ensure_future(
                    call(client, "gated", {"steps": 5}, on_progress=lambda *p: progress.append(p[0]))
                )
                for steps in (5, 10):
                    await until(lambda steps=steps: len(progress) == steps)
                    await call(client, "go")
                assert await task == "done"
                assert proxy.cuts == 2
                assert progress == list(range(15))
                assert await call(client, "echo", {"text": "still here"}) == "still here"


async def test_a_server_that_was_restarted_gets_a_new_session(anyio_backend: Any, sdk: None) -> None:
    """C037, L25-C-10"""
    restarted: list[Any] = []
    with running() as first, running() as second:
        async with CuttingProxy(first) as proxy:
            url = f"http://127.0.0.1:{proxy.port}/mcp"
            options: Any = {"on_session_restarted": restarted.append, "continuous_listening": False}
            async with connect(url, protocol_version="2025-11-25", **options) as client:
                old = client.session_id
                proxy.lead_to(second)
                await asyncio.sleep(0.1)  # the resets are to be seen, else one more call would be lost to them
                assert await call(client, "echo", {"text": "again"}) == "again"
                assert client.session_id not in (None, old)
                await until(lambda: restarted)
