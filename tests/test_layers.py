"""The layers of the package import in one direction, and the lower ones load no I/O library."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mcpfast

PACKAGE = Path(mcpfast.__file__).parent

# Who may import whom. `_switches` and `_json` serve every layer and know none but `errors`.
BASE = {"errors", "_switches", "_json", "_json_py", "_json_c"}
MAY_IMPORT = {
    "errors": set(),
    "_switches": {"errors"},
    "_json": BASE,
    "_json_py": BASE,
    "_json_c": BASE,
    "codec": BASE,
    "jsonrpc": BASE | {"codec"},
    "protocol": BASE | {"codec", "jsonrpc"},
    "http": BASE | {"codec", "jsonrpc", "protocol"},
    "server": BASE | {"codec", "jsonrpc", "protocol", "http"},
    "client": BASE | {"codec", "jsonrpc", "protocol", "http"},
    "adapters": BASE | {"codec", "jsonrpc", "protocol", "http", "server", "client"},
    "cli": BASE | {"codec", "jsonrpc", "protocol", "http", "server", "client", "adapters", ""},
    "__main__": {"cli"},
    "": {"errors", "codec", "jsonrpc", "protocol", "http", "server", "client"},  # the package itself, all lazily
}
WITHOUT_IO = {"", *BASE, "codec", "jsonrpc", "protocol"}
IO_LIBRARIES = {"asyncio", "anyio", "httptools", "httpx", "httpx2", "socket", "ssl", "starlette", "uvloop"}

SOURCES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.suffix in {".py", ".pyx", ".pxd"})


def layer_of(source: Path) -> str:
    first = source.parts[0] if len(source.parts) > 1 else source.stem
    return "" if first == "__init__" else first


def imported_modules(source: Path) -> Iterator[str]:
    """Every module that a source imports anywhere, also lazily or for types only, by its absolute name."""
    text = (PACKAGE / source).read_text(encoding="utf-8")
    package = ["mcpfast", *source.parts[:-1]]
    if source.suffix != ".py":
        # Cython is no Python that ast could read; these two forms are all that it shares with it.
        text = re.sub(r"^(\s*)(from .*|)\bcimport\b", r"\1\2import", text, flags=re.MULTILINE)
        text = "\n".join(re.findall(r"^\s*((?:from\s+\S+\s+)?import\s+(?:\([^)]*\)|[^#\n(]+))", text, re.MULTILINE))
    for node in ast.walk(ast.parse(text, str(source))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from . import x` and `from mcpfast import x` name a module or a member of the package.
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_a_layer_imports_only_what_stands_above_it(source: Path) -> None:
    layer = layer_of(source)
    assert layer in MAY_IMPORT, f"{source}: no known layer"
    for module in imported_modules(source):
        parts = module.split(".")
        if parts[0] != "mcpfast":
            if layer in WITHOUT_IO:
                assert parts[0] not in IO_LIBRARIES, f"{source} imports {module}"
            continue
        imported = parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else ""
        assert imported == layer or imported in MAY_IMPORT[layer], f"{source} ({layer}) imports {module}"


def test_the_imports_of_this_package_are_seen() -> None:
    """Guards the test above: it would pass if it looked at nothing."""
    assert {layer_of(source) for source in SOURCES} >= {"errors", "codec", "jsonrpc", "protocol", "http", "server"}
    assert "mcpfast.codec._impl.SSEDecoder" in set(imported_modules(Path("codec/__init__.py")))
    assert "mcpfast.errors.EventTooLarge" in set(imported_modules(Path("codec/__init__.py")))


@pytest.mark.parametrize("module", ["mcpfast", "mcpfast.codec", "mcpfast.jsonrpc", "mcpfast.protocol"])
def test_importing_it_in_a_fresh_process_loads_no_io_library(module: str) -> None:
    code = f"import json, sys; import {module}; print(json.dumps(list(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(result.stdout)}
    assert loaded & IO_LIBRARIES == set()


def test_the_codec_is_used_without_loading_an_io_library() -> None:
    code = (
        "import sys, mcpfast\n"
        "decoder = mcpfast.SSEDecoder()\n"
        "assert [e.data for e in decoder.feed(mcpfast.encode_event('x'))] == ['x']\n"
        f"assert not {IO_LIBRARIES!r} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], timeout=30, check=True)
