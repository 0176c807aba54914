"""Hold measurements against their targets: ``ci/bench.sh [SECTION ...]``, or ``python -m benchmarks.gate``.

Prints each cell with its target, what was measured, the spread over the rounds, and the verdict.
Ends with 1 when a cell is under 0.9 of its target, with 2 when it cannot measure.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence

from benchmarks.machine import Machine, steady_allocator
from benchmarks.ratios import MIN_ROUNDS
from benchmarks.targets import SLACK, Cannot, Measured, Target, of_section

__all__ = ["SECTIONS", "judge", "main"]

SECTIONS = {"codec": "benchmarks.codec.section", "e2e": "benchmarks.e2e.section"}
"""Where each section's ``measure(rounds)`` lives. Imported only when asked for: an end-to-end section needs more."""

_LINE = "{:<12} {:<8} {:>10} {:>10} {:>17}  {:<14} {}"


def judge(targets: Sequence[Target], measured: Iterator[Measured], say: Callable[[str], None] = print) -> int:
    """Print a line per target and return how many were missed. A target nobody measured is missed."""
    open_targets = {(target.row, target.cell): target for target in targets}
    missed = 0
    say(_LINE.format("row", "cell", "target", "measured", "spread", "against", "verdict"))
    for found in measured:
        target = open_targets.pop((found.row, found.cell), None)
        if target is None:
            continue
        holds = target.holds(found.ratio.value)
        missed += not holds
        say(
            _LINE.format(
                found.row,
                found.cell,
                ("<= " if target.at_most else "") + f"{target.value:g}x",
                f"{found.ratio.value:.2f}x",
                f"{found.ratio.low:.2f}x-{found.ratio.high:.2f}x",
                found.against,
                _verdict(target, found.ratio.value),
            )
        )
    for target in open_targets.values():
        missed += 1
        say(_LINE.format(target.row, target.cell, f"{target.value:g}x", "-", "-", "-", "FAIL (not measured)"))
    return missed


def _verdict(target: Target, measured: float) -> str:
    score = target.score(measured)
    if score >= 1:
        return "pass"
    return f"pass ({score:.2f} of it)" if score >= SLACK else f"FAIL ({score:.2f} of it)"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ci/bench.sh", description="Hold measured ratios against their targets.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"one of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds of a cell, at least 5 (default: 15)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    if options.rounds < MIN_ROUNDS:
        parser.error(f"{options.rounds} rounds asked for, the least is {MIN_ROUNDS}")

    steady_allocator()
    print(Machine.this().describe())
    missed = 0
    for name in options.sections or SECTIONS:
        print(f"\n{name}: medians of {options.rounds} interleaved rounds, speed as a multiple of the peer's")
        try:
            missed += judge(of_section(name), importlib.import_module(SECTIONS[name]).measure(options.rounds), _say)
        except Cannot as reason:
            print(f"cannot measure {name}: {reason}", file=sys.stderr)
            return 2
    print(f"\n{missed} under {SLACK} of the target" if missed else f"\nnone under {SLACK} of its target")
    return 1 if missed else 0


def _say(line: str) -> None:
    print(line, flush=True)  # cells come in over a minute, also into a pipe


if __name__ == "__main__":
    sys.exit(main())
