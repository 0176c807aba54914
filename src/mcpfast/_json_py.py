"""Exact JSON on orjson, in pure Python; ``_json_c`` is the compiled twin and ``_json`` picks one.

orjson is strict and fast, and changes a few values without a word. Each is found here by a cheap
look at the bytes, and then goes a slower way or is refused:

====================================  =======================  ==========================================
value                                 orjson                   here
====================================  =======================  ==========================================
integers over 64 bits, read           rounded to a float       exact, up to 4300 digits; more is refused
integers over 64 bits, written        refused                  exact, up to 4300 digits; more is refused
NaN and infinities, written           ``null``                 refused
nesting                               1024 read, 254 written   200 both ways
dataclass, date, time, datetime       written its own way      refused: their JSON form is the caller's to choose
====================================  =======================  ==========================================

As orjson: NaN and infinities are refused when read, and so are numbers beyond a double's range (``1e999``), lone
surrogates (both ways), a byte order mark, invalid UTF-8, and, when written, keys that are no ``str``. Of a key that
stands twice in an object the last value wins (RFC 8259, section 4, leaves it open).

Every refusal is a ``ProtocolError``, which is a ``ValueError``, with code -32700 when reading and -32603 when
writing. Its message never holds a piece of the payload.
"""

from __future__ import annotations

import json
import math
import re
from enum import Enum
from itertools import accumulate
from typing import Any, NoReturn

import orjson

from .errors import ProtocolError

MAX_DEPTH = 200
"""Arrays and objects open at one time, in what is read and in what is written."""

MAX_INT_DIGITS = 4300
"""Digits of one integer. Python's own default: reading and writing digits takes quadratic time."""

# 10**4300 - 1 has this many bits. One that has more is refused before its digits are written out.
_MAX_INT_BITS = 14285

OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME

PARSE_ERROR = -32700
INTERNAL_ERROR = -32603

# The shortest integer that can be over 64 bits has 19 digits: 2**63 as a negative number.
_LONG = b"0" * 19
_POINT = ord(".")
_DIGITS_TO_ZERO = bytes(
    ord("0") if byte in b"0123456789" else byte if byte == _POINT else ord(" ") for byte in range(256)
)
_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def loads(data: bytes | bytearray | memoryview | str, /) -> Any:
    """Read one JSON document in UTF-8, changing nothing in silence.

    Raises:
        ProtocolError: code -32700; it is not JSON, or is beyond one of the limits above.
        TypeError: ``data`` is neither text nor bytes-like.
    """
    if type(data) is not bytes:
        data = to_bytes(data)
    if is_too_deep(data):
        refuse_depth(PARSE_ERROR)
    if _has_long_number(data):
        return loads_exact(data)
    try:
        return orjson.loads(data)
    except ValueError as error:
        reason = describe(error)
    # Raised out here, since orjson's error holds the whole document and would ride along as context.
    raise ProtocolError(reason, code=PARSE_ERROR)


def dumps(value: Any, /) -> bytes:
    """Write ``value`` as compact JSON in UTF-8, changing nothing in silence.

    ``dict`` with ``str`` keys, ``list``, ``tuple``, ``str``, ``int``, ``float``, ``bool``, ``None``; also ``Enum`` (its
    value), ``UUID`` (its text) and subclasses of ``str``, ``int``, ``list`` and ``dict``.

    Raises:
        ProtocolError: code -32603; a value of another type, or beyond one of the limits above.
    """
    try:
        data = orjson.dumps(value, None, OPTIONS)
    except TypeError:
        data = None
    if data is None:
        data = dumps_exact(value)
    _check(value)
    return data


def to_bytes(data: Any) -> bytes:
    """Return what ``loads`` was given as bytes, text encoded as UTF-8."""
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as error:
            reason = f"no valid JSON at character {error.start}: lone surrogate"
        raise ProtocolError(reason, code=PARSE_ERROR)
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"JSON must be bytes, bytearray, memoryview or str, not {type(data).__name__}")


def describe(error: ValueError) -> str:
    """Say what a parser did not like, and where; both parsers' own texts hold none of the document."""
    if isinstance(error, json.JSONDecodeError):
        return f"no valid JSON at character {error.pos}: {error.msg}"
    return f"no valid JSON: {error}"


def refuse_depth(code: int) -> NoReturn:
    raise ProtocolError(f"JSON is nested deeper than {MAX_DEPTH} levels, the limit", code=code)


def refuse_nan() -> NoReturn:
    raise ProtocolError("value cannot be written as JSON: NaN or infinity", code=INTERNAL_ERROR)


