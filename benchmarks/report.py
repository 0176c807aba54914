"""The table and the chart of the README: ``python -m benchmarks.report``.

Measures the codec, prints Markdown with speeds, ratios and what they were measured on, and draws the
throughput per event size. ``--quick`` is for a look: fewer and shorter rounds, and no chart unless named.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.codec.cases import CLOCK, MODES, burst, decode_calls, encode_calls, payloads, writer_calls
from benchmarks.contenders import AIOHTTP_SSE, DECODERS, ENCODERS, HTTPX2, HTTPX_SSE, SSE_STARLETTE, load
from benchmarks.fixtures import CRLF, LF, SHAPES, SIZES, shape, size_name, sized
from benchmarks.machine import ROOT, Machine, steady_allocator
from benchmarks.ratios import MIN_TURN_S, Timing, interleave
from benchmarks.tables import Cell, Table, markdown

__all__ = ["main", "tables"]

SVG = ROOT / "docs" / "codec-throughput.svg"
DECODING_PEERS = (HTTPX_SSE, HTTPX2)
ENCODING_PEERS = (SSE_STARLETTE, AIOHTTP_SSE)

PANELS = {"Decode, LF, `data` read": "decode, data read as text", "Encode str": "encode text"}
"""The tables that the chart shows, and what they are called there."""


Measure = Callable[[Mapping[str, Callable[[], None]]], dict[str, Timing]]


def tables(measure: Measure) -> Iterator[Table]:
    """Measure everything that the report shows."""
    reading = {"data": "`data` read", "undecoded": "undecoded (`data_bytes`)", "json": "`json()`"}
    for newline, newline_name in ((LF, "LF"), (CRLF, "CRLF")):
        for mode in MODES:
            cells = tuple(_decode_cell(size, newline, mode, measure) for size in SIZES)
            yield Table(f"Decode, {newline_name}, {reading[mode]}", DECODING_PEERS, cells)
    shapes = tuple(_shape_cell(name, measure) for name in SHAPES)
    yield Table("Decode, other shapes, LF, `data` read", DECODING_PEERS, shapes)
    for kind in ("str", "bytes"):
        yield Table(f"Encode {kind}", ENCODING_PEERS, tuple(_encode_cell(size, kind, measure) for size in SIZES))
    bursts = tuple(_writer_cell(size, measure) for size in SIZES)
    yield Table("Write a burst of events (`EventWriter`)", (SSE_STARLETTE,), bursts)


def _decode_cell(size: int, newline: str, mode: str, measure: Measure) -> Cell:
    traffic = sized(size, newline=newline)
    events = len(traffic.events)
    return Cell(size_name(size), events, size * events, measure(decode_calls(traffic, mode)))


def _shape_cell(name: str, measure: Measure) -> Cell:
    traffic = shape(name)
    payload_bytes = sum(len(event.data.encode()) for event in traffic.events)
    return Cell(name, len(traffic.events), payload_bytes, measure(decode_calls(traffic, "data")))


def _encode_cell(size: int, kind: str, measure: Measure) -> Cell:
    texts = payloads(size)
    calls = encode_calls(texts if kind == "str" else [text.encode() for text in texts])
    return Cell(size_name(size), len(texts), size * len(texts), measure(calls))


def _writer_cell(size: int, measure: Measure) -> Cell:
    texts = burst(size)
    return Cell(size_name(size), len(texts), size * len(texts), measure(writer_calls(texts)))


def _as_json(machine: Machine, found: Iterable[Table]) -> str:
    return json.dumps({"machine": asdict(machine), "tables": [asdict(table) for table in found]}, indent=1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="3 short rounds: a look, nothing to publish")
    parser.add_argument("--svg", type=Path, metavar="PATH", help="the chart (default: docs/codec-throughput.svg)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write every timing of every round there")
    options = parser.parse_args(arguments)
    rounds, turn_s = (3, 0.002) if options.quick else (7, MIN_TURN_S)
    svg: Path | None = options.svg or (None if options.quick else SVG)

    steady_allocator()
    machine = Machine.this()
    command = " ".join(["python -m benchmarks.report", *(["--quick"] if options.quick else [])])
    print(
        f"Measured {machine.describe()}. Events per second, in chunks of 64 KiB: medians of {rounds} interleaved "
        f"rounds, and in brackets the lowest and the highest ratio of one round. Command: `{command}`."
    )
    for name, reason in {**load(DECODERS)[1], **load(ENCODERS)[1]}.items():
        print(f"Not measured: {name} ({reason}).")

    found = []
    for table in tables(lambda calls: interleave(calls, rounds=rounds, min_turn_s=turn_s, clock=CLOCK)):
        found.append(table)
        print(f"\n{markdown(table)}", flush=True)
    if options.json is not None:
        options.json.write_text(_as_json(machine, found) + "\n")
    if svg is not None:
        from benchmarks.chart import draw  # matplotlib takes a second to load

        draw(svg, {panel: table for table in found for title, panel in PANELS.items() if table.title == title}, machine)
        print(f"chart: {svg}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
