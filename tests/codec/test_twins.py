"""The two implementations side by side, and both beside the oracle."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import sse_oracle

from .conftest import NAMES, Codec, load
from .streams import bytewise, cut, decode, streams

CALLABLES = ["ServerSentEvent", "SSEDecoder", "EventWriter", "encode_event", "encode_comment"]
METHODS = {
    "ServerSentEvent": ["encode", "json"],
    "SSEDecoder": ["feed", "close", "reset"],
    "EventWriter": ["send", "send_encoded", "comment", "flush", "close"],
}


def parameters(call: Any) -> list[tuple[str, Any, Any]]:
    return [
        (parameter.name, parameter.kind, parameter.default) for parameter in inspect.signature(call).parameters.values()
    ]


@pytest.mark.parametrize("name", CALLABLES)
def test_signatures_are_equal(twins: tuple[Codec, Codec], name: str) -> None:
    compiled, pure = (getattr(codec, name) for codec in twins)
    assert parameters(compiled) == parameters(pure)
    for method in METHODS.get(name, []):
        assert parameters(getattr(compiled, method)) == parameters(getattr(pure, method))


@pytest.mark.parametrize("name", METHODS)
def test_public_attributes_are_the_same(twins: tuple[Codec, Codec], name: str) -> None:
    compiled, pure = ({key for key in dir(getattr(codec, name)) if not key.startswith("_")} for codec in twins)
    assert compiled == pure


@pytest.mark.parametrize("name", CALLABLES)
def test_documentation_is_the_same(twins: tuple[Codec, Codec], name: str) -> None:
    compiled, pure = (getattr(codec, name) for codec in twins)
    assert inspect.getdoc(compiled) == inspect.getdoc(pure)
    for attribute in {key for key in dir(pure) if not key.startswith("_")} & set(dir(compiled)):
        if name in METHODS:
            assert inspect.getdoc(getattr(compiled, attribute)) == inspect.getdoc(getattr(pure, attribute))


@pytest.mark.parametrize("name", ["SSEDecoder", "EventWriter"])
def test_what_holds_a_stream_cannot_be_pickled(codec: Codec, name: str) -> None:
    made = getattr(codec, name)(*([print] if name == "EventWriter" else []))
    with pytest.raises(TypeError, match=rf"^cannot pickle '{name}' object$"):
        made.__reduce_ex__(4)


cuts = st.lists(st.integers(0, 4000), max_size=12)
options = st.fixed_dictionaries(
    {"strict": st.booleans()},
    optional={"max_event_bytes": st.one_of(st.integers(1, 40), st.integers(1, 2000))},
)


@settings(max_examples=400, deadline=None)
@given(stream=streams, places=cuts, options=options, flush=st.booleans())
def test_decoders_and_oracle_agree_on_hostile_streams(
    stream: bytes, places: list[int], options: dict[str, Any], flush: bool
) -> None:
    """Events, error and its text, last event id and retry: none may depend on the cuts or the implementation."""
    want = sse_oracle.decode(
        stream,
        limit=options.get("max_event_bytes", sse_oracle.DEFAULT_LIMIT),
        strict=options["strict"],
        flush=flush,
    )
    for name in NAMES:
        codec = load(name)
        for chunks in ([stream], cut(stream, places), bytewise(stream)):
            assert decode(codec.SSEDecoder(**options), chunks, flush=flush) == want


@settings(max_examples=200, deadline=None)
@given(first=streams, second=streams, places=cuts, strict=st.booleans())
def test_nothing_but_id_and_retry_outlives_a_reset(
    first: bytes, second: bytes, places: list[int], strict: bool
) -> None:
    for name in NAMES:
        used, fresh = (load(name).SSEDecoder(strict=strict) for _ in range(2))
        decode(used, cut(first, places))
        used.reset()
        fresh.feed(b"id: " + used.last_event_id.encode() + b"\n\n")
        if used.retry is not None:
            fresh.feed(b"retry: %d\n" % used.retry)
        fresh.reset()
        assert decode(used, cut(second, places)) == decode(fresh, [second])


values = st.one_of(
    st.none(),
    st.text(st.one_of(st.characters(), st.sampled_from("\r\n\0\ud800")), max_size=20),
    st.binary(max_size=20),
    st.integers(-2, 2**64),
    st.booleans(),
)


def attempt(call: Any, *arguments: Any, **fields: Any) -> object:
    try:
        return call(*arguments, **fields)
    except Exception as error:
        return type(error), error.args, error.__cause__, error.__suppress_context__ or error.__context__ is None


def built_and_encoded(codec: Codec, *fields: Any) -> object:
    return codec.ServerSentEvent(*fields).encode()


@settings(max_examples=400, deadline=None)
@given(data=values, event=values, last_id=values, retry=values)
def test_encoders_agree_on_hostile_arguments(data: Any, event: Any, last_id: Any, retry: Any) -> None:
    results = []
    for name in NAMES:
        codec = load(name)
        written: list[bytes] = []
        writer = codec.EventWriter(written.append)
        results.append(
            (
                attempt(codec.encode_event, data, event=event, id=last_id, retry=retry),
                attempt(codec.encode_comment, data),
                attempt(codec.ServerSentEvent, event, data, last_id, retry),
                attempt(built_and_encoded, codec, event, data, last_id, retry),
                attempt(writer.send, data, event=event, id=last_id, retry=retry),
                attempt(writer.comment, data),
                attempt(writer.send_encoded, data),
                written,
            )
        )
    assert results[0] == results[-1]
