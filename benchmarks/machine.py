"""What a figure was measured on: a figure without that is worth nothing."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import date
from pathlib import Path

__all__ = ["ROOT", "Machine", "steady_allocator"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("mcpfast", "httpx-sse", "httpx2", "sse-starlette", "aiohttp-sse", "orjson")


@dataclass(frozen=True)
class Machine:
    """The facts that stand with a figure.

    Attributes:
        date: of the measurement, ISO.
        cpu: the model's name.
        cores: how many CPUs this process may run on.
        system: operating system and architecture.
        python: implementation and version.
        packages: versions of mcpfast and of its peers, without those that are absent.
        commit: of the working tree, with ``+`` when files differ from it; empty outside a clone.
    """

    date: str
    cpu: str
    cores: int
    system: str
    python: str
    packages: dict[str, str]
    commit: str

    @classmethod
    def this(cls) -> Machine:
        return cls(
            date=date.today().isoformat(),
            cpu=_cpu(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            system=f"{platform.system()} {platform.machine()}",
            python=f"{platform.python_implementation()} {platform.python_version()}",
            packages=_versions(),
            commit=_commit(),
        )

    def describe(self) -> str:
        """Return the facts in one sentence."""
        versions = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        commit = f" (commit {self.commit})" if self.commit else ""
        return f"{self.date}, {self.cpu}, {self.cores} cores, {self.system}, {self.python}; {versions}{commit}"


def steady_allocator() -> None:
    """Keep freed memory in the process, where the C library can be told to (glibc).

    Otherwise blocks of a megabyte go back to the system and come anew as hundreds of page faults, or they do not, as
    the layout of the heap happens to be: a factor of two that one contender gets in this run and another in the next.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    trim_threshold, mmap_threshold = -1, -3  # malloc.h
    libc = ctypes.CDLL(None)
    libc.mallopt(trim_threshold, 256 << 20)
    libc.mallopt(mmap_threshold, 32 << 20)  # the most it takes


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")  # Linux; platform.processor() is empty or just the architecture there
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
