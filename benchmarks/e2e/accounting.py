"""What a process costs: CPU time and memory of a server and its children, read from outside. Linux only.

CPU time is the kernel's own count per process (user and system, dead threads included), to the
nanosecond, through the clock that ``clock_getcpuclockid(3)`` names. ``/proc/PID/stat`` holds the same
figure in steps of 10 ms, too coarse for a short round. Memory is what ``/proc/PID/smaps_rollup`` says;
the kernel's own socket buffers are in neither figure.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Memory", "Process", "part_cpus", "raise_file_limit"]

_PROC = Path("/proc")


@dataclass(frozen=True)
class Memory:
    """Bytes a process tree holds.

    Attributes:
        rss: resident, pages shared between the processes counted in each.
        pss: resident, shared pages divided among those who share them.
    """

    rss: int
    pss: int


@dataclass(frozen=True)
class Process:
    """A process and those it started.

    Attributes:
        pid: of the parent.
    """

    pid: int

    def cpu_s(self) -> float:
        """Return the CPU seconds the living processes of the tree have used."""
        return sum(_cpu_ns(pid) for pid in self._tree()) / 1e9

    def memory(self) -> Memory:
        """Return what the tree holds now."""
        rss = pss = 0
        for pid in self._tree():
            for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                field, _, value = line.partition(":")
                if field == "Rss":
                    rss += int(value.split()[0]) * 1024
                elif field == "Pss":
                    pss += int(value.split()[0]) * 1024
        return Memory(rss, pss)

    def _tree(self) -> Iterator[int]:
        pending = [self.pid]
        while pending:
            pid = pending.pop()
            yield pid
            for task in (_PROC / str(pid) / "task").iterdir():
                pending += map(int, (task / "children").read_text().split())


def raise_file_limit() -> int:
    """Let this process open as many files as the system allows it, and return how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _cpu_ns(pid: int) -> int:
    # CPUCLOCK_SCHED (2) of the whole process: the bits clock_getcpuclockid(3) puts together.
    return time.clock_gettime_ns((~pid << 3) | 2)


def part_cpus() -> tuple[set[int], set[int]] | None:
    """Return the CPUs for the servers and the one for the generator; None where there is but one.

    Left alone, the scheduler likes to wake a server on the CPU of the client that wrote to it, and the two
    then wait for each other.
    """
    cpus = sorted(os.sched_getaffinity(0))
    return (set(cpus[:-1]), {cpus[-1]}) if len(cpus) > 1 else None
