"""The examples of README.md and docs/ run as they are printed, and what they say of the tree is true.

Every ```python block is a script of its own, run in an empty folder with warnings as errors. A ```text block
right behind it is what it prints; ``...`` there stands for anything.
"""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

import mcpfast

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(mcpfast.__file__).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    page: Path
    line: int
    code: str
    output: str | None  # what it prints, if the page says so


def examples() -> list[Example]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = list(FENCE.finditer(text))
        for block, following in zip_longest(blocks, blocks[1:]):
            if block["info"] != "python":
                continue
            output = None
            if following and following["info"] == "text" and not text[block.end() : following.start()].strip():
                output = following["body"]
            found.append(Example(page, text.count("\n", 0, block.start()) + 1, block["body"], output))
    return found


@pytest.mark.parametrize("example", examples(), ids=lambda example: f"{example.page.name}:{example.line}")
def test_example_runs_as_pasted(example: Example, tmp_path: Path) -> None:
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
        same = doctest.OutputChecker().check_output(example.output, result.stdout, doctest.ELLIPSIS)
        assert same, f"printed:\n{result.stdout}\nthe page says:\n{example.output}"


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
