"""The loops over bytes, each variant that is compiled here, at every place and alignment."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from mcpfast._switches import extensions_allowed

pytestmark = pytest.mark.skipif(not extensions_allowed(), reason="MCPFAST_NO_EXTENSIONS=1: there is no compiled search")

EOL = re.compile(rb"[\r\n]")


@pytest.fixture
def compiled() -> Any:
    from mcpfast.codec import _codec_c

    return _codec_c


@pytest.mark.parametrize("portable", [True, False], ids=["portable", "native"])
@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_line_end_is_found_at_every_place(compiled: Any, end: bytes, portable: bool) -> None:
    for size in [*range(70), 127, 128, 129, 200]:
        for place in range(size):
            data = b"\t" * place + end + b"\t" * (size - place - 1)
            assert compiled._find_eol(data, 0, size, portable=portable) == place


@pytest.mark.parametrize("portable", [True, False], ids=["portable", "native"])
def test_nothing_outside_the_range_is_seen(compiled: Any, portable: bool) -> None:
    for start in range(20):
        for size in [*range(20), 63, 64, 65, 130]:
            data = b"\n" * start + b"\x0b" * size + b"\r\n" * 70
            assert compiled._find_eol(data, start, start + size, portable=portable) == start + size


@pytest.mark.parametrize("portable", [True, False], ids=["portable", "native"])
def test_no_other_byte_is_taken_for_one(compiled: Any, portable: bool) -> None:
    for byte in set(range(256)) - {0x0A, 0x0D}:
        data = bytes([byte]) * 200
        assert compiled._find_eol(data, 0, 200, portable=portable) == 200
        for place in range(0, 199, 3):
            mixed = data[:place] + b"\r" + data[place + 1 :]
            assert compiled._find_eol(mixed, 0, 200, portable=portable) == place


def test_variants_agree_on_random_bytes(compiled: Any) -> None:
    source = random.Random(20260728)
    alphabet = bytes([0x09, 0x0B, 0x0C, 0x0E, 0x0D, 0x0A, 0x8A, 0x8D, 0x00, 0xFF, *b"abcdefghijklmnopqrstuvwxyz" * 6])
    for _ in range(3000):
        data = bytes(source.choices(alphabet, k=source.randrange(300)))
        start = source.randrange(len(data) + 1)
        stop = source.randrange(start, len(data) + 1)
        found = EOL.search(data, start, stop)
        want = found.start() if found else stop
        assert compiled._find_eol(data, start, stop, portable=True) == want
        assert compiled._find_eol(data, start, stop, portable=False) == want


@pytest.mark.parametrize("portable", [True, False], ids=["portable", "native"])
def test_ascii_is_copied_whole_and_nothing_else_is_written(compiled: Any, portable: bool) -> None:
    data = bytes(range(128)) * 3
    for start in range(9):
        for size in [*range(70), 127, 128, 129, 300]:
            want = data[start : start + size]
            assert compiled._copy_ascii(data, start, start + size, portable=portable) == (size, want + b"?")


@pytest.mark.parametrize("portable", [True, False], ids=["portable", "native"])
def test_copying_stops_before_a_byte_that_is_not_ascii(compiled: Any, portable: bool) -> None:
    for byte in (0x80, 0xFF):
        for size in [*range(1, 70), 127, 128, 129, 200]:
            for place in range(0, size, 1 if size < 70 else 5):
                data = b"x" * place + bytes([byte]) + b"y" * (size - place - 1)
                done, copy = compiled._copy_ascii(data, 0, size, portable=portable)
                assert done <= place
                assert copy[:done] == b"x" * done
                assert copy[size:] == b"?"


def test_search_that_serves_is_told(compiled: Any) -> None:
    assert compiled.SCAN in {"sse2", "neon", "portable"}
