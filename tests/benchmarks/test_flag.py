"""``pytest --benchmark`` runs the benchmarks and nothing else; a plain ``pytest`` runs none of them.

In a copy of what a fresh clone has at its root, with a suite of one test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OK, USAGE_ERROR, NOTHING_COLLECTED = 0, 4, 5

pytest.importorskip("pytest_benchmark")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    clone = tmp_path_factory.mktemp("clone")
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, clone / name)
    shutil.copytree(ROOT / "benchmarks", clone / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    (clone / "tests").mkdir()
    (clone / "tests" / "test_one.py").write_text("def test_one():\n    pass\n")
    return clone


def run(clone: Path, *arguments: str, status: int = OK) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def collected(clone: Path, *arguments: str, status: int = OK) -> set[str]:
    printed = run(clone, "--collect-only", "-q", *arguments, status=status)
    return {line.partition("::")[0] for line in printed.splitlines() if "::" in line}


def test_plain_pytest_collects_no_benchmark(clone: Path) -> None:
    assert collected(clone) == {"tests/test_one.py"}


def test_the_flag_collects_all_benchmarks_and_only_them(clone: Path) -> None:
    files = collected(clone, "--benchmark")
    assert files >= {f"benchmarks/codec/bench_{name}.py" for name in ("decode", "encode", "writer")}
    assert all(name.startswith("benchmarks/") for name in files)


def test_the_flag_takes_paths_and_still_collects_no_test(clone: Path) -> None:
    assert collected(clone, "--benchmark", "benchmarks/codec/bench_writer.py") == {"benchmarks/codec/bench_writer.py"}
    assert collected(clone, "--benchmark", "tests", "tests/test_one.py", status=NOTHING_COLLECTED) == set()


def test_a_benchmark_named_without_the_flag_does_not_run(clone: Path) -> None:
    assert collected(clone, "benchmarks/codec/bench_writer.py", status=NOTHING_COLLECTED) == set()


def test_the_flag_stands_beside_the_options_of_pytest_benchmark(clone: Path, tmp_path: Path) -> None:
    """It is a prefix of every one of them, and must be taken for none."""
    kept = tmp_path / "kept.json"
    options = ("--benchmark-min-rounds=1", "--benchmark-columns=median", f"--benchmark-json={kept}")
    run(clone, "--benchmark", *options, "benchmarks/codec/bench_writer.py", "-k", "16 and python")
    (measured,) = json.loads(kept.read_text())["benchmarks"]
    assert measured["fullname"] == "benchmarks/codec/bench_writer.py::bench_burst[16 KiB-mcpfast (python)]"
    assert measured["extra_info"] == {"events": 16, "payload_bytes": 256 * 1024}
    assert measured["stats"]["rounds"] >= 1


def test_without_pytest_benchmark_the_flag_is_a_usage_error_that_says_what_to_install(clone: Path) -> None:
    printed = run(clone, "-p", "no:benchmark", "--benchmark", status=USAGE_ERROR)
    assert "--benchmark needs pytest-benchmark" in printed
    assert "pip install" in printed


def test_without_pytest_benchmark_a_plain_run_works(clone: Path) -> None:
    run(clone, "-p", "no:benchmark")
