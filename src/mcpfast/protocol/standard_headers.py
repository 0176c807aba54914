"""The headers that mirror a body's fields (2026-07-28), so that whoever routes by the one acts on the other too.

``MCP-Protocol-Version``, ``Mcp-Method``, ``Mcp-Name`` and ``Mcp-Param-*`` must say what the body says. A value that is
no plain ASCII, or could be misread, travels as ``=?base64?…?=``.

Source: MCP 2026-07-28, basic/transports/streamable-http §Standard Request Headers, §Custom Headers, §Value Encoding,
§Server Validation (M26-S-32 to M26-S-42).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = [
    "METHOD_HEADER",
    "NAME_HEADER",
    "PARAM_PREFIX",
    "SINGLE_HEADERS",
    "VERSION_HEADER",
    "argument_at",
    "argument_text",
    "check_param_headers",
    "check_standard_headers",
    "decode_value",
    "encode_value",
    "find_repeated",
]

VERSION_HEADER = b"mcp-protocol-version"
METHOD_HEADER = b"mcp-method"
NAME_HEADER = b"mcp-name"
PARAM_PREFIX = b"mcp-param-"

NAMED_BY: Mapping[str, str] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods with ``Mcp-Name``, and the parameter it mirrors."""

SINGLE_HEADERS = frozenset({VERSION_HEADER, METHOD_HEADER, NAME_HEADER})
"""Two copies of one of these are a failure: readers would disagree on which counts."""

_FORBIDDEN = re.compile(rb"[^\t\x20-\x7e]")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PREFIX, _SUFFIX = b"=?base64?", b"?="
# Exponents never compare as numbers, and no integer worth a header has more digits than this.
_DECIMAL = re.compile(r"(-?[0-9]{1,400})(?:\.0+)?")
_MIRRORED_TYPES = frozenset({"string", "integer", "boolean"})


def find_repeated(raw: Sequence[tuple[bytes, bytes]], names: frozenset[bytes]) -> str | None:
    """Return the first of ``names`` (or of ``Mcp-Param-*``) that came more than once, or None."""
    seen = set()
    for name, _ in raw:
        if name in names or name.startswith(PARAM_PREFIX):
            if name in seen:
                return name.decode("latin-1")
            seen.add(name)
    return None


def encode_value(text: str) -> str:
    """Return ``text`` as a header's value: as it is if that is safe, else in the base64 form."""
    raw = text.encode("utf-8")
    is_plain = _FORBIDDEN.search(raw) is None and b"\t" not in raw and raw == raw.strip(b" ")
    if is_plain and not (raw.startswith(_PREFIX) and raw.endswith(_SUFFIX)):
        return text
    return f"=?base64?{b64encode(raw).decode('ascii')}?="


def decode_value(value: bytes) -> str | None:
    """Return the text a header's value stands for; None if it can stand for none.

    The markers of the base64 form count in their exact spelling only (M26-S-34); anything else is the text itself.
    Either must be what a header may hold (M26-S-35). Of the many ways to write one text in base64 the canonical one
    alone counts.
    """
    if _FORBIDDEN.search(value) is not None:
        return None
    if not (value.startswith(_PREFIX) and value.endswith(_SUFFIX) and len(value) >= len(_PREFIX) + len(_SUFFIX)):
        return value.decode("ascii")
    payload = value[len(_PREFIX) : -len(_SUFFIX)]
    try:
        decoded = b64decode(payload, validate=True)
        return decoded.decode("utf-8") if b64encode(decoded) == payload else None
    except ValueError:  # binascii.Error and UnicodeDecodeError are ones
        return None


def check_standard_headers(fields: Mapping[bytes, bytes], method: str, params: Mapping[str, Any] | None) -> str | None:
    """Compare ``Mcp-Method`` and ``Mcp-Name`` with the body; return what is wrong, or None.

    Args:
        fields: header values by name in lower case, white space around them removed.
        method: the body's method.
        params: the body's params, if they are an object.
    """
    value = fields.get(METHOD_HEADER)
    if value is None:
        return "Mcp-Method header is missing"
    if value.decode("latin-1") != method or not method.isascii():
        return "Mcp-Method header differs from the body's method"
    key = NAMED_BY.get(method)
    if key is None:
        return None
    name = None if params is None else params.get(key)
    value = fields.get(NAME_HEADER)
    if type(name) is not str:
        # Nothing to mirror; that the parameter is missing is the method's handler's to say.
        return None if value is None else f"Mcp-Name header is there, but the body has no {key}"
    if value is None:
        return "Mcp-Name header is missing"
    # The short way: most names are plain, and so need no decoding.
    is_plain = name.isascii() and name.isprintable() and name[:2] != "=?"
    if not (is_plain and value == name.encode("ascii")) and decode_value(value) != name:
        return f"Mcp-Name header differs from the body's {key}"
    return None


def check_param_headers(schema: Any, arguments: Any, raw: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Compare the ``Mcp-Param-*`` headers of a tool call with its arguments; return what is wrong, or None.

    Args:
        schema: the tool's input schema, whose ``x-mcp-header`` marks say which argument goes into which header. One
            with an invalid mark checks nothing: clients leave such a tool out (M26-C-18).
        arguments: the call's arguments.
        raw: the request's header fields, names in lower case.
    """
    marks = list(_marks(schema, ()))
    names = [mark[1] for mark in marks]
    if None in names or len(set(names)) != len(names):
        return None
    values = {name: value for name, value in raw if name.startswith(PARAM_PREFIX)}
    for path, header, kind in marks:
        assert header is not None
        shown, argument = f"Mcp-Param-{header}", ".".join(path)
        header_value = values.get(PARAM_PREFIX + header.encode("ascii"))
        value = argument_at(arguments, path)
        text = argument_text(value)
        if text is None:
            if header_value is not None:
                return f"{shown} header is there, but the body has no such {argument}"
        elif header_value is None:
            return f"{shown} header is missing, though the body has {argument}"
        else:
            decoded = decode_value(header_value)
            if decoded != text and not (kind == "integer" and _is_same_integer(value, decoded)):
                return f"{shown} header differs from the body's {argument}"
    return None


def _marks(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str | None, str]]:
    """Yield path, header (lower case; None if the mark is invalid) and type of each marked property."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return
    for name, property in properties.items():
        if not isinstance(property, Mapping) or not isinstance(name, str):
            continue
        mark = property.get("x-mcp-header")
        if mark is not None:
            kind = property.get("type")
            is_valid = isinstance(mark, str) and _TOKEN.fullmatch(mark) and kind in _MIRRORED_TYPES
            yield (*path, name), mark.lower() if is_valid else None, str(kind)
        yield from _marks(property, (*path, name))


def argument_at(arguments: Any, path: tuple[str, ...]) -> Any:
    """Return the argument at a property's path, None where there is none."""
    for key in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(key)
    return arguments


def argument_text(value: Any) -> str | None:
    """Return a value as clients write it into a header (M26-C-15); None if they leave the header out."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return _digits(value)
    if isinstance(value, float):
        return _digits(int(value)) if value.is_integer() else str(value)
    return None


def _digits(value: int) -> str | None:
    try:
        return str(value)
    except ValueError:  # beyond the interpreter's limit of digits
        return None


def _is_same_integer(value: Any, decoded: str | None) -> bool:
    """Tell whether a header is another spelling of an integer, exactly: 42.0 for 42 (M26-S-40)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or decoded is None:
        return False
    found = _DECIMAL.fullmatch(decoded)
    return found is not None and value == int(found[1])
