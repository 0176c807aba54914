"""Figures that stand side by side: what the report measures, prints, saves and draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.contenders import COMPILED, PURE
from benchmarks.ratios import Timing, fastest, ratio

__all__ = ["Cell", "Table", "markdown"]


@dataclass(frozen=True)
class Cell:
    """One condition, with all contenders timed under it.

    Attributes:
        name: the condition, a column of the table.
        events: events per call.
        payload_bytes: bytes of data per call.
        timings: seconds per call, by contender.
    """

    name: str
    events: int
    payload_bytes: int
    timings: Mapping[str, Timing]


@dataclass(frozen=True)
class Table:
    """Cells that stand side by side.

    Attributes:
        title: what all cells have in common.
        peers: the contenders that ours are compared with; the fastest of them in each cell is the measure.
        cells: the columns.
    """

    title: str
    peers: tuple[str, ...]
    cells: tuple[Cell, ...]


def markdown(table: Table) -> str:
    """Write a table: events per second of each contender, then how ours compare with the fastest peer."""
    names = list(dict.fromkeys(name for cell in table.cells for name in cell.timings))
    ours = [name for name in names if name in (COMPILED, PURE)]
    rows = [
        [table.title, *(cell.name for cell in table.cells)],
        ["---", *("--:" for _ in table.cells)],
        *([f"{name}, events/s", *(_speed(cell, name) for cell in table.cells)] for name in names),
        *([_against(name, table), *(_times(cell, name, table.peers) for cell in table.cells)] for name in ours),
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _speed(cell: Cell, name: str) -> str:
    return _rounded(cell.events / cell.timings[name].median)


def _against(name: str, table: Table) -> str:
    peers = " and ".join(table.peers)
    return f"**{name}** beside {'the faster of ' if len(table.peers) > 1 else ''}{peers}"


def _times(cell: Cell, name: str, peers: tuple[str, ...]) -> str:
    peer = fastest(cell.timings, peers)
    if peer is None:
        return "no peer"
    found = ratio(cell.timings[name], peer)
    return f"**{_short(found.value)}x** ({_short(found.low)}-{_short(found.high)})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _rounded(per_second: float) -> str:
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if per_second >= unit:
            return f"{per_second / unit:.3g}{name}"
    return f"{per_second:.3g}"
