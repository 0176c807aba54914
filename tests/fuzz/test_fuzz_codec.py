"""Short runs of the codec's fuzz target."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codec.streams import streams

from .fuzz_codec import check

ROOT = Path(__file__).parents[2]
VECTORS = json.loads((ROOT / "tests" / "vectors" / "sse_decode.json").read_text("utf-8"))


@settings(max_examples=200, deadline=None)
@given(head=st.binary(max_size=4), stream=st.binary(max_size=200) | streams)
def test_target_holds_for_random_input(head: bytes, stream: bytes) -> None:
    check(head.ljust(4, b"\0") + stream)


def test_target_holds_for_the_vectors() -> None:
    for vector in VECTORS:
        for head in (b"\0\0\0\0", b"\5\0\1\0", b"\2\x20\0\2"):
            check(head + vector["input"].encode("latin-1"))


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_short_run_of_atheris(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, vector in enumerate(VECTORS):
        (corpus / str(number)).write_bytes(b"\0\0\0\0" + vector["input"].encode("latin-1"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.fuzz_codec", "-max_total_time=10", f"-artifact_prefix={tmp_path}/", corpus],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr[-2000:]
