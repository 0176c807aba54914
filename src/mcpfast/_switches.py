"""The run-time switch ``MCPFAST_NO_EXTENSIONS``, and loading of a compiled module under it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from types import ModuleType

__all__ = ["extensions_allowed", "load_extension"]


def extensions_allowed() -> bool:
    """Tell whether compiled modules may be loaded.

    ``MCPFAST_NO_EXTENSIONS`` unset, empty or ``0`` allows them, ``1`` forbids them.

    Raises:
        ValueError: the variable holds anything else.
    """
    value = os.environ.get("MCPFAST_NO_EXTENSIONS", "")
    if value in {"", "0"}:
        return True
    if value == "1":
        return False
    raise ValueError(f"MCPFAST_NO_EXTENSIONS is {value!r}, allowed are 0 and 1")


def load_extension(name: str) -> ModuleType | None:
    """Return the compiled module ``name``, or None where the pure twin must serve.

    Only an absent module falls back in silence. One that is there but does not load (built for
    another interpreter, a missing symbol) would turn into silent slowness, so it warns with the
    loader's own words.
    """
    if not extensions_allowed() or importlib.util.find_spec(name) is None:
        return None
    try:
        return importlib.import_module(name)
    except ImportError as error:
        warnings.warn(
            f"{name} is installed but does not load, using pure Python: {error}", RuntimeWarning, stacklevel=2
        )
        return None