def is_too_deep(data: bytes) -> bool:
    """Tell whether more than ``MAX_DEPTH`` arrays and objects are open anywhere in ``data``."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    # Without escaped backslashes, then escaped quotes, each quote left opens or closes a string.
    # Dropping a pair that stands together, be it an empty string or the seam of two, leaves what is outside as it is.
    quoted = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS).replace(b'""', b"")
    outside = b"".join(quoted.split(b'"')[::2])
    return max(accumulate(map(_STEP.__getitem__, outside)), default=0) > MAX_DEPTH


def _has_long_number(data: bytes) -> bool:
    """Tell whether 19 digits that are no fraction stand in a row."""
    # In a string they do no harm, and cost the slow path. A third of the bytes settles it nearly always: 19 digits
    # cover six of those in a row.
    if _LONG[:6] not in data[::3].translate(_DIGITS_TO_ZERO):
        return False
    digits = data.translate(_DIGITS_TO_ZERO)
    at = digits.find(_LONG)
    while at > 0 and digits[at - 1] == _POINT:  # 0.0021060533511106927: floats near zero have many
        end = digits.find(b" ", at)
        at = -1 if end < 0 else digits.find(_LONG, end)
    return at >= 0


def loads_exact(data: bytes) -> Any:
    """Read a document that may hold integers over 64 bits and is known not to be too deep."""
    try:
        text = str(data, "utf-8")
        value = json.loads(text, parse_int=_exact_int, parse_float=_finite_float, parse_constant=_no_constant)
        # json takes lone surrogates. They can only come from an escape, and cannot be encoded.
        if _SURROGATE_ESCAPE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeDecodeError as error:
        reason = f"no valid JSON at byte {error.start}: invalid UTF-8"
    except UnicodeEncodeError:
        reason = "no valid JSON: lone surrogate in a string"
    except ValueError as error:
        reason = describe(error)
    raise ProtocolError(reason, code=PARSE_ERROR)


def _exact_int(digits: str) -> int:
    if len(digits) > MAX_INT_DIGITS and len(digits.lstrip("-")) > MAX_INT_DIGITS:
        raise ValueError(f"integer holds {len(digits.lstrip('-'))} digits, limit is {MAX_INT_DIGITS}")
    return int(digits)


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("number is beyond the range of a double")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def dumps_exact(value: Any) -> bytes:
    """Write a value that orjson refused, which it does for integers over 64 bits."""
    try:
        return orjson.dumps(_with_exact_ints(value, 0), None, OPTIONS)
    except TypeError as error:
        reason = f"value cannot be written as JSON: {error}"
    raise ProtocolError(reason, code=INTERNAL_ERROR)


def _with_exact_ints(value: Any, depth: int) -> Any:
    """Return a copy of ``value`` in which integers over 64 bits are ready-made JSON."""
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else orjson.Fragment(_exact_digits(value))
    if not (isinstance(value, (dict, list)) or type(value) is tuple):  # orjson writes no subclass of tuple
        return value
    if depth == MAX_DEPTH:  # also where a value that holds itself ends up
        refuse_depth(INTERNAL_ERROR)
    if isinstance(value, dict):
        return {key: _with_exact_ints(item, depth + 1) for key, item in value.items()}
    return [_with_exact_ints(item, depth + 1) for item in value]


def _exact_digits(number: int) -> bytes:
    if number.bit_length() <= _MAX_INT_BITS:
        try:
            digits = int.__repr__(number)
        except ValueError:  # the interpreter was given a lower limit than its default
            digits = ""
        if digits and len(digits.lstrip("-")) <= MAX_INT_DIGITS:
            return digits.encode()
    raise ProtocolError(
        f"value cannot be written as JSON: integer over {MAX_INT_DIGITS} digits, the limit", code=INTERNAL_ERROR
    )


def _check(value: Any) -> None:
    """Refuse NaN, infinities and deep nesting in a value that orjson has written."""
    level = [value]
    depth = 0
    while level:
        # One round per level of nesting; `inner` becomes the values one level further down.
        inner: list[Any] = []
        containers = 0
        for item in level:
            kind = type(item)
            if kind is str or kind is int or kind is bool or item is None:
                continue
            if kind is float:
                if not math.isfinite(item):
                    refuse_nan()
            elif isinstance(item, dict):
                containers += 1
                inner.extend(item.values())
            elif isinstance(item, (list, tuple)):
                containers += 1
                inner.extend(item)
            elif isinstance(item, Enum):
                level.append(item.value)
        depth += 1
        if containers and depth > MAX_DEPTH:
            refuse_depth(INTERNAL_ERROR)
        level = inner
