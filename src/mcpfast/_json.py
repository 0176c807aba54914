"""Exact JSON: ``loads`` and ``dumps``, compiled where there is an extension. ``_json_py`` tells the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._json_py import MAX_DEPTH, MAX_INT_DIGITS
from ._switches import load_extension

__all__ = ["IMPLEMENTATION", "MAX_DEPTH", "MAX_INT_DIGITS", "dumps", "loads"]

_compiled = load_extension("mcpfast._json_c")

IMPLEMENTATION = "python" if _compiled is None else "cython"

if TYPE_CHECKING or _compiled is None:
    from ._json_py import dumps, loads
else:
    dumps, loads = _compiled.dumps, _compiled.loads
