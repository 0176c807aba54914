"""The gate holds measured ratios against targets, and fails under 0.9 of one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from benchmarks import gate
from benchmarks.fixtures import SIZES, size_name
from benchmarks.gate import judge, main
from benchmarks.ratios import Ratio
from benchmarks.targets import TARGETS, Cannot, Measured, Target, of_section

SPEED = Target("codec", "decode LF", "a peer", "64 B", 10.0)
COST = Target("server", "CPU per call", "a bare echo", "16", 2.5, at_most=True)


def found(target: Target, value: float) -> Measured:
    return Measured(target.row, target.cell, Ratio(value, value * 0.9, value * 1.1), "peer")


@pytest.mark.parametrize(
    ("target", "measured", "holds"),
    [
        (SPEED, 12.0, True),
        (SPEED, 10.0, True),
        (SPEED, 9.0, True),
        (SPEED, 8.99, False),
        (COST, 2.0, True),
        (COST, 2.5, True),
        (COST, 2.77, True),
        (COST, 2.79, False),
    ],
)
def test_a_target_holds_down_to_nine_tenths_of_it(target: Target, measured: float, holds: bool) -> None:
    assert target.holds(measured) is holds
    lines: list[str] = []
    assert judge([target], iter([found(target, measured)]), lines.append) == (not holds)
    assert ("FAIL" in lines[-1]) is not holds
    assert f"{measured:.2f}x" in lines[-1]


def test_each_line_tells_target_measurement_spread_and_peer() -> None:
    lines: list[str] = []
    judge([SPEED], iter([found(SPEED, 12.0)]), lines.append)
    assert lines[-1].split() == ["decode", "LF", "64", "B", "10x", "12.00x", "10.80x-13.20x", "peer", "pass"]


def test_a_target_that_nobody_measured_is_missed() -> None:
    lines: list[str] = []
    assert judge([SPEED, COST], iter([found(SPEED, 12.0)]), lines.append) == 1
    assert "not measured" in lines[-1]


def test_the_codec_has_a_target_for_each_size_in_each_row() -> None:
    cells = {(target.row, target.cell) for target in of_section("codec")}
    rows = ("decode LF", "decode CRLF", "encode str", "pure decode")
    assert cells == {(row, size_name(size)) for row in rows for size in SIZES}
    assert all(target.value > 0 for target in TARGETS)


def section(monkeypatch: pytest.MonkeyPatch, measured: list[Measured] | Cannot) -> None:
    """Put a section in the place of the codec's."""

    def measure(rounds: int) -> Iterator[Measured]:
        if isinstance(measured, Cannot):
            raise measured
        yield from measured

    module = ModuleType("fake_section")
    module.measure = measure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_section", module)
    monkeypatch.setattr(gate, "SECTIONS", {"codec": "fake_section"})


def test_the_gate_passes_when_every_target_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    section(monkeypatch, [found(target, target.value) for target in of_section("codec")])
    assert main([]) == 0
    assert main(["codec", "--rounds", "5"]) == 0


def test_the_gate_fails_when_one_does_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    first, *others = of_section("codec")
    section(monkeypatch, [found(first, first.value * 0.5), *(found(target, target.value) for target in others)])
    assert main(["codec"]) == 1
    assert capsys.readouterr().out.count("FAIL") == 1


def test_the_gate_says_what_is_missing_when_it_cannot_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section(monkeypatch, Cannot("the compiled codec is not built"))
    assert main(["codec"]) == 2
    assert "the compiled codec is not built" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["no-such-section"], ["codec", "--rounds", "4"], ["--rounds", "many"]])
def test_bad_arguments_are_refused_before_anything_is_measured(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


def test_the_codec_section_needs_the_compiled_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.codec.section import measure

    monkeypatch.setenv("MCPFAST_NO_EXTENSIONS", "1")
    with pytest.raises(Cannot, match="MCPFAST_NO_EXTENSIONS"):
        next(measure(5))
