"""``Mcp-Param-*``: the arguments of a tool that its schema wants to have in headers too, seen from the client.

Source: MCP 2026-07-28, basic/transports/streamable-http §Custom Headers, §Schema Extension, §Client Behavior (M26-C-15
to M26-C-18).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .standard_headers import PARAM_PREFIX, argument_at, argument_text, encode_value

__all__ = ["MARK", "ToolHeaders", "marks_of"]

MARK = "x-mcp-header"

MAX_TOOLS = 10_000
"""Tools whose marks are kept; those beyond have none, and their calls are refused and listed anew."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = ("string", "integer", "boolean")  # "number" is not: floats have no one spelling

# Keywords of JSON Schema 2020-12 that hold schemas, by shape. ``properties`` alone leads to what an argument's path can
# name; a mark found by way of any other is misplaced. ``$ref`` is not followed, so this ends.
_ONE = frozenset(
    {
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAP = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties"})


def marks_of(schema: Any) -> dict[tuple[str, ...], bytes]:
    """Return the header of each marked property of a tool's input schema, by the property's path.

    Raises:
        ValueError: a mark is invalid; the message says which and why.
    """
    marks: dict[tuple[str, ...], bytes] = {}
    for path, node in _schemas(schema):
        if MARK not in node:
            continue
        if not path:
            raise ValueError("a mark stands where no argument can be named")
        where, token, kind = ".".join(path)[:100], node[MARK], node.get("type")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ValueError(f"mark of {where!r} is no header name")
        if not isinstance(kind, str) or kind not in _TYPES:
            raise ValueError(f"mark of {where!r} is on a property that is no {', '.join(_TYPES)}")
        header = PARAM_PREFIX + token.lower().encode("ascii")
        if header in marks.values():
            raise ValueError(f"mark of {where!r} names a header that another one names")
        marks[path] = header
    return marks


def _schemas(root: Any) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Yield each schema within a schema, and its path; None where no path leads."""
    todo: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while todo:  # not recursive: schemas may be nested deeply
        path, node = todo.pop()
        if not isinstance(node, dict):
            continue
        yield path, node
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, dict):
                todo += [(None if path is None else (*path, name), inner) for name, inner in value.items()]
            elif keyword in _ONE:
                todo.append((None, value))
            elif keyword in _LIST and isinstance(value, list):
                todo += [(None, inner) for inner in value]
            elif keyword in _MAP and isinstance(value, dict):
                todo += [(None, inner) for inner in value.values()]


class ToolHeaders:
    """The marks of the tools that the last listing had."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: dict[str, dict[tuple[str, ...], bytes]] = {}

    def __bool__(self) -> bool:
        """Tell whether any tool has marks."""
        return bool(self._marks)

    def learn(self, result: Any) -> tuple[Any, list[tuple[str, str]]]:
        """Take note of a page of ``tools/list``.

        Returns:
            The result without the tools whose marks are invalid, and name and fault of each of those (M26-C-18).
        """
        tools = result.get("tools") if type(result) is dict else None
        if type(tools) is not list:
            return result, []
        kept, faults = [], []
        for tool in tools:
            name = tool.get("name") if type(tool) is dict else None
            if type(name) is not str:
                kept.append(tool)  # not ours to judge
                continue
            try:
                marks = marks_of(tool.get("inputSchema"))
            except ValueError as fault:
                self._marks.pop(name, None)
                faults.append((name, str(fault)))
                continue
            kept.append(tool)
            if not marks:
                self._marks.pop(name, None)
            elif name in self._marks or len(self._marks) < MAX_TOOLS:
                self._marks[name] = marks
        return ({**result, "tools": kept} if faults else result), faults

    def headers(self, params: Any) -> list[tuple[bytes, bytes]]:
        """Return the headers of a ``tools/call`` (M26-C-17): none for an argument that is null or absent."""
        name = params.get("name") if type(params) is dict else None
        marks = self._marks.get(name) if type(name) is str else None
        if marks is None:
            return []
        arguments, fields = params.get("arguments"), []
        for path, header in marks.items():
            text = argument_text(argument_at(arguments, path))
            if text is not None:
                try:
                    fields.append((header, encode_value(text).encode("ascii")))
                except UnicodeEncodeError:
                    continue  # a lone surrogate; the body cannot hold it either and is refused for it
        return fields
