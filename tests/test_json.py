"""Exact JSON: the compiled and the pure twin against each other, and both against the standard library."""

from __future__ import annotations

import ctypes
import datetime
import enum
import importlib
import inspect
import json
import math
import random
import shutil
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpfast import _json, _json_py
from mcpfast._switches import extensions_allowed
from mcpfast.errors import ProtocolError

# An absent extension fails the run, unless it was switched off.
IMPLEMENTATIONS: list[Any] = [_json_py]
if extensions_allowed():
    IMPLEMENTATIONS.append(importlib.import_module("mcpfast._json_c"))

SCAN_HEADER = Path(__file__).parents[1] / "src" / "mcpfast" / "_json_scan.h"


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda module: module.__name__.rpartition(".")[2])
def impl(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


def test_the_compiled_twin_is_used_unless_switched_off() -> None:
    chosen = _json.IMPLEMENTATION
    assert chosen == ("cython" if extensions_allowed() else "python")
    assert _json.loads is IMPLEMENTATIONS[-1].loads
    assert _json.dumps is IMPLEMENTATIONS[-1].dumps


@pytest.mark.parametrize("name", ["loads", "dumps"])
def test_the_twins_take_the_same_arguments(name: str) -> None:
    shapes = [
        [(p.name, p.kind, p.default) for p in inspect.signature(getattr(module, name)).parameters.values()]
        for module in IMPLEMENTATIONS
    ]
    assert all(shape == shapes[0] for shape in shapes)


# --- integers and floats ---------------------------------------------------------------------------------------------

EDGES = [2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**18, 10**19, -(10**18), 10**300]


@pytest.mark.parametrize("number", [*EDGES, 0, -1, 123456789012345678901234567890])
def test_integers_of_any_size_are_read_and_written_exactly(impl: ModuleType, number: int) -> None:
    """C055: a large integer rounded to a float in silence."""
    document = b'{"a":[%d,"x"]}' % number
    value = impl.loads(document)
    assert value == {"a": [number, "x"]}
    assert type(value["a"][0]) is int
    assert impl.dumps(value) == document


def test_the_structured_result_of_the_casebook_arrives_exactly(impl: ModuleType) -> None:
    """C055: the very reply, next to a float that stays one."""
    document = (
        b'{"id":9007199254740993,"u":18446744073709551615,"big":123456789012345678901234567890,'
        b'"neg":-9223372036854775809,"f":1.10}'
    )
    value = impl.loads(document)
    assert value == {
        "id": 9007199254740993,
        "u": 18446744073709551615,
        "big": 123456789012345678901234567890,
        "neg": -9223372036854775809,
        "f": 1.1,
    }
    assert type(value["f"]) is float
    assert impl.loads(impl.dumps(value)) == value


@pytest.mark.parametrize("sign", ["", "-"])
def test_integers_have_a_limit_of_digits_both_ways(impl: ModuleType, sign: str) -> None:
    longest = sign + "9" * 4300
    assert impl.dumps(impl.loads(longest)) == longest.encode()
    with pytest.raises(ProtocolError, match="4301 digits, limit is 4300") as reading:
        impl.loads(sign + "1" + "0" * 4300)
    assert reading.value.code == -32700
    number = 10**4300 if not sign else -(10**4300)
    for too_long in (number, number * 10**100_000):
        with pytest.raises(ProtocolError, match="integer over 4300 digits") as writing:
            impl.dumps([too_long])
        assert writing.value.code == -32603


@pytest.mark.skipif(not hasattr(sys, "set_int_max_str_digits"), reason="this interpreter has no such limit")
def test_a_lower_limit_of_the_interpreter_is_a_refusal_too(impl: ModuleType) -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(ProtocolError):
            impl.loads("[" + "7" * 641 + "]")
        with pytest.raises(ProtocolError):
            impl.dumps([10**700])
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize(
    "text", ["0.0021060533511106927", "-0.0", "1e22", "12345678901234567890.5", "1234567890123456789012e-3", "5e-324"]
)
def test_floats_are_those_of_python(impl: ModuleType, text: str) -> None:
    assert repr(impl.loads(text)) == repr(float(text))


@pytest.mark.parametrize("text", ["1e999", "-1e999", "[1e400, 12345678901234567890]"])
def test_numbers_beyond_a_double_are_refused(impl: ModuleType, text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        impl.loads(text)
    assert caught.value.code == -32700


# --- what is refused in reading --------------------------------------------------------------------------------------

NO_JSON = {
    "empty": b"",
    "blank": b" \n",
    "cut off": b"{",
    "half a word": b"nul",
    "legacy encoding": b'{"x":"\x97"}',
    "overlong UTF-8": b'"\xc0\xaf"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "NaN": b"[NaN]",
    "infinity": b"[-Infinity]",
    "lone high surrogate": b'"\\ud800"',
    "lone low surrogate": b'"\\udc00x"',
    "surrogates the wrong way round": b'"\\udc00\\ud800"',
    "lone surrogate in a key": b'{"\\uD83d":1}',
    "control character": b'"a\nb"',
    "trailing comma": b"[1,]",
    "two documents": b"{}{}",
    "single quotes": b"{'a':1}",
    "leading zero": b"[01]",
    "comment": b"[1]//x",
}


@pytest.mark.parametrize("document", NO_JSON.values(), ids=NO_JSON.keys())
@pytest.mark.parametrize("with_long_number", [False, True])
def test_what_is_no_json_is_refused_on_both_ways(impl: ModuleType, document: bytes, with_long_number: bool) -> None:
    """C058: bytes that are not JSON are one clear error. A long number takes the exact way, equally strict."""
    if with_long_number:
        document = b'[12345678901234567890123,"s3cret",%s]' % document
    with pytest.raises(ProtocolError) as caught:
        impl.loads(document)
    assert caught.value.code == -32700
    assert str(caught.value).startswith("no valid JSON")
    assert "s3cret" not in str(caught.value)
    # The parsers' own errors hold the whole document; none of them rides along.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_text_with_a_lone_surrogate_is_refused(impl: ModuleType) -> None:
    with pytest.raises(ProtocolError, match="lone surrogate"):
        impl.loads('"\ud800"')


def test_surrogate_pairs_are_characters(impl: ModuleType) -> None:
    assert impl.loads(b'["\\ud83d\\ude00",12345678901234567890123]') == ["\N{GRINNING FACE}", 12345678901234567890123]


@pytest.mark.parametrize("extra", ["", ',"c":12345678901234567890123'])
def test_of_a_repeated_key_the_last_value_wins(impl: ModuleType, extra: str) -> None:
    assert impl.loads('{"a":1,"a":2' + extra + "}")["a"] == 2


@pytest.mark.parametrize(
    "make", [bytes, bytearray, memoryview, lambda data: memoryview(bytes(2) + data)[2:], lambda data: data.decode()]
)
def test_every_kind_of_input_is_taken(impl: ModuleType, make: Any) -> None:
    assert impl.loads(make('{"é":[1,12345678901234567890123]}'.encode())) == {"é": [1, 12345678901234567890123]}


def test_a_memoryview_with_gaps_is_read_as_what_it_shows(impl: ModuleType) -> None:
    assert impl.loads(memoryview(b"[x1x,x2x]x")[::2]) == [1, 2]


@pytest.mark.parametrize("wrong", [None, 5, ["[]"]])
def test_input_of_another_type_is_a_type_error(impl: ModuleType, wrong: Any) -> None:
    with pytest.raises(TypeError, match="must be bytes"):
        impl.loads(wrong)


# --- what is refused in writing --------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    BAD = math.nan
    DEEP = ("a", [math.inf])


class Level(enum.IntEnum):
    LOW = 1
    HUGE = 2**70


@dataclass
class Point:
    x: int


REFUSED_VALUES = {
    "NaN": math.nan,
    "infinity": {"a": [1, (math.inf,)]},
    "minus infinity": [None, {"b": -math.inf}],
    "NaN beside a long integer": [2**70, math.nan],
    "NaN in an enum": [Color.BAD],
    "infinity deep in an enum": {"a": Color.DEEP},
    "lone surrogate": ["\ud800"],
    "lone surrogate in a key": {"\udfff": 1},
    "lone surrogate beside a long integer": [2**70, "\ud800"],
    "integer key": {1: 2},
    "boolean key": {"a": {True: 2}},
    "integer key beside a long integer": {1: 2**70},
    "bytes": b"x",
    "set": {1},
    "datetime": [datetime.datetime(2026, 7, 28)],
    "date": datetime.date(2026, 7, 28),
    "dataclass": Point(1),
    "dataclass beside a long integer": [2**70, Point(1)],
    "object": object(),
}


@pytest.mark.parametrize("value", REFUSED_VALUES.values(), ids=REFUSED_VALUES.keys())
def test_what_json_cannot_hold_is_refused_not_changed(impl: ModuleType, value: Any) -> None:
    with pytest.raises(ProtocolError, match="cannot be written as JSON") as caught:
        impl.dumps(value)
    assert caught.value.code == -32603
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("value", "document"),
    [
        ({"a": None, "b": [True, 1.5, "null"]}, b'{"a":null,"b":[true,1.5,"null"]}'),
        ((1, (2,)), b"[1,[2]]"),
        ([Color.RED, Level.LOW, Level.HUGE], b'["red",1,1180591620717411303424]'),
        ([uuid.UUID(int=0), 2**64], b'["00000000-0000-0000-0000-000000000000",18446744073709551616]'),
        ("é\u2028\x7f\x00", '"é\u2028\x7f\\u0000"'.encode()),
        ("\r\n", b'"\\r\\n"'),
    ],
)
def test_values_are_written_compactly(impl: ModuleType, value: Any, document: bytes) -> None:
    assert impl.dumps(value) == document


def test_writing_leaves_the_value_alone(impl: ModuleType) -> None:
    value = {"a": [2**70, {"b": (1, 2**65)}]}
    impl.dumps(value)
    assert value == {"a": [2**70, {"b": (1, 2**65)}]}


# --- nesting ---------------------------------------------------------------------------------------------------------


def nested(depth: int, shape: str) -> str:
    opening = {"array": "[", "object": '{"a":', "mixed": '[{"[":'}[shape]
    if shape == "mixed":
        return (
            opening * (depth // 2) + ("[" if depth % 2 else "") + "1" + ("]" if depth % 2 else "") + "}]" * (depth // 2)
        )
    return opening * depth + "1" + ("]" if shape == "array" else "}") * depth


@pytest.mark.parametrize("shape", ["array", "object", "mixed"])
@pytest.mark.parametrize(
    "before", ["", " " * 61, '"' + 'x\\\\\\"[{' * 40 + '",', "[]," * 300, "12345678901234567890123,"]
)
def test_nesting_is_limited_both_ways(impl: ModuleType, shape: str, before: str) -> None:
    """C058: 200 levels are read, 201 are refused, whatever stands in strings and beside them."""
    # The list around it is one level.
    fits, too_deep = (f"[{before}{nested(depth, shape)}]" for depth in (199, 200))
    value = json.loads(fits)
    assert impl.loads(fits) == value
    assert impl.loads(impl.dumps(value)) == value
    with pytest.raises(ProtocolError, match="nested deeper than 200 levels") as reading:
        impl.loads(too_deep)
    assert reading.value.code == -32700
    with pytest.raises(ProtocolError, match="nested deeper than 200 levels") as writing:
        impl.dumps(json.loads(too_deep))
    assert writing.value.code == -32603


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_a_hundred_thousand_levels_are_a_clean_refusal(impl: ModuleType, opening: bytes) -> None:
    """C058: deep nesting must not crash, nor run into the interpreter's recursion limit."""
    with pytest.raises(ProtocolError, match="nested deeper than 200 levels"):
        impl.loads(opening * 100_000)


def test_a_value_that_holds_itself_is_refused(impl: ModuleType) -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    for value in (ring, {"a": ring, "b": 2**70}):
        with pytest.raises(ProtocolError, match="nested deeper than 200 levels"):
            impl.dumps(value)


# --- both against the standard library -------------------------------------------------------------------------------


def oracle_loads(document: bytes) -> Any:
    """Read strictly with the standard library; slow, and each rule by itself. Raises ValueError."""

    def refuse(name: str) -> Any:
        raise ValueError(name)

    value = json.loads(document.decode(), parse_constant=refuse)
    oracle_check(value, 0)
    return value


def oracle_check(value: Any, depth: int) -> None:
    if isinstance(value, (dict, list, tuple)):
        if depth == 200:
            raise ValueError("too deep")
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            oracle_check(item, depth + 1)
    elif isinstance(value, str):
        value.encode()
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("not finite")
    elif isinstance(value, int) and abs(value) >= 10**4300:
        raise ValueError("too long")


NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(2**65), 2**65),
    st.sampled_from(EDGES),
    st.integers(10**17, 10**20),
    st.floats(),
    st.floats(-1e-3, 1e-3),
)
STRINGS = st.one_of(
    st.text(st.characters(), max_size=40),
    st.text('\\"[]{}19.\ud800\u2028', max_size=60),
    st.just("1234567890123456789"),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, STRINGS),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(STRINGS, inner, max_size=5)),
    max_leaves=30,
)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_values_are_written_like_the_oracle_or_refused_like_it(value: Any) -> None:
    try:
        oracle_check(value, 0)
        expected = repr(value)
    except ValueError:
        expected = None
    for module in IMPLEMENTATIONS:
        try:
            document = module.dumps(value)
        except ProtocolError:
            assert expected is None
        else:
            assert expected is not None
            # repr tells 1, 1.0, True and -0.0 apart.
            assert repr(json.loads(document)) == expected == repr(module.loads(document))


