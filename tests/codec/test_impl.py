"""Which implementation is picked, and what importing it loads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import mcpfast.codec
from mcpfast._switches import extensions_allowed


def run(program: str, switch: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "MCPFAST_NO_EXTENSIONS": switch},
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_public_names() -> None:
    assert sorted(mcpfast.codec.__all__) == [
        "EventTooLarge",
        "EventWriter",
        "IMPLEMENTATION",
        "MalformedLine",
        "SSEDecoder",
        "ServerSentEvent",
        "aiter_events",
        "encode_comment",
        "encode_event",
        "iter_events",
    ]


@pytest.mark.parametrize("switch", ["0", "1"])
def test_importing_the_codec_loads_no_io_library(switch: str) -> None:
    program = (
        "import sys\n"
        "import mcpfast.codec\n"
        "decoder = mcpfast.codec.SSEDecoder()\n"
        "decoder.feed(mcpfast.codec.encode_event('x')); decoder.close()\n"
        "loaded = {'asyncio', 'httpx', 'httptools', 'uvloop', 'socket', 'ssl', 'selectors'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = run(program, switch)
    assert (done.returncode, done.stderr) == (0, "")


def test_switch_picks_the_pure_implementation() -> None:
    program = "import mcpfast.codec as c; print(c.IMPLEMENTATION, c.SSEDecoder.__module__, c.encode_event.__module__)"
    assert run(program, "1").stdout.split() == ["python", "mcpfast.codec._decoder_py", "mcpfast.codec._encoder_py"]


@pytest.mark.skipif(not extensions_allowed(), reason="MCPFAST_NO_EXTENSIONS=1")
def test_compiled_implementation_is_the_default() -> None:
    program = "import mcpfast.codec as c; print(c.IMPLEMENTATION, c.SSEDecoder.__module__)"
    assert run(program, "0").stdout.split() == ["cython", "mcpfast.codec._codec_c"]
