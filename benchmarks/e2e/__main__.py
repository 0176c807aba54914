"""End-to-end tables as Markdown: ``python -m benchmarks.e2e [SCENARIO ...]``."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence

from benchmarks.e2e.scenarios import FULL, QUICK, SCENARIOS, Report
from benchmarks.e2e.section import check, run
from benchmarks.machine import Machine
from benchmarks.targets import Cannot, of_section

_PACKAGES = ("mcp", "uvicorn", "starlette", "uvloop", "httptools")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.e2e", description="Measure servers end to end.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="few and short rounds, fewer streams: a look")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    try:
        check()
    except Cannot as reason:
        print(f"cannot measure: {reason}", file=sys.stderr)
        return 2

    scale = QUICK if options.quick else FULL
    command = " ".join(["python -m benchmarks.e2e", *options.scenarios, *(["--quick"] if options.quick else [])])
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in _PACKAGES)
    print(f"Measured {Machine.this().describe()}; {versions}. Medians of {scale.rounds} interleaved rounds,")
    print(f"the lowest and the highest as spread. Command: `{command}`.\n", flush=True)
    for name in options.scenarios or SCENARIOS:
        print(_text(run(name, scale)), flush=True)
    return 0


def _text(report: Report) -> str:
    return report.markdown() + "".join(f"\n{line}\n" for line in _judged(report))


def _judged(report: Report) -> list[str]:
    targets = {(target.row, target.cell): target for target in of_section("e2e")}
    lines = []
    for found in report.measured:
        ratio = found.ratio
        target = targets.get((found.row, found.cell))
        goal = f"; target {'at most' if target.at_most else 'at least'} {target.value:g}x" if target else ""
        spread = f" ({ratio.low:.2f}-{ratio.high:.2f})" if ratio.low != ratio.high else ""
        lines.append(f"**{found.row}, {found.cell}: {ratio.value:.2f}x**{spread} of {found.against}{goal}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