TOKENS = [
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b"\\",
    b",",
    b":",
    b"1",
    b".",
    b"-",
    b"e",
    b"null",
    b"NaN",
    b"1e999",
    b"\\u0000",
]
RUNS = [b"0" * 19, b"9" * 18, b"9" * 4301, b"[" * 150, b"]" * 150]
WRONG_BYTES = [b"\\ud800", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x00", b"\xff"]
FRAGMENTS = st.sampled_from([*TOKENS, *RUNS, *WRONG_BYTES])


@st.composite
def damaged_documents(draw: st.DrawFn) -> bytes:
    """A document with pieces put in, or cut out, at a few places."""
    document = json.dumps(draw(VALUES), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(document)))
        document = document[:at] + draw(FRAGMENTS | st.just(b"")) + document[at + draw(st.integers(0, 3)) :]
    return document


@settings(max_examples=300, deadline=None)
@given(damaged_documents() | st.binary(max_size=80) | st.lists(FRAGMENTS, max_size=8).map(b"".join))
@example(b"[" + b"9" * 19 + b"]")
@example(b'["\\\\",' + b"9" * 19 + b"]")
@example(b'{"a":".' + b"9" * 19 + b'","b":' + b"8" * 20 + b"}")
@example(b"[" * 200 + b"1e400" + b"]" * 200)
def test_hostile_bytes_are_read_like_the_oracle_or_refused_like_it(document: bytes) -> None:
    try:
        expected = repr(oracle_loads(document))
    except (ValueError, RecursionError):
        expected = None
    for module in IMPLEMENTATIONS:
        try:
            value = module.loads(document)
        except ProtocolError:
            assert expected is None
        else:
            assert repr(value) == expected


