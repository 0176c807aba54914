"""Starts the codec's memory checks, each in a fresh process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcpfast._switches import extensions_allowed

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("resource") is None, reason="this system does not tell a process's memory"
    ),
    pytest.mark.timeout(180),
]


@pytest.mark.parametrize("name", ("cython", "python") if extensions_allowed() else ("python",))
@pytest.mark.parametrize("script", ["codec_memory", "codec_leaks", "codec_nomemory"])
def test_in_a_fresh_process(script: str, name: str) -> None:
    if script == "codec_nomemory" and importlib.util.find_spec("_testcapi") is None:
        pytest.skip("this Python comes without _testcapi, which makes allocations fail")
    done = subprocess.run(
        [sys.executable, HERE / f"{script}.py", name],
        env={**os.environ, "PYTHONMALLOC": "default", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
