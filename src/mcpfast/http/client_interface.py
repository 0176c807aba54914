"""The one interface between client transports and what carries their requests.

A *backend* (the native client, httpx or httpx2, the in-memory one of the tests) owns connections. A
transport asks it to ``start`` a request and is called back with a :class:`ClientResponse` once the head
of the answer is there, and then with the body piece by piece. Callbacks, as a stream that is quiet for
hours then costs no task, and a call no task of its own.

Faults have one shape whatever the backend: ``ConnectionError`` (the built-in, an ``OSError``) where the
server cannot be reached or the connection is lost, ``RequestTimeout`` where connecting takes too long,
``ProtocolError`` where the answer is no valid HTTP or is encoded in a way we did not ask for. The
library's own exception is the cause.

A request is sent once. Only a GET is sent again by itself, and only when a kept connection turned out
to be closed; a POST that may have reached the server never is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from ..errors import HTTPStatusError, ProtocolError, ResponseTooLarge
from .client_request import URL, RequestTemplate
from .deadlines import Deadline, Deadlines
from .interface import HeaderList, Headers

__all__ = [
    "Backend",
    "BodySource",
    "ClientResponse",
    "Exchange",
    "OnResponse",
    "fetch",
    "redirect_target",
    "retrieve",
]

MAX_REDIRECTS = 5
"""How many redirects of one request are followed."""

READ_AHEAD_BYTES = 256 * 1024
"""Body bytes held for a reader that has not said yet what to do with them."""

DISCARD_BYTES = 64 * 1024
DISCARD_S = 5.0
"""How much of a body is read and dropped to keep its connection; beyond, it is cheaper to open another."""

REFUSAL_BYTES = 64 * 1024
"""How much of a refusal's body is read: a JSON-RPC error may stand in it."""


class BodySource(Protocol):
    """What stands behind a response and feeds it: a backend's connection."""

    def pause_reading(self) -> None:
        """Take no more from the peer. Pieces read already may still be fed."""

    def resume_reading(self) -> None: ...

    def close_body(self) -> None:
        """Give up the rest of the body, and the connection with it if need be. Nothing is fed after."""


