"""Each requirement of the specification has a test that names it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.requirements import NOT_APPLICABLE, REQUIREMENTS

TESTS = Path(__file__).parent
ID = re.compile(r"\b(?:M26|L25|L06|L03|H24)-[SCB]-[0-9]{2}\b")
# "H24-S-01 to 06" and "M26-S-28 to M26-S-31" name a range.
RANGE = re.compile(r"\b((?:M26|L25|L06|L03|H24)-[SCB]-)([0-9]{2}) to (?:\1)?([0-9]{2})\b")


def ids_named() -> dict[str, list[str]]:
    """Return the ids that tests name, each with the files that do."""
    named: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.name == Path(__file__).name:
            continue
        text = path.read_text(encoding="utf-8")
        ids = set(ID.findall(text))
        for prefix, first, last in RANGE.findall(text):
            ids |= {f"{prefix}{number:02}" for number in range(int(first), int(last) + 1)}
        for id in ids:
            named.setdefault(id, []).append(path.name)
    return named


NAMED = ids_named()
ASKED = [r.id for r in REQUIREMENTS.values() if not r.is_sem and r.id not in NOT_APPLICABLE]


@pytest.mark.parametrize("id", ASKED)
def test_a_test_names_the_requirement(id: str) -> None:
    assert NAMED.get(id), f"no test names {id}: {REQUIREMENTS[id]}"


def test_tests_name_no_requirement_that_is_not_listed() -> None:
    assert {id: files for id, files in NAMED.items() if id not in REQUIREMENTS} == {}


def test_the_list_is_whole_and_its_exceptions_are_in_it() -> None:
    counts: dict[str, int] = {}
    for requirement in REQUIREMENTS.values():
        counts[requirement.id[:5]] = counts.get(requirement.id[:5], 0) + 1
        assert requirement.strength
        assert requirement.source
        assert re.fullmatch(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}", requirement.revision)
    assert counts == COUNTS
    assert set(NOT_APPLICABLE) <= set(REQUIREMENTS)


COUNTS = {
    "M26-S": 67,
    "M26-C": 28,
    "L25-S": 25,
    "L25-C": 14,
    "L06-S": 3,
    "L06-C": 2,
    "L03-B": 1,
    "L03-S": 1,
    "L03-C": 2,
    "H24-S": 6,
    "H24-C": 3,
}
