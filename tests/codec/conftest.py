"""Both implementations of the codec, for every test of this folder."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import pytest

from mcpfast._switches import extensions_allowed

NAMES = ("cython", "python") if extensions_allowed() else ("python",)


@dataclasses.dataclass(frozen=True)
class Codec:
    """One implementation's public names."""

    name: str
    ServerSentEvent: Any
    SSEDecoder: Any
    EventWriter: Any
    encode_event: Any
    encode_comment: Any


def load(name: str) -> Codec:
    """Return an implementation.

    A compiled codec that is absent fails the test, for a fallback tested twice proves nothing. A run that means
    to do without says so with ``MCPFAST_NO_EXTENSIONS=1``, and then it is not asked for.
    """
    if name == "cython":
        try:
            modules = [importlib.import_module("mcpfast.codec._codec_c")] * 4
        except ImportError as error:
            pytest.fail(f"the compiled codec is absent ({error}); set MCPFAST_NO_EXTENSIONS=1 to test without it")
    else:
        modules = [
            importlib.import_module(f"mcpfast.codec._{part}_py") for part in ("event", "decoder", "writer", "encoder")
        ]
    event, decoder, writer, encoder = modules
    return Codec(
        name,
        event.ServerSentEvent,
        decoder.SSEDecoder,
        writer.EventWriter,
        encoder.encode_event,
        encoder.encode_comment,
    )


@pytest.fixture(params=NAMES)
def codec(request: pytest.FixtureRequest) -> Codec:
    return load(request.param)


@pytest.fixture
def twins() -> tuple[Codec, Codec]:
    """The compiled implementation and the pure one, for tests that set them side by side."""
    if not extensions_allowed():
        pytest.skip("MCPFAST_NO_EXTENSIONS=1: there is nothing to set the pure implementation beside")
    return load("cython"), load("python")


@pytest.fixture(params=[(a, b) for a in NAMES for b in NAMES], ids="-to-".join)
def pair(request: pytest.FixtureRequest) -> tuple[Codec, Codec]:
    """Each implementation with each, itself included."""
    left, right = request.param
    return load(left), load(right)
