"""When a stream that ended is taken up again, and with which ``Last-Event-ID``. Counts; no clock, no chance.

A stream that brought something is taken up after exactly what ``retry`` asks for. One that brought nothing, and a try
that failed, make the next wait longer, so that neither a server that is down nor one that closes every stream at once
is asked without end.

Source: MCP 2025-11-25, basic/transports §Sending Messages 6, §Resumability and Redelivery (L25-C-04, L25-C-05,
L25-C-08); WHATWG HTML 9.2.3 and 9.2.4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["DEFAULT_RETRY", "Reconnection", "RetryPolicy", "last_event_id_header"]

RETRY_DEFAULT_S = 1.0
"""The wait before taking up a stream whose server has not set ``retry``."""

MAX_EVENT_ID_BYTES = 1024
"""Longer event ids are not sent back."""

# A server may ask to be polled quickly, but not in a loop: of six waits in a row below the first limit the last one is
# made the second.
_QUICK_S, _QUICK_IN_A_ROW, _REST_S = 0.1, 5, 1.0

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how soon streams are taken up again.

    Attributes:
        first_s: seconds to wait after the first failure in a row; each further one doubles it. Chance adds up to half.
        longest_s: the longest such wait.
        max_retry_s: the longest wait that a server's ``retry`` is followed for.
        max_attempts: how many times in a row an answer's stream is taken up in vain before its request fails; 0: a
            broken answer is not taken up.
        max_listen_attempts: the same for the standing stream, whose end nobody is told; None for no limit.
    """

    first_s: float = 1.0
    longest_s: float = 30.0
    max_retry_s: float = 60.0
    max_attempts: int = 5
    max_listen_attempts: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.first_s <= self.longest_s:
            raise ValueError("first_s must be positive, and longest_s no less")
        if not self.max_retry_s >= 0:
            raise ValueError("max_retry_s must not be negative")
        for attempts in (self.max_attempts, self.max_listen_attempts):
            if attempts is not None and attempts < 0:
                raise ValueError("a number of attempts must not be negative")


DEFAULT_RETRY = RetryPolicy()


class Reconnection:
    """The counts of one stream, over all of its connections.

    Args:
        policy: the waits.
        max_attempts: times in a row that may bring nothing; None for no limit.
    """

    __slots__ = ("_brought", "_in_vain", "_max_attempts", "_policy", "_quick", "_retry_s")

    def __init__(self, policy: RetryPolicy, max_attempts: int | None) -> None:
        self._policy = policy
        self._max_attempts = max_attempts
        self._retry_s: float | None = None
        self._in_vain = 0
        self._brought = False
        self._quick = 0

    @property
    def in_vain(self) -> int:
        """How many connections and tries in a row have brought nothing."""
        return self._in_vain

    def asked(self, retry_ms: int) -> None:
        """The server set ``retry``."""
        self._retry_s = min(retry_ms / 1000, self._policy.max_retry_s)

    def brought(self) -> None:
        """The connection brought a message, or an event id we had not."""
        self._brought = True

    def next_wait(self, is_clean: bool, chance: float) -> float | None:
        """A connection ended, or could not be had: return the seconds to wait before the next; None to give up.

        Args:
            is_clean: the server ended the stream; else it was lost, or refused.
            chance: from 0 to 1, evenly spread.
        """
        policy = self._policy
        asked = RETRY_DEFAULT_S if self._retry_s is None else self._retry_s
        if self._brought:
            self._brought = False
            self._in_vain = 0
            wait = asked
            if self._max_attempts == 0:
                return None
        else:
            self._in_vain += 1
            if self._max_attempts is not None and self._in_vain > self._max_attempts:
                return None
            failures = self._in_vain - 1 if is_clean else self._in_vain
            wait = asked
            if failures:
                doubled = policy.first_s * 2.0 ** min(failures - 1, 30)
                wait = max(wait, min(policy.longest_s, doubled * (1 + chance / 2)))
        if wait >= _QUICK_S:
            self._quick = 0
        elif self._quick < _QUICK_IN_A_ROW:
            self._quick += 1
        else:
            self._quick = 0
            wait = _REST_S
        return wait


def last_event_id_header(event_id: str) -> bytes | None:
    """Return the value of ``Last-Event-ID``, in UTF-8; None for an id that is not sent back.

    One is not if it is longer than 1 KiB, or holds what a header's value must not.
    """
    value = event_id.encode("utf-8", "surrogatepass")
    if len(value) > MAX_EVENT_ID_BYTES or _CONTROL.search(value) is not None or value != value.strip(b" "):
        return None
    return value
