"""Joins a client to a handler in memory: a client backend on top of the in-memory shell."""

from __future__ import annotations

import asyncio

from mcpfast.errors import TransportClosed
from mcpfast.http.client_interface import ClientResponse, OnResponse
from mcpfast.http.client_request import RequestTemplate
from mcpfast.http.interface import Handler, HeaderList, Headers
from tests.support.memory import MemoryShell

__all__ = ["MemoryBackend"]

NO_BODY = (204, 304)


class MemoryBackend:
    """Carries requests to ``handler``. What a shell adds (framing fields) is not there to be seen."""

    def __init__(self, handler: Handler) -> None:
        self.shell = MemoryShell(handler)
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
        if self._is_closed:
            raise TransportClosed("http client is closed")
        exchange = _Exchange(self, template, on_response, body, extra)
        self._exchanges.add(exchange)
        return exchange

    async def aclose(self) -> None:
        self._is_closed = True
        exchanges = list(self._exchanges)
        for exchange in exchanges:
            exchange.give_up(TransportClosed("http client is closed"))
        tasks = {exchange.task for exchange in exchanges}
        if tasks:
            await asyncio.wait(tasks)
        await self.shell.aclose()


class _Exchange:
    def __init__(
        self,
        backend: MemoryBackend,
        template: RequestTemplate,
        on_response: OnResponse,
        body: bytes,
        extra: HeaderList,
    ) -> None:
        self._backend = backend
        self._on_response: OnResponse | None = on_response
        self._response: ClientResponse | None = None
        self._may_read = asyncio.Event()
        self._may_read.set()
        self.task = asyncio.get_running_loop().create_task(self._run(template, body, extra))

    @property
    def is_sent(self) -> bool:
        return True

    def cancel(self) -> None:
        if self._on_response is not None:
            self._on_response = None
            self.task.cancel()

    def give_up(self, error: Exception) -> None:
        self.task.cancel()
        self._report(None, error)
        if self._response is not None:
            self._response.finish(error)

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

    async def _run(self, template: RequestTemplate, body: bytes, extra: HeaderList) -> None:
        fields = [(b"host", template.url.netloc.encode()), *template.merged(extra)]
        inner = self._backend.shell.request(template.method, template.url.target, fields, body)
        try:
            while inner.status is None and not inner.is_disconnected:
                inner._changed.clear()
                await inner._changed.wait()
            if inner.status is None:
                self._report(None, ConnectionError(f"connection to {template.url.netloc} was lost before its answer"))
                return
            response = self._response = ClientResponse(inner.status, Headers(list(inner.header_list)), self)
            self._report(response, None)
            sent = 0
            while True:
                while sent < len(inner.pieces) and self._may_read.is_set():
                    response.feed(inner.pieces[sent])
                    sent += 1
                if not self._may_read.is_set():
                    await self._may_read.wait()
                elif inner.is_ended:
                    response.finish()
                    return
                elif inner.is_disconnected:
                    response.finish(ConnectionError(f"connection to {template.url.netloc} was lost in mid-answer"))
                    return
                else:
                    inner._changed.clear()
                    await inner._changed.wait()
        except asyncio.CancelledError:
            self._on_response = None
        finally:
            self._backend._exchanges.discard(self)
            inner.disconnect()
