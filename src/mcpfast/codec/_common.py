"""What both implementations share: limits, argument checks, and the texts of their errors.

The compiled modules check on their own fast paths and come here when something is wrong, so that the
two cannot disagree about an error's type or words.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from typing_extensions import Buffer

DEFAULT_MAX_EVENT_BYTES = 16 << 20
DEFAULT_FLUSH_BYTES = 65536

# Longer reconnection times than this are read as this (the standard sets no bound), and not written.
MAX_RETRY_MS = 2**63 - 1


def as_bytes(what: str, value: Buffer) -> bytes:
    """Return the bytes of a contiguous bytes-like object.

    Raises:
        TypeError: ``value`` is no bytes-like object.
        BufferError: its memory is not contiguous.
    """
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(f"{what} must be bytes-like, got {type(value).__name__}") from None
    with view:
        if not view.c_contiguous:
            raise BufferError(f"{what} must be contiguous in memory")
        return view.tobytes()


def check_str(what: str, value: object) -> str:
    """Return ``value`` as an exact ``str``, so that a subclass cannot bring its own behaviour along."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str, got {type(value).__name__}")
    return value if type(value) is str else str.__str__(value)


def check_retry(value: object) -> int | None:
    """Return a reconnection time in milliseconds as an exact ``int``, or None."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"retry must be int or None, got {type(value).__name__}")
    if not 0 <= value <= MAX_RETRY_MS:
        shown = int(value) if value.bit_length() <= 128 else f"an integer of {value.bit_length()} bits"
        raise ValueError(f"retry is {shown}, allowed are 0 to {MAX_RETRY_MS} milliseconds")
    return int(value)


def check_size(what: str, value: object) -> int:
    """Return a size option in bytes."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be int, got {type(value).__name__}")
    if not 1 <= value <= sys.maxsize:
        raise ValueError(f"{what} is {value}, allowed are 1 to {sys.maxsize} bytes")
    return int(value)


def check_callable(what: str, value: object) -> None:
    if not callable(value):
        raise TypeError(f"{what} must be callable, got {type(value).__name__}")


def encode_text(what: str, value: object) -> bytes:
    """Return text as UTF-8.

    Raises:
        ValueError: it holds a lone surrogate.
    """
    try:
        return check_str(what, value).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} holds a lone surrogate at index {error.start}, which has no UTF-8 form") from None


def encode_name(what: str, value: object) -> bytes:
    """Return the value of an ``event`` or ``id`` field as UTF-8; both are one line, an id holds no NUL."""
    text = check_str(what, value)
    for break_ in "\r\n":
        if break_ in text:
            raise ValueError(f"{what} holds a line break at index {text.index(break_)}, allowed is one line")
    if what == "id" and "\0" in text:
        raise ValueError(f"id holds a NUL at index {text.index(chr(0))}, receivers would ignore it")
    return encode_text(what, text)


def refuse_closed(what: str) -> NoReturn:
    """Raise what the use of a closed decoder or writer raises: a mistake of ours, so no peer's error."""
    raise RuntimeError(f"{what} is closed")


def data_type_error(value: object) -> TypeError:
    return TypeError(f"data must be str, bytes-like or None, got {type(value).__name__}")
