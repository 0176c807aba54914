"""Every contender does the work that is timed; one that does not is never timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from benchmarks import contenders
from benchmarks.codec.cases import MODES, WrongAnswer, burst, decode_call, encode_call, payloads, writer_call
from benchmarks.contenders import DECODERS, ENCODERS, WRITERS, Absent, Decoder, Encoder, Writer, load
from benchmarks.fixtures import CRLF, LF, SHAPES, SIZES, Event, Traffic, shape, sized

newlines = pytest.mark.parametrize("newline", [LF, CRLF], ids=["LF", "CRLF"])


def loaded(loaders: dict[str, Callable[[], Any]], name: str) -> Any:
    try:
        return loaders[name]()
    except Absent as error:
        pytest.skip(f"{name}: {error}")


@newlines
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DECODERS)
def test_decoder_reads_messages_right_in_every_way_of_reading(name: str, mode: str, newline: str) -> None:
    decode_call(loaded(DECODERS, name), sized(1024, newline=newline), mode)()


@newlines
@pytest.mark.parametrize("shape_name", SHAPES)
@pytest.mark.parametrize("name", DECODERS)
def test_decoder_reads_every_shape_right(name: str, shape_name: str, newline: str) -> None:
    decode_call(loaded(DECODERS, name), shape(shape_name, newline=newline), "data")()


@pytest.mark.parametrize("name", DECODERS)
def test_decoder_takes_events_of_the_largest_size(name: str) -> None:
    """httpx2 stops at 1 MiB unless told otherwise; a benchmark that it fails would say nothing."""
    decode_call(loaded(DECODERS, name), sized(1024 * 1024), "data")()


@pytest.mark.parametrize("kind", [str, bytes])
@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_writes_messages_right(name: str, kind: type) -> None:
    texts = payloads(1024)
    encode_call(loaded(ENCODERS, name), texts if kind is str else [text.encode() for text in texts])()


@pytest.mark.parametrize("name", WRITERS)
def test_writer_sends_all_of_a_burst_in_order(name: str) -> None:
    writer_call(loaded(WRITERS, name), burst(256))()


STREAM = Traffic("two", (b"data: a\n\ndata: b\n\n",), (Event("a"), Event("b")))


@pytest.mark.parametrize(
    "found",
    [
        pytest.param([Event("a")], id="one missing"),
        pytest.param([Event("a"), Event("b"), Event("")], id="one too many"),
        pytest.param([Event("a"), Event("c")], id="other data"),
        pytest.param([Event("a"), Event("b", event="error")], id="other type"),
        pytest.param([Event("a"), Event("b", id="1")], id="other id"),
    ],
)
def test_decoder_with_a_wrong_answer_is_not_timed(found: list[Event]) -> None:
    def start() -> tuple[Callable[[bytes], Iterable[Event]], Callable[[], Iterable[Event]]]:
        return lambda _: found, list

    with pytest.raises(WrongAnswer, match="liar"):
        decode_call(Decoder("liar", start), STREAM, "data")


def test_encoder_with_a_wrong_answer_is_not_timed() -> None:
    with pytest.raises(WrongAnswer, match="liar"):
        encode_call(Encoder("liar", lambda _: [b"data: a\n\n"], lambda _: None), ["a"])


def test_writer_with_a_wrong_answer_is_not_timed() -> None:
    def drop_last(texts: Any, write: Callable[[bytes], object]) -> None:
        for text in texts[:-1]:
            write(f"event: message\ndata: {text}\n\n".encode())

    with pytest.raises(WrongAnswer, match="liar"):
        writer_call(Writer("liar", drop_last), ["a", "b"])


def test_package_that_is_not_installed_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "httpx_sse"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httpx_sse", None)  # what an import of it meets when it is not installed
    present, absent = load({"here": lambda: "loaded", "httpx-sse": DECODERS["httpx-sse"]})
    assert present == {"here": "loaded"}
    assert absent == {"httpx-sse": "httpx_sse is not installed"}


def test_package_that_has_changed_under_us_is_a_failure_and_not_an_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(DECODERS, "httpx2")
    monkeypatch.setitem(sys.modules, "httpx2._sse", None)
    with pytest.raises(ModuleNotFoundError):
        load({"httpx2": DECODERS["httpx2"]})


def test_compiled_codec_is_absent_where_the_switch_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPFAST_NO_EXTENSIONS", "1")
    for loaders in (DECODERS, ENCODERS, WRITERS):
        present, absent = load(loaders)
        assert contenders.COMPILED in absent
        assert contenders.PURE in present


def test_undecoded_reading_asks_for_bytes_only_where_there_are_some() -> None:
    asked: list[str] = []

    class Asking:
        def __getattr__(self, name: str) -> str:
            asked.append(name)
            return ""

    def start() -> tuple[Callable[[bytes], Iterable[Any]], Callable[[], Iterable[Any]]]:
        return lambda _: [Asking()], lambda: [Asking()]

    Decoder("ours", start, has_bytes=True).read_bytes([b""])
    Decoder("theirs", start).read_bytes([b""])
    assert asked == ["data_bytes", "data_bytes", "data", "data"]


@pytest.mark.parametrize("size", SIZES)
def test_payloads_are_messages_of_the_size_and_few_enough_to_stay_in_the_cache(size: int) -> None:
    for texts, total_bytes in ((payloads(size), 64 * 1024), (burst(size), 256 * 1024)):
        assert {len(text.encode()) for text in texts} == {size}
        assert size * len(texts) == max(size, total_bytes)