class ClientResponse:
    """An answer: its head, and its body as it comes.

    Read it in one of three ways: ``deliver`` (callbacks), ``read`` (all of it), ``discard`` (none). A
    response that is done with before its end must be closed, which frees the connection.
    """

    __slots__ = (
        "_buffer",
        "_buffered",
        "_error",
        "_is_closed",
        "_is_ended",
        "_on_data",
        "_on_end",
        "_source",
        "headers",
        "status",
    )

    def __init__(self, status: int, headers: Headers, source: BodySource) -> None:
        self.status = status
        self.headers = headers
        self._source = source
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._on_data: Callable[[bytes], None] | None = None
        self._on_end: Callable[[Exception | None], None] | None = None
        self._is_ended = False
        self._is_closed = False
        self._error: Exception | None = None

    @classmethod
    def whole(cls, status: int, headers: Headers, source: BodySource, body: bytes) -> ClientResponse:
        """Return a response whose body is complete."""
        self = cls(status, headers, source)
        self._buffer.append(body)
        self._is_ended = True
        return self

    # For transports

    @property
    def is_ended(self) -> bool:
        """The body is complete, broken, or given up."""
        return self._is_ended or self._is_closed

    def deliver(self, on_data: Callable[[bytes], None], on_end: Callable[[Exception | None], None]) -> None:
        """Call ``on_data`` with each piece of the body and ``on_end`` after the last, once.

        What is here already is delivered before this returns. ``on_end`` gets None where the body is
        complete, or the fault that cut it off. After :meth:`close` neither is called.

        Raises:
            ProtocolError: the body is compressed although ``identity`` was asked for.
        """
        self._refuse_coding()
        self._on_data = on_data
        self._on_end = on_end
        buffer, self._buffer = self._buffer, []
        was_full, self._buffered = self._buffered > READ_AHEAD_BYTES, 0
        for data in buffer:
            if self._is_closed:
                return
            on_data(data)
        if self._is_closed:
            return
        if self._is_ended:
            on_end(self._error)
        elif was_full:
            self._source.resume_reading()

    def _refuse_coding(self) -> None:
        coding = self.headers.find(b"content-encoding")
        if coding and coding.lower() != b"identity":
            self.close()
            shown = coding[:40].decode("latin-1")
            raise ProtocolError(f"answer has content-encoding {shown!r}, identity was asked for")

    def pause(self) -> None:
        """Take no more of the body from the peer, who then feels the back-pressure.

        Pieces that had been read already may still be delivered.
        """
        if not self.is_ended:
            self._source.pause_reading()

    def resume(self) -> None:
        """Undo :meth:`pause`."""
        if not self.is_ended:
            self._source.resume_reading()

    def collect(self, limit: int, done: Callable[[bytes, Exception | None], None], *, truncate: bool = False) -> None:
        """Call ``done(body, error)`` once the body is complete, broken, or over ``limit`` bytes.

        With ``truncate`` a longer body is cut at the limit; without it the error is ResponseTooLarge.

        Raises:
            ProtocolError: as for :meth:`deliver`.
        """
        if self._is_ended and self._error is None and len(self._buffer) == 1 and len(self._buffer[0]) <= limit:
            # The whole body came with the head, as that of a small answer does.
            self._refuse_coding()
            (body,) = self._buffer
            self._is_closed = True
            done(body, None)
            return
        length = self.headers.find(b"content-length")
        if not truncate and length is not None and length.isdigit() and len(length) < 20 and int(length) > limit:
            self.close()
            done(b"", ResponseTooLarge(int(length), limit))
            return
        pieces: list[bytes] = []
        size = 0

        def on_data(data: bytes) -> None:
            nonlocal size
            size += len(data)
            pieces.append(data)
            if size >= limit and truncate:
                self.close()
                done(b"".join(pieces)[:limit], None)
            elif size > limit:
                pieces.clear()
                self.close()
                done(b"", ResponseTooLarge(size, limit))

        def on_end(error: Exception | None) -> None:
            done(pieces[0] if len(pieces) == 1 else b"".join(pieces), error)

        self.deliver(on_data, on_end)

    def collect_refusal(self, done: Callable[[bytes], None]) -> None:
        """Call ``done`` with the start of the body of an answer that is no success.

        A body that is compressed or cut off gives what can be had of it: it is no reason to hide the
        status.
        """
        try:
            self.collect(REFUSAL_BYTES, lambda body, _error: done(body), truncate=True)
        except ProtocolError:
            done(b"")

    async def read(self, limit: int, *, truncate: bool = False) -> bytes:
        """Return the whole body. Being cancelled closes the response.

        Raises:
            ResponseTooLarge: it is over ``limit`` bytes; with ``truncate`` it is cut there instead.
            ConnectionError, ProtocolError: the body is cut off or damaged.
        """
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def done(body: bytes, error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(body)
            else:
                future.set_exception(error)

        self.collect(limit, done, truncate=truncate)
        try:
            return await future
        finally:
            retrieve(future)
            self.close()

    def discard(self) -> None:
        """Have no use for the body: it is dropped as it comes, or given up if it is long or slow."""
        if self.is_ended:
            return
        size = self._buffered
        timer: Deadline | None = None
        if self.headers.find(b"content-length") != b"0":
            timer = Deadlines.for_loop().after(DISCARD_S, self.close)

        def on_data(data: bytes) -> None:
            nonlocal size
            size += len(data)
            if size > DISCARD_BYTES:
                self.close()

        def on_end(_error: Exception | None) -> None:
            if timer is not None:
                timer.cancel()

        # Not deliver(): nobody reads it, so its coding does not matter.
        self._on_data = on_data
        self._on_end = on_end
        self._buffer.clear()

    def close(self) -> None:
        """Be done with it: frees the connection, which is kept only if the body is complete. Repeatable."""
        if not self._is_closed:
            self._is_closed = True
            self._buffer.clear()
            self._on_data = self._on_end = None
            if not self._is_ended:
                self._source.close_body()

    # For backends

    def feed(self, data: bytes) -> None:
        """Take the next piece of the body."""
        on_data = self._on_data
        if on_data is not None:
            on_data(data)
        elif not self._is_closed:
            self._buffer.append(data)
            self._buffered += len(data)
            if self._buffered > READ_AHEAD_BYTES:
                self._source.pause_reading()

    def finish(self, error: Exception | None = None) -> None:
        """Take the end of the body, or the fault that cut it off."""
        if self._is_ended or self._is_closed:
            return
        self._is_ended = True
        self._error = error
        on_end, self._on_data, self._on_end = self._on_end, None, None
        if on_end is not None:
            on_end(error)

    def __repr__(self) -> str:
        return f"<ClientResponse {self.status}>"


def retrieve(future: asyncio.Future[Any]) -> bool:
    """Tell whether there is a result; an error that nobody will see any more is marked as seen.

    For a future whose awaiter was cancelled in the very turn it was settled in.
    """
    return future.done() and not future.cancelled() and future.exception() is None


OnResponse: TypeAlias = "Callable[[ClientResponse | None, Exception | None], None]"
"""Called once, with the response or with the fault that prevented one."""


class Exchange(Protocol):
    """A request under way."""

    @property
    def is_sent(self) -> bool:
        """False while it waits for a connection, so that nothing of it can have reached the server."""

    def cancel(self) -> None:
        """Give the request up: ``on_response`` is not called any more.

        Its connection is freed. Does nothing once the response is there, which has its own ``close``.
        """


class Backend(Protocol):
    """Carries requests. Owned by one event loop."""

    def start(
        self,
        template: RequestTemplate,
        on_response: OnResponse,
        body: bytes = b"",
        extra: HeaderList = (),
        *,
        connect_timeout: float = 10.0,
        urgent: bool = False,
    ) -> Exchange:
        """Send a request; returns at once and never calls back before it has returned.

        Args:
            template: the fixed part.
            on_response: see :data:`OnResponse`. It is up to the caller to limit the wait.
            body: all of it; empty for none.
            extra: fields of this request only, checked by ``header_list``.
            connect_timeout: seconds for a new connection, TLS included.
            urgent: do not wait for a free connection where their number is bounded. For messages others
                wait for: answers, cancellations, pings.
        """

    async def aclose(self) -> None:
        """Give up every request and close every connection. Repeatable."""


async def fetch(
    backend: Backend,
    template: RequestTemplate,
    body: bytes = b"",
    extra: HeaderList = (),
    *,
    connect_timeout: float = 10.0,
    urgent: bool = False,
) -> ClientResponse:
    """Send a request and return its response once the head is there. Being cancelled gives it up.

    Raises:
        ConnectionError, RequestTimeout, ProtocolError: see the module.
    """
    future: asyncio.Future[ClientResponse] = asyncio.get_running_loop().create_future()

    def on_response(response: ClientResponse | None, error: Exception | None) -> None:
        if response is None:
            if not future.done():
                assert error is not None
                future.set_exception(error)
        elif future.done():
            response.close()
        else:
            future.set_result(response)

    exchange = backend.start(template, on_response, body, extra, connect_timeout=connect_timeout, urgent=urgent)
    try:
        return await future
    except asyncio.CancelledError:
        exchange.cancel()
        if retrieve(future):
            future.result().close()  # it came in the very turn we were cancelled in
        raise


def redirect_target(template: RequestTemplate, response: ClientResponse) -> URL | None:
    """Return where a redirect leads, or None if the response is none that may be followed.

    307 and 308 keep method and body; 301, 302 and 303 turn any method into GET, so only a GET follows
    them (RFC 9110 §15.4).

    Raises:
        HTTPStatusError: it leads to another origin, where our headers must not go, or nowhere. The
            response is closed.
    """
    status = response.status
    if status not in (307, 308) and not (status in (301, 302, 303) and template.method == "GET"):
        return None
    location = response.headers.find(b"location")
    what = f"{template.method} {template.url}"
    try:
        if location is None:
            raise ValueError("no location")
        target = template.url.join(location.decode("utf-8"))
    except ValueError:  # a UnicodeDecodeError is one too
        response.close()
        raise HTTPStatusError(status, what=f"{what} (a redirect without a valid location)") from None
    if not template.url.may_redirect_to(target):
        response.close()
        raise HTTPStatusError(status, what=f"{what} (a redirect to another origin, {target.origin}, not followed)")
    response.discard()
    return target