@pytest.mark.parametrize("lead", range(0, 130, 3))
def test_long_numbers_and_depth_are_found_wherever_blocks_of_the_scan_end(impl: ModuleType, lead: int) -> None:
    for filler in (" " * lead, '"' + "\\" * (lead & ~1) + '",', '"' + "7" * lead + '",'):
        for value in (
            "18446744073709551616",
            '"\\"[[",18446744073709551616',
            ",".join(["[[]]"] * 201) + ",-9223372036854775809",
        ):
            document = f"[{filler}{value}]"
            assert impl.loads(document) == json.loads(document)


# --- the C header by itself ------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("cc") is None or not SCAN_HEADER.exists(), reason="needs a C compiler and the sources")
def test_the_vector_scan_and_the_portable_scan_agree(tmp_path: Path) -> None:
    """Other processors run the portable code, which nothing else here would reach."""
    source = tmp_path / "scan.c"
    source.write_text(
        f'#include "{SCAN_HEADER}"\n'
        "int scan(const uint8_t *p, size_t n, size_t depth) { return json_scan(p, n, depth); }\n"
        "int outside(const uint8_t *p, size_t n, size_t depth) { return json_scan_outside(p, n, depth); }\n"
    )
    libraries = []
    for name, flags in (("vector", []), ("portable", ["-DMCPFAST_PORTABLE_SCAN"])):
        target = tmp_path / f"{name}.so"
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", *flags, "-o", str(target), str(source)], check=True, timeout=50
        )
        libraries.append(ctypes.CDLL(str(target)))
    pieces = [
        b'"',
        b"\\",
        b"[",
        b"]",
        b"{",
        b"}",
        b"0",
        b".",
        b" ",
        b"1" * 8,
        b"1" * 18,
        b"1" * 19,
        b"a" * 30,
        b'\\"',
        b"[[[[",
    ]
    rng = random.Random(19)
    seen = set()
    for _ in range(4000):
        weights = [rng.choice((0, 1, 3)) for _ in pieces]
        weights[0] += 1
        data = b"".join(rng.choices(pieces, weights, k=rng.randrange(60)))
        depth = rng.choice((0, 1, 3, 10, 200))
        for name in ("scan", "outside"):
            vector, portable = (
                getattr(library, name)(data, ctypes.c_size_t(len(data)), ctypes.c_size_t(depth))
                for library in libraries
            )
            assert vector == portable, (name, data, depth)
            seen.add(vector)
    assert seen == {0, 1, 2}


