"""The event, in pure Python: the reference for its compiled twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, final

from ._common import check_retry, check_str, encode_text
from ._encoder_py import encode_event

_new = object.__new__


@final
class ServerSentEvent:
    """One event of a stream; a value, compared and hashed by its four fields, and never changed.

    Args:
        event: the event's type. An empty one means ``"message"``, as the standard has it.
        data: the payload, lines joined with LF.
        id: the last event id.
        retry: reconnection time in milliseconds, or None.

    Raises:
        TypeError: a field is of another type.
        ValueError: ``retry`` is negative or over ``2**63 - 1``.

    Source: WHATWG HTML, 9.2.6 "Interpreting an event stream".
    """

    __slots__ = ("_event", "_id", "_raw", "_retry", "_text")
    __match_args__ = ("event", "data", "id", "retry")

    _event: str
    _id: str
    _raw: bytes | None  # the payload as it came; None until asked for if the event was built from text
    _retry: int | None
    _text: str | None  # the payload decoded; None until asked for if the event came off the wire

    # In __new__, so that a second call of __init__ changes nothing.
    def __new__(cls, event: str = "message", data: str = "", id: str = "", retry: int | None = None) -> ServerSentEvent:
        self = _new(cls)
        self._event = check_str("event", event) or "message"
        self._text = check_str("data", data)
        self._id = check_str("id", id)
        self._retry = check_retry(retry)
        self._raw = None
        return self

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("type 'ServerSentEvent' is not an acceptable base type")

    @property
    def event(self) -> str:
        """The event's type, ``"message"`` unless the stream named one."""
        return self._event

    @property
    def data(self) -> str:
        """The payload as text; bytes that are no UTF-8 became U+FFFD. Decoded when first read."""
        text = self._text
        if text is None:
            text = self._text = self._raw.decode("utf-8", "replace")  # type: ignore[union-attr]
        return text

    @property
    def id(self) -> str:
        """The last event id of the stream when this event was dispatched; it persists from event to event."""
        return self._id

    @property
    def retry(self) -> int | None:
        """The reconnection time in milliseconds that this event's own block set, or None."""
        return self._retry

    @property
    def data_bytes(self) -> bytes:
        """The payload undecoded, just as it came, with its lines joined by LF.

        Raises:
            ValueError: the event was built from text with a lone surrogate.
        """
        if self._raw is None:
            self._raw = encode_text("data", self._text)
        return self._raw

    def json(self) -> Any:
        """Return the payload's JSON value.

        Raises:
            ValueError: it is no JSON.
        """
        return _json_loads()(self._text if self._raw is None else self._raw)

    def encode(self) -> bytes:
        """Return the event as one frame of a stream; fields with default values are left out.

        Raises:
            ValueError: as :func:`~mcpfast.codec.encode_event`.
        """
        return encode_event(
            self._text if self._raw is None else self._raw,
            event=None if self._event == "message" else self._event,
            id=self._id or None,
            retry=self._retry,
        )

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not ServerSentEvent:
            return NotImplemented  # a compiled event compares itself with us
        return (
            self._event == other._event
            and self._id == other._id
            and self._retry == other._retry
            and ((self._raw is not None and self._raw == other._raw) or self.data == other.data)
        )

    def __hash__(self) -> int:
        return hash((self._event, self.data, self._id, self._retry))

    def __repr__(self) -> str:
        return f"ServerSentEvent(event={self._event!r}, data={self.data!r}, id={self._id!r}, retry={self._retry!r})"

    def __copy__(self) -> ServerSentEvent:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ServerSentEvent:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        # Names the public function, so that a process with the other implementation can load the pickle.
        from ._impl import build_event

        return build_event, (self._event, self._text if self._raw is None else self._raw, self._id, self._retry)


def from_wire(event: str, raw: bytes, id: str, retry: int | None) -> ServerSentEvent:
    """Build a decoded event; the caller vouches for its fields."""
    self = _new(ServerSentEvent)
    self._event = event
    self._raw = raw
    self._text = None
    self._id = id
    self._retry = retry
    return self


_loads: Callable[[Any], Any] | None = None


def _json_loads() -> Callable[[Any], Any]:
    """Return the JSON reader, loaded when the first event is asked for its JSON."""
    global _loads
    if _loads is None:
        from mcpfast._json import loads

        _loads = loads
    return _loads
