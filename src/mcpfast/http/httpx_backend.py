"""Requests over a client of httpx or httpx2: the user's, or one of our own where a proxy is set.

Everything the client brings (proxies, mounts, event hooks, its own headers, cookies and auth) stays in
effect. Two things are ours: redirects, which must not carry headers to another origin, and time limits
after connecting, as httpx's default of 5 s for a read would end every quiet stream.

The libraries are told apart by the class of the client, and none is imported here.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from ..errors import ProtocolError, RequestTimeout, TransportClosed
from .client_interface import ClientResponse, OnResponse
from .client_request import RequestTemplate
from .interface import HeaderList, Headers

__all__ = ["HTTPXBackend", "library_of"]


def library_of(value: object, kind: str) -> Any:
    """Return the module (httpx or httpx2) whose class ``kind`` the value is an instance of, or None."""
    for base in type(value).__mro__:
        root = base.__module__.partition(".")[0]
        if base.__name__ == kind and root in ("httpx", "httpx2"):
            return sys.modules[root]
    return None


class HTTPXBackend:
    """Carries requests over an ``AsyncClient``.

    Args:
        client: an ``httpx.AsyncClient`` or ``httpx2.AsyncClient``.
        owned: close it with this backend.

    Raises:
        TypeError: it is neither.
    """

    def __init__(self, client: Any, *, owned: bool = False) -> None:
        library = library_of(client, "AsyncClient")
        if library is None:
            raise TypeError(f"http_client must be an AsyncClient of httpx or httpx2, not {type(client).__name__}")
        self._library = library
        self._client = client
        self._owned = owned
        self._exchanges: set[_Exchange] = set()
        self._is_closed = False

    def start(
        self,
        template: RequestTemplate,
        on_response: OnResponse,
        body: bytes = b"",
        extra: HeaderList = (),
        *,
        connect_timeout: float = 10.0,
        urgent: bool = False,
    ) -> _Exchange:
        # urgent cannot be had: how many connections there may be is set on the user's client.
        if self._is_closed:
            raise TransportClosed("http client is closed")
        request = self._client.build_request(
            template.method,
            template.url.text,
            headers=list(template.merged(extra)),
            content=body if body or template.method == "POST" else None,
            timeout=(connect_timeout, None, None, None),  # connect, read, write, pool
        )
        exchange = _Exchange(self, request, template, on_response, connect_timeout)
        self._exchanges.add(exchange)
        return exchange

    async def aclose(self) -> None:
        """Give up every request; close the client if it is ours. Repeatable."""
        self._is_closed = True
        exchanges = list(self._exchanges)
        for exchange in exchanges:
            exchange.give_up(TransportClosed("http client is closed"))
        tasks = {exchange.task for exchange in exchanges} - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks)
        if self._owned:
            self._owned = False
            await self._client.aclose()

    def fault(self, error: Exception, where: str, connect_timeout: float) -> Exception:
        """Return what to report for a library's exception: the same kinds as the native client's."""
        library = self._library
        fault: Exception
        if isinstance(error, library.ConnectTimeout):
            fault = RequestTimeout(
                f"connecting to {where} took longer than {connect_timeout:g} s", seconds=connect_timeout
            )
        elif isinstance(error, library.ConnectError):
            fault = ConnectionError(f"cannot connect to {where}: {error}")
        elif isinstance(error, library.InvalidURL):  # it looks at a redirect even if it does not follow it
            fault = ProtocolError(f"answer of {where} is a redirect without a valid location: {error}")
        elif isinstance(error, library.ProxyError):
            fault = ConnectionError(f"cannot connect to {where}: proxy refused: {error}")
        elif isinstance(error, library.RemoteProtocolError) and not _tells_of_a_loss(error):
            fault = ProtocolError(f"answer of {where} is no valid HTTP: {error}")
        elif isinstance(error, library.TransportError):
            fault = ConnectionError(f"connection to {where} was lost: {error}")
        else:
            return error
        fault.__cause__ = error
        return fault


def _tells_of_a_loss(error: Exception) -> bool:
    """httpcore reports a lost connection and a damaged answer by one class; only the text differs."""
    text = str(error).lower()
    return "disconnected" in text or "closed" in text


class _Exchange:
    """One request and its response, in a task of their own, as httpx has no callbacks."""

    def __init__(
        self,
        backend: HTTPXBackend,
        request: Any,
        template: RequestTemplate,
        on_response: OnResponse,
        connect_timeout: float,
    ) -> None:
        self._backend = backend
        self._request = request
        self._where = template.url.netloc
        self._on_response: OnResponse | None = on_response
        self._connect_timeout = connect_timeout
        self._response: ClientResponse | None = None
        self._may_read = asyncio.Event()
        self._may_read.set()
        self.task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_sent(self) -> bool:
        return True  # it cannot be told

    def cancel(self) -> None:
        if self._on_response is not None:
            self._on_response = None
            self.task.cancel()

    def give_up(self, error: Exception) -> None:
        """Stop, and tell whoever waits why."""
        self.task.cancel()
        self._report(None, error)
        if self._response is not None:
            self._response.finish(error)

    # BodySource

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def close_body(self) -> None:
        self.task.cancel()

    def _report(self, response: ClientResponse | None, error: Exception | None) -> None:
        on_response, self._on_response = self._on_response, None
        if on_response is not None:
            on_response(response, error)

    async def _run(self) -> None:
        answer: Any = None
        try:
            answer = await self._backend._client.send(self._request, stream=True, follow_redirects=False)
            fields = [(name.lower(), value) for name, value in answer.headers.raw]
            response = self._response = ClientResponse(answer.status_code, Headers(fields), self)
            self._report(response, None)
            async for piece in answer.aiter_raw():
                response.feed(piece)
                if not self._may_read.is_set():
                    await self._may_read.wait()
            await answer.aclose()  # first, so that the connection is free for what the reader does next
            response.finish()
        except asyncio.CancelledError:
            # Ours, from cancel, close_body or give_up; what waited has been told.
            self._on_response = None
        except Exception as error:
            fault = self._backend.fault(error, self._where, self._connect_timeout)
            if self._response is None:
                self._report(None, fault)
            else:
                self._response.finish(fault)
        finally:
            self._backend._exchanges.discard(self)
            if answer is not None:
                await answer.aclose()