# --- cost ------------------------------------------------------------------------------------------------------------

# A piece of a document, and how often it stands in the smaller one.
SHAPES = {
    "long numbers": (b"12345678901234567890123,", 1000),
    "numbers just short of long": (b"123456789012345678,", 2000),
    "long fractions": (b"0.0021060533511106927,", 2000),
    "brackets": (b"[{}],", 2000),
    "brackets in strings": (b'"[[[[{{{{",', 4000),
    "escapes": (b'"\\\\\\"[\\\\",', 4000),
    "integers of many digits": (b"7" * 4000 + b",", 10),
}


@pytest.mark.parametrize(("piece", "count"), SHAPES.values(), ids=SHAPES.keys())
def test_reading_and_writing_take_linear_time(impl: ModuleType, piece: bytes, count: int) -> None:
    """Sixteen times the size may cost up to 64 times as much here; quadratic growth costs 256."""

    def cost(document: bytes) -> float:
        value = impl.loads(document)
        best = math.inf
        for _ in range(5):
            start = time.thread_time()
            impl.loads(document)
            impl.dumps(value)
            best = min(best, time.thread_time() - start)
        return best

    small, large = (b"[" + piece * n + b"1]" for n in (count, 16 * count))
    assert cost(large) < 64 * cost(small)
