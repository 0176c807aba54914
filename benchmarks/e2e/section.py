"""The end-to-end part of the gate: the rows of `benchmarks.targets` with section ``e2e``."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Iterator

import uvloop

from benchmarks.e2e.accounting import raise_file_limit
from benchmarks.e2e.scenarios import FULL, SCENARIOS, Report, Scale
from benchmarks.targets import Cannot, Measured

__all__ = ["check", "measure", "run"]

_JUDGED = ("echo", "asgi", "memory", "keep-alive", "sessions")
_NEEDS = ("httptools", "mcp", "orjson", "uvicorn", "uvloop")
_OPEN_FILES = 10_500


def measure(rounds: int) -> Iterator[Measured]:
    """Measure what has a target, under the conditions that the targets name.

    Raises:
        Cannot: this machine or environment lacks something.
    """
    check()
    scale = dataclasses.replace(FULL, rounds=rounds, connections=(16,), idle=(10_000,), sessions=(10, 10_000))
    for name in _JUDGED:
        yield from run(name, scale).measured


def run(name: str, scale: Scale) -> Report:
    """Run one scenario on a loop of its own."""
    return uvloop.run(SCENARIOS[name](scale))


def check() -> None:
    """Raise `Cannot` with the reason if nothing end to end can be measured here."""
    if sys.platform != "linux":
        raise Cannot("CPU time and memory of another process are read as Linux gives them")
    absent = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if absent:
        raise Cannot(
            f"{', '.join(absent)} not installed; the extras bench and interop bring them (Python 3.11 or newer)"
        )
    if raise_file_limit() < _OPEN_FILES:
        raise Cannot(f"10,000 streams need {_OPEN_FILES} open files per process: ulimit -Hn says less")
