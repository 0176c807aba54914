"""The option ``--benchmark``: run the benchmarks, and nothing but the benchmarks.

pytest-benchmark has no such flag. Benchmarks are functions named ``bench_*`` in files of that name, which
a plain ``pytest`` never collects; with the flag they are all that it collects.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("benchmark").addoption(
        "--benchmark",
        action="store_true",
        dest="run_benchmarks",
        help="Run the benchmarks below benchmarks/ (or below the given paths) instead of the tests.",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("run_benchmarks"):
        return
    if not config.pluginmanager.hasplugin("benchmark"):
        raise pytest.UsageError(
            "--benchmark needs pytest-benchmark, which is not installed or was switched off: pip install -e '.[bench]'"
        )
    # In place: these lists are what collection reads.
    config.getini("python_files")[:] = ["bench_*.py"]
    config.getini("python_functions")[:] = ["bench_*"]
    config.getini("python_classes").clear()
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args[:] = [str(Path(__file__).parent / "benchmarks")]
