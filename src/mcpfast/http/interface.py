"""The one interface between transports and the shells that carry them.

A *shell* (native server, ASGI, the in-memory one of the tests) owns sockets, framing, time-outs and
tasks. A *handler* (a transport's server side) owns MCP. They meet in three things only: a shell
builds a :class:`Request` and a :class:`Responder` and calls ``handler(request, responder)``.

The handler may answer before it returns, return an awaitable which the shell runs in one task of its
own and cancels when the client leaves before the answer ended, or keep the responder and end it
later (an SSE stream needs no task while it is quiet). A handler that raises before ``start`` makes
the shell answer 500 without the error's text; one that raises after it aborts the connection, as the
answer cannot be completed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qs

from ..errors import MCPFastError

__all__ = [
    "BodyTooLarge",
    "ClientDisconnected",
    "Handler",
    "HeaderList",
    "Headers",
    "Request",
    "Responder",
]

HeaderList: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Header fields to send: names in lower case, values without CR, LF or NUL."""

Handler: TypeAlias = "Callable[[Request, Responder], Awaitable[None] | None]"


class BodyTooLarge(MCPFastError):
    """A request body is over the limit; the handler answers 413, or lets the shell do so.

    Attributes:
        limit: the limit in bytes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"request body is over the limit of {self.limit} bytes"


class ClientDisconnected(MCPFastError):
    """The client left before its request was whole; nobody is there to answer."""


class Headers(Mapping[str, str]):
    """Header fields of one message, in the order they came, found by name in any case.

    ``headers["name"]`` gives the first value as text (latin-1, white space around it removed,
    RFC 9110 §5.5); ``getall`` gives every value of a field sent more than once.
    """

    __slots__ = ("admitted_by", "fields", "raw")

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self.raw = raw
        """Names in lower case, values as they came less the white space around them.

        Not to be changed: requests that came with the same head over one connection share these headers.
        """
        self.fields = dict(raw)
        """The last value of each name (lower case): for who looks up several. Not to be changed.

        It has fewer entries than ``raw`` if, and only if, a name came more than once.
        """
        self.admitted_by: object = None
        """Who has checked them and found nothing wrong, so as not to check them again in the next request."""

    def find(self, name: bytes) -> bytes | None:
        """Return the first value of ``name`` (lower case), or None: the cheap way for hot paths."""
        for key, value in self.raw:
            if key == name:
                return value
        return None

    def getall(self, name: str) -> list[str]:
        """Return every value of ``name``, in order."""
        wanted = name.lower().encode("latin-1", "replace")
        return [value.decode("latin-1") for key, value in self.raw if key == wanted]

    def __getitem__(self, name: str) -> str:
        value = self.find(name.lower().encode("latin-1", "replace"))
        if value is None:
            raise KeyError(name)
        return value.decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key.decode("latin-1") for key, _ in self.raw))

    def __len__(self) -> int:
        return len({key for key, _ in self.raw})

    def __repr__(self) -> str:
        # Values may hold tokens: only names are shown.
        return f"<Headers {', '.join(self)}>"


class Request:
    """One HTTP request as its handler sees it. The shell fills it; the body may still be arriving."""

    __slots__ = (
        "_body",
        "_receive_body",
        "client",
        "extensions",
        "headers",
        "method",
        "path",
        "query_string",
        "root_path",
        "scheme",
        "state",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query_string: str,
        headers: Headers,
        # Shells give these by position: naming them costs a dict for each request.
        client: tuple[str, int] | None = None,
        scheme: str = "http",
        root_path: str = "",
        body: bytes | None = b"",
        receive_body: Callable[[int | None], Awaitable[bytes]] | None = None,
        extensions: dict[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.path = path
        """The path below ``root_path``, percent-decoded, always beginning with ``/``."""
        self.query_string = query_string
        """What follows ``?``, as it came. It may hold secrets: never log it."""
        self.headers = headers
        self.client = client
        self.scheme = scheme
        self.root_path = root_path
        """Where a proxy or a mounting application put us: prefix of every path a client must use."""
        self.state: Any = None
        """The application's, from its lifespan."""
        self.extensions = extensions
        """What the shell knows beyond this interface: ``{"asgi": scope}`` under ASGI."""
        self._body = body
        self._receive_body = receive_body

    @property
    def query(self) -> dict[str, list[str]]:
        """The query's parameters, percent-decoded, each with all its values."""
        return parse_qs(self.query_string, keep_blank_values=True) if self.query_string else {}

    @property
    def body_nowait(self) -> bytes | None:
        """The whole body if it is here already (the common case), else None: then await :meth:`body`."""
        return self._body

    async def body(self, limit: int | None = None) -> bytes:
        """Return the whole body, waiting for what has not arrived.

        Args:
            limit: bytes this handler takes; None for the shell's own limit, which holds in any case.

        Raises:
            BodyTooLarge: the body is over the limit. What is left of it is discarded by the shell.
            ClientDisconnected: the client left, or stalled over its time limit, in mid-body.
        """
        if self._body is None:
            assert self._receive_body is not None
            self._body = await self._receive_body(limit)
        if limit is not None and len(self._body) > limit:
            raise BodyTooLarge(limit)
        return self._body

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path}>"


class Responder(Protocol):
    """The answer to one request. Nothing here awaits but :meth:`drain`.

    Order of calls: ``start``, any number of ``write``, ``end``; or ``respond`` alone. After the
    client has left, all of them do nothing: the disconnect callbacks have told the handler.
    """

    @property
    def is_started(self) -> bool:
        """``start`` or ``respond`` was called."""

    @property
    def is_ended(self) -> bool:
        """The answer is complete, or the client has left."""

    @property
    def is_disconnected(self) -> bool:
        """The client left (or was dropped) before the answer was complete."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that the system has not taken yet: how far the reader is behind."""

    def start(self, status: int, headers: HeaderList) -> None:
        """Begin the answer. The head goes out with the first write, or at the end of the loop's turn.

        Framing (content-length, chunked, connection, date) is the shell's; it is not to be given.
        """

    def write(self, data: bytes) -> None:
        """Send a piece of the body: one buffer, one write, chunk framing included."""

    def end(self) -> None:
        """Complete the answer. Repeatable."""

    def respond(self, status: int, headers: HeaderList = (), body: bytes = b"") -> None:
        """Send a whole answer in one write, with its content-length."""

    async def drain(self) -> None:
        """Wait until the reader is less than the shell's limit behind (1 MiB by default).

        Returns at once in the common case. Raises TransportClosed if the client leaves meanwhile;
        one that stays behind for longer than the shell allows (30 s) is dropped by the shell.
        """

    def abort(self, reason: str) -> None:
        """Drop the connection without completing the answer. ``reason`` is counted in the statistics."""

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, from the loop, if the client leaves before the answer is complete.

        At once if it has left already. Never called after :meth:`end`.
        """
