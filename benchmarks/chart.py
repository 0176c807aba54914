"""Draw throughput per event size, as an SVG that two runs on the same figures make byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.contenders import AIOHTTP_SSE, COMPILED, HTTPX2, HTTPX_SSE, PURE, SSE_STARLETTE
from benchmarks.machine import Machine
from benchmarks.tables import Table

__all__ = ["draw"]

# Colours that people with any colour vision tell apart (Okabe and Ito), on light and on dark pages.
_STYLES: dict[str, dict[str, Any]] = {
    COMPILED: {"color": "#D55E00", "marker": "o", "linewidth": 2.5},
    PURE: {"color": "#E69F00", "marker": "o"},
    HTTPX_SSE: {"color": "#0072B2", "marker": "s"},
    HTTPX2: {"color": "#56B4E9", "marker": "^"},
    SSE_STARLETTE: {"color": "#009E73", "marker": "s"},
    AIOHTTP_SSE: {"color": "#CC79A7", "marker": "^"},
}

_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "mcpfast",  # ids inside the file are hashes; without a salt of our own they are random
    "svg.fonttype": "none",  # text stays text: small, searchable, in the reader's font
    "font.family": "sans-serif",
    "font.size": 9,
}


def draw(path: Path, panels: Mapping[str, Table], machine: Machine) -> None:
    """Write the chart: a panel per table, megabytes of payload per second over the size of an event."""
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items() if name != "orjson")
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(9, 3.8), layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (title, table) in zip(axes, panels.items(), strict=True):
            _panel(axis, title, table)
        axes[0].set_ylabel("MB of data per second")
        figure.supxlabel(
            f"size of one event's data\n{machine.date}, {machine.cpu}, {machine.python}; {packages}", fontsize=7
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")


def _panel(axis: Axes, title: str, table: Table) -> None:
    names = list(dict.fromkeys(name for cell in table.cells for name in cell.timings))
    for name in names:
        speeds = [cell.payload_bytes / cell.timings[name].median / 1e6 for cell in table.cells]
        axis.plot(range(len(table.cells)), speeds, label=name, markersize=4, **_STYLES[name])
    axis.set_yscale("log")
    axis.set_xticks(range(len(table.cells)), [cell.name for cell in table.cells])
    axis.set_title(title)
    axis.grid(visible=True, which="major", alpha=0.3)
    axis.legend(fontsize=7)
