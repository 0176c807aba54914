"""What all apps of this process have in flight together."""

from __future__ import annotations

__all__ = ["PROCESS", "Load"]


class Load:
    """A count of requests in flight. Each app compares it with the limit it was given."""

    __slots__ = ("in_flight",)

    def __init__(self) -> None:
        self.in_flight = 0


PROCESS = Load()
