"""The parts of one codec implementation, for the scripts beside this file. They are run as programs."""

from __future__ import annotations

import importlib
import resource
import sys
from typing import Any


def load() -> dict[str, Any]:
    """Return the public names of the implementation that the command line asks for."""
    modules = ["_codec_c"] if sys.argv[1] == "cython" else ["_event_py", "_decoder_py", "_encoder_py", "_writer_py"]
    names: dict[str, Any] = {}
    for module in modules:
        names.update(vars(importlib.import_module(f"mcpfast.codec.{module}")))
    return names


def peak_bytes() -> int:
    """The most memory this process ever had in RAM."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            # Not ru_maxrss where this exists: that one is inherited from the process that started us.
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except FileNotFoundError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
