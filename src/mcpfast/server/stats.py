"""What a server counts besides what its shell counts."""

from __future__ import annotations

from typing import Any

__all__ = ["Stats"]


class Stats:
    """Counters of one app. Gauges: ``sessions``, ``streams``; the others only grow."""

    __slots__ = ("ended", "messages_in", "messages_out", "refused", "sessions", "streams")

    def __init__(self) -> None:
        self.sessions = 0
        self.streams = 0
        self.messages_in = 0
        self.messages_out = 0
        self.refused: dict[str, int] = {}
        """Requests not served, by reason."""
        self.ended: dict[str, int] = {}
        """Sessions that ended, by reason. The shell counts connections by itself, also those it was told to drop."""

    def refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def end(self, reason: str) -> None:
        self.ended[reason] = self.ended.get(reason, 0) + 1

    def merged(self, shell: dict[str, Any]) -> dict[str, Any]:
        """Return the shell's statistics with ours added; reasons for refusals are summed."""
        refused = dict(shell.get("refused", {}))
        for reason, count in self.refused.items():
            refused[reason] = refused.get(reason, 0) + count
        return {
            **shell,
            "sessions": self.sessions,
            "streams": self.streams,
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            "refused": refused,
            "ended": dict(self.ended),
        }
