"""The report prints what was measured, on what, and draws it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.contenders import COMPILED, HTTPX2, HTTPX_SSE, PURE, SSE_STARLETTE
from benchmarks.machine import Machine
from benchmarks.ratios import Timing
from benchmarks.tables import Cell, Table, markdown

MACHINE = Machine(
    "2026-01-31", "A CPU", 2, "Linux x86_64", "CPython 3.13.0", {"mcpfast": "1.2.3", "httpx2": "2.16"}, "abc123+"
)


def timing(name: str, *rounds: float) -> tuple[str, Timing]:
    return name, Timing(name, rounds)


DECODE = Table(
    "Decode, LF, `data` read",
    (HTTPX_SSE, HTTPX2),
    (
        Cell(
            "64 B",
            1000,
            64_000,
            dict(
                [
                    timing(COMPILED, 0.0002, 0.0002, 0.0004),
                    timing(PURE, 0.01, 0.01, 0.01),
                    timing(HTTPX_SSE, 0.004, 0.004, 0.004),
                    timing(HTTPX2, 0.02, 0.02, 0.02),
                ]
            ),
        ),
        Cell(
            "1 MiB",
            8,
            8 << 20,
            dict([timing(COMPILED, 0.1), timing(PURE, 0.2), timing(HTTPX_SSE, 0.05), timing(HTTPX2, 0.1)]),
        ),
    ),
)
ENCODE = Table(
    "Encode str", (SSE_STARLETTE,), (Cell("64 B", 10, 640, dict([timing(COMPILED, 1e-6), timing(PURE, 1e-5)])),)
)


def test_a_table_shows_speeds_then_ratios_with_their_spread_and_keeps_the_cells_we_lose() -> None:
    first, rule, *rows = markdown(DECODE).splitlines()
    assert first == "| Decode, LF, `data` read | 64 B | 1 MiB |"
    assert rule == "| --- | --: | --: |"
    beside = "beside the faster of httpx-sse and httpx2"
    assert rows == [
        "| mcpfast (cython), events/s | 5 M | 80 |",
        "| mcpfast (python), events/s | 100 k | 40 |",
        "| httpx-sse, events/s | 250 k | 160 |",
        "| httpx2, events/s | 50 k | 80 |",
        f"| **mcpfast (cython)** {beside} | **20.0x** (10.0-20.0) | **0.50x** (0.50-0.50) |",
        f"| **mcpfast (python)** {beside} | **0.40x** (0.40-0.40) | **0.25x** (0.25-0.25) |",
    ]


def test_a_table_without_peers_says_so() -> None:
    assert markdown(ENCODE).splitlines()[-1] == "| **mcpfast (python)** beside sse-starlette | no peer |"


def test_figures_stand_with_what_they_were_measured_on() -> None:
    assert MACHINE.describe() == (
        "2026-01-31, A CPU, 2 cores, Linux x86_64, CPython 3.13.0; mcpfast 1.2.3, httpx2 2.16 (commit abc123+)"
    )
    here = Machine.this()
    assert here.cpu
    assert here.cores >= 1
    assert "mcpfast" in here.packages


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, svg: Path) -> None:
    def measured(measure: Callable[..., Any]) -> Iterator[Table]:
        yield DECODE
        yield ENCODE

    monkeypatch.setattr(report, "tables", measured)
    monkeypatch.setattr(report, "SVG", svg)
    assert report.main(arguments) == 0


def test_the_report_prints_the_tables_with_date_machine_and_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(monkeypatch, "--quick", svg=tmp_path / "default.svg")
    printed = capsys.readouterr().out
    assert Machine.this().describe() in printed
    assert "`python -m benchmarks.report --quick`" in printed
    assert markdown(DECODE) in printed
    assert markdown(ENCODE) in printed


def test_a_quick_run_does_not_replace_the_published_chart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(monkeypatch, "--quick", svg=tmp_path / "default.svg")
    assert not (tmp_path / "default.svg").exists()


def test_timings_can_be_kept_as_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(monkeypatch, "--quick", "--json", str(tmp_path / "all.json"), svg=tmp_path / "default.svg")
    kept = json.loads((tmp_path / "all.json").read_text())
    assert kept["machine"]["packages"]["mcpfast"]
    assert kept["tables"][0]["cells"][0]["timings"][HTTPX_SSE]["rounds"] == [0.004, 0.004, 0.004]


def test_a_full_run_draws_the_chart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run(monkeypatch, svg=tmp_path / "docs" / "chart.svg")
    drawn = (tmp_path / "docs" / "chart.svg").read_text()
    assert "mcpfast (cython)" in drawn
    assert "httpx-sse" in drawn


def test_the_same_figures_give_the_same_chart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.chart import draw

    for name in ("first.svg", "second.svg"):
        draw(tmp_path / name, {"decode": DECODE, "encode": ENCODE}, MACHINE)
    drawn = (tmp_path / "first.svg").read_bytes()
    assert drawn == (tmp_path / "second.svg").read_bytes()
    assert b"2026-01-31, A CPU" in drawn
