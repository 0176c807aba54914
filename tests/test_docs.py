"""The examples of README.md and docs/ run as they are printed, and what they say of the tree is true.

Every ```python block is a script of its own, run in an empty folder with warnings as errors. A ```text block
right behind it is what it prints; ``...`` there stands for anything. The session with curl in docs/http-sse.md
(```bash session) runs against the server of the same page (```python server.py).
"""

from __future__ import annotations

import dataclasses
import doctest
import importlib.util
import inspect
import os
import re
import shutil
import socket
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

import mcpfast
from mcpfast.codec import iter_events
from mcpfast.server.options import ServerOptions

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(mcpfast.__file__).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    page: Path
    line: int
    code: str
    output: str | None  # what it prints, if the page says so


def output_behind(text: str, block: re.Match[str], following: re.Match[str] | None) -> str | None:
    if following and following["info"] == "text" and not text[block.end() : following.start()].strip():
        return following["body"]
    return None


def examples() -> list[Example]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = list(FENCE.finditer(text))
        for block, following in zip_longest(blocks, blocks[1:]):
            if block["info"] == "python":
                line = text.count("\n", 0, block.start()) + 1
                found.append(Example(page, line, block["body"], output_behind(text, block, following)))
    return found


def assert_printed(printed: str, expected: str) -> None:
    same = doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
    assert same, f"printed:\n{printed}\nthe page says:\n{expected}"


@pytest.mark.parametrize("example", examples(), ids=lambda example: f"{example.page.name}:{example.line}")
def test_example_runs_as_pasted(example: Example, tmp_path: Path) -> None:
    for module in re.findall(r"^(?:from|import) (\w+)", example.code, re.MULTILINE):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    script = tmp_path / "example.py"
    script.write_text(example.code, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    if example.output is not None:
        assert_printed(result.stdout, example.output)


@pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("bash") is None or sys.platform == "win32",
    reason="needs curl and bash",
)
def test_the_session_with_curl_runs_as_printed(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "http-sse.md").read_text(encoding="utf-8")
    blocks = {block["info"]: block for block in FENCE.finditer(text)}
    session = blocks["bash session"]
    expected = output_behind(text, session, FENCE.search(text, session.end()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "server.py").write_text(blocks["python server.py"]["body"].replace("8000", str(port)), encoding="utf-8")
    script = "set -eu\n" + session["body"].replace("8000", str(port))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen([sys.executable, "-W", "error", "server.py"], cwd=tmp_path) as server:
        try:
            wait_until_reachable(port, server)
            result = subprocess.run(
                ["bash", "-c", script],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
        finally:
            server.terminate()
    assert (result.returncode, result.stderr) == (0, "")
    assert expected is not None
    assert_printed(result.stdout, expected)
    assert server.returncode == 0


def wait_until_reachable(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            try:
                pytest.fail(f"server ended with {server.wait(0.1)}")
            except subprocess.TimeoutExpired:
                continue
        return
    pytest.fail("server does not listen")


def test_each_page_has_examples_that_run() -> None:
    assert {example.page.name for example in examples()} >= {"README.md", "codec.md", "http-sse.md"}


def test_the_map_of_the_readme_names_paths_that_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = re.search(r"^## Where things are\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = re.findall(r"^\| `([^`]+)` \| \S", section[1], re.MULTILINE)
    assert len(rows) > 10
    for row in rows:
        # The package lies elsewhere when the suite runs on an installed wheel.
        parts = Path(row).parts
        path = PACKAGE.joinpath(*parts[2:]) if parts[:2] == ("src", "mcpfast") else ROOT / row
        assert path.is_dir() if row.endswith("/") else path.is_file(), row


def in_words(name: str, value: float) -> str:
    """A default as the README writes it."""
    if name.endswith("_s"):
        return f"{value:g} s"
    if name.endswith("bytes"):
        return f"{value >> 20} MiB" if value % (1 << 20) == 0 else f"{value >> 10} KiB"
    return f"{value:,}"


def test_the_limits_of_the_readme_are_those_of_the_code() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| [^|]+ \| `(\w+)` \| ([^|]+?) \|", readme, re.MULTILINE))
    defaults = {field.name: field.default for field in dataclasses.fields(ServerOptions)}
    limits = {name for name in defaults if name.startswith(("max_", "pipelined_")) or name.endswith("_s")}
    assert limits <= set(rows)
    for name in limits:
        assert rows[name] == in_words(name, defaults[name]), name
    assert rows["max_event_bytes"] == in_words(
        "max_event_bytes", inspect.signature(iter_events).parameters["max_event_bytes"].default
    )


def test_the_map_of_the_readme_names_every_layer() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    layers = {f"src/mcpfast/{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    assert layers <= set(re.findall(r"^\| `([^`]+)` \|", readme, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        other = page.parent / target if target else page
        assert other.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{target}#{anchor}"
