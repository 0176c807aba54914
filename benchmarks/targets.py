"""What is promised: ratios in one run on one machine, as data.

A target is missed when the measured ratio is under 0.9 of it: the machine's noise is not a regression.
A section of the gate (`benchmarks.gate`) holds its own rows; add a row here and a measurement there.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.fixtures import KIB, size_name
from benchmarks.ratios import Ratio

__all__ = ["SLACK", "TARGETS", "Cannot", "Measured", "Target", "of_section"]

SLACK = 0.9


@dataclass(frozen=True)
class Target:
    """One cell of a table of targets.

    Attributes:
        section: the part of the gate that measures it.
        row: what is measured.
        against: whom it is measured against.
        cell: under which condition, mostly the size of an event.
        value: the ratio.
        at_most: the ratio is a cost and must not be above; otherwise a speed that must be reached.
    """

    section: str
    row: str
    against: str
    cell: str
    value: float
    at_most: bool = False

    def score(self, measured: float) -> float:
        """Return how much of the target is reached; 1.0 is all of it."""
        return self.value / measured if self.at_most else measured / self.value

    def holds(self, measured: float) -> bool:
        return self.score(measured) >= SLACK


@dataclass(frozen=True)
class Measured:
    """What a section measured for one target.

    Attributes:
        row: the target's row.
        cell: the target's cell.
        ratio: the measured ratio and its spread.
        against: whom it was measured against in this run.
    """

    row: str
    cell: str
    ratio: Ratio
    against: str


class Cannot(Exception):
    """A section cannot measure here; the message says what is missing."""


def _sizes(section: str, row: str, against: str, values: dict[int, float]) -> list[Target]:
    return [Target(section, row, against, size_name(size), value) for size, value in values.items()]


_DECODING_PEERS = "the faster of httpx-sse, httpx2"
_K16, _K256, _M1 = 16 * KIB, 256 * KIB, KIB * KIB

TARGETS: tuple[Target, ...] = (
    *_sizes(
        "codec",
        "decode LF",
        _DECODING_PEERS,
        {64: 15, 256: 15, KIB: 8, _K16: 4.5, _K256: 3.5, _M1: 3.5},
    ),
    *_sizes(
        "codec",
        "decode CRLF",
        _DECODING_PEERS,
        {64: 16, 256: 16, KIB: 14, _K16: 17, _K256: 5, _M1: 3.5},
    ),
    *_sizes(
        "codec",
        "encode str",
        "sse-starlette ServerSentEvent.encode",
        {64: 30, 256: 40, KIB: 60, _K16: 110, _K256: 100, _M1: 95},
    ),
    *_sizes(
        "codec",
        "pure decode",
        _DECODING_PEERS,
        {64: 1.2, 256: 1.2, KIB: 1.1, _K16: 0.9, _K256: 0.9, _M1: 0.9},
    ),
    # The cells are open sessions or streams. A bound that is no ratio is held as multiple of itself.
    Target("e2e", "SSE echo", "the SDK's SSE application, MCPServer.sse_app()", "16", 15),
    Target("e2e", "SSE echo CPU", "a bare echo over the same wire", "16", 2.5, at_most=True),
    Target("e2e", "ASGI echo", "a bare ASGI application there", "16", 0.6),
    Target("e2e", "idle memory", "10 KiB per stream", "10,000", 1, at_most=True),
    Target("e2e", "keep-alive", "a bare loop of writes", "10,000", 1.5, at_most=True),
    Target("e2e", "longest turn", "5 ms", "10,000", 1, at_most=True),
    Target("e2e", "sessions CPU", "10 sessions, CPU per call", "10,000", 1.25, at_most=True),
)


def of_section(section: str) -> tuple[Target, ...]:
    """Return the targets of one section, in the order of the table."""
    return tuple(target for target in TARGETS if target.section == section)
