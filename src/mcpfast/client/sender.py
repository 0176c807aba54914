"""Requests as a transport makes them: the user's headers and auth put on, redirects followed.

The common case (fixed headers, or a plain function for them) goes from call to socket without a task.
An async ``header_func`` or an ``auth`` object needs one for the time until the answer begins.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ..errors import AuthorizationRequired, HTTPStatusError, MethodNotAllowed, ProtocolError, RPCError, TransportClosed
from ..http.backends import choose_backend
from ..http.client_interface import (
    MAX_REDIRECTS,
    Backend,
    ClientResponse,
    Exchange,
    OnResponse,
    fetch,
    redirect_target,
)
from ..http.client_request import URL, HeadersInput, RequestTemplate, header_list
from ..http.interface import HeaderList
from ..jsonrpc import UNSET, ErrorResponse, RequestId, decode_message
from ..protocol.headers import is_json
from .auth import AuthFlow

__all__ = ["Attempt", "HeaderFunc", "Sender"]

HeaderFunc: TypeAlias = "Callable[[], HeadersInput | Awaitable[HeadersInput | None] | None]"
"""Gives headers for one request; runs in the context of the call that needs them."""


class Sender:
    """Makes requests with a user's options.

    Args:
        url: the address the transport was given; decides whether a proxy is used, and a user name and
            password in it become the ``Authorization`` of every request.
        http_client: see :func:`~mcpfast.http.backends.choose_backend`.
        headers: for every request.
        header_func: see :data:`HeaderFunc`; wins over ``headers``.
        auth: an ``Auth`` object of httpx or httpx2.
        connect_timeout: seconds for a new connection.
    """

    def __init__(
        self,
        url: URL,
        *,
        http_client: Any,
        headers: HeadersInput | None,
        header_func: HeaderFunc | None,
        auth: Any,
        connect_timeout: float,
    ) -> None:
        self._url = url
        self._http_client = http_client
        self._headers = header_list(headers)
        if url.authorization is not None:
            self._headers.insert(0, (b"authorization", url.authorization))
        self._header_func = header_func
        self._flow = None if auth is None else AuthFlow(auth)
        self.auth = auth
        self._connect_timeout = connect_timeout
        self._backend: Backend | None = None
        self._owns_backend = False
        if http_client is not None:
            self._choose()  # refuses a wrong one now

    def _choose(self) -> Backend:
        self._backend, self._owns_backend = choose_backend(self._url, self._http_client)
        return self._backend

    @property
    def backend(self) -> Backend:
        """What carries the requests."""
        return self._backend or self._choose()

    def template(self, method: str, url: URL, fields: HeadersInput) -> RequestTemplate:
        """Return the fixed part of a request: ``fields``, over which the user's headers win."""
        return RequestTemplate(method, url, [*header_list(fields), *self._headers])

    def start(
        self,
        template: RequestTemplate,
        on_response: OnResponse,
        body: bytes = b"",
        extra: HeaderList = (),
        *,
        urgent: bool = False,
    ) -> Attempt:
        """Send a request; as :meth:`Backend.start`, except that redirects are followed.

        Raises:
            ValueError, TypeError: ``header_func`` gave no valid headers. Likewise whatever it raises.
        """
        attempt = Attempt(self, template, on_response, body, urgent)
        if self._header_func is None and self._flow is None:
            attempt.start(extra)
            return attempt
        dynamic: Any = None if self._header_func is None else self._header_func()
        if self._flow is not None or inspect.isawaitable(dynamic):
            attempt.run(dynamic, extra)
        else:
            attempt.start([*header_list(dynamic), *extra] if dynamic else extra)
        return attempt

    def send(
        self,
        template: RequestTemplate,
        on_response: OnResponse,
        body: bytes,
        extra: HeaderList,
        *,
        urgent: bool,
    ) -> Attempt | Exchange:
        """As :meth:`start`, in the least time: an answer that is a redirect is for the caller to :meth:`follow`."""
        if self._header_func is None and self._flow is None:
            backend = self._backend or self._choose()
            timeout = self._connect_timeout
            return backend.start(template, on_response, body, extra, connect_timeout=timeout, urgent=urgent)
        return self.start(template, on_response, body, extra, urgent=urgent)

    def follow(
        self,
        template: RequestTemplate,
        response: ClientResponse,
        on_response: OnResponse,
        body: bytes,
        extra: HeaderList,
    ) -> Attempt:
        """Go where a redirect leads; one that leads nowhere we may go is the answer, or an error."""
        attempt = Attempt(self, template, on_response, body, False)
        attempt.redirect(response, extra)
        return attempt

    async def aclose(self) -> None:
        """Close the backend if it is ours. Repeatable."""
        if self._flow is not None:
            await self._flow.aclose()
        if self._backend is not None and self._owns_backend:
            await self._backend.aclose()

    def refused(
        self, template: RequestTemplate, response: ClientResponse, body: bytes, request_id: RequestId | None = None
    ) -> Exception:
        """Return the error for an answer that is no success, with the start of its body.

        Args:
            request_id: of the JSON-RPC request that was refused, if it was one: the body may be the
                JSON-RPC error that answers it.
        """
        status = response.status
        what = f"{template.method} {template.url}"
        if status in (401, 403):
            challenge = response.headers.get("www-authenticate")
            return AuthorizationRequired(status, body, what=what, auth=self.auth, challenge=challenge)
        if status == 405 and template.method == "GET":
            return MethodNotAllowed(body, what=what)
        error = HTTPStatusError(status, body, what=what)
        if request_id is not None and is_json(response.headers.find(b"content-type")):
            answer = _error_response(body)
            # Its id may be null, where the server could not read or would not name it.
            if answer is not None and answer.id in (None, request_id):
                rpc_error = RPCError(answer.code, answer.message, None if answer.data is UNSET else answer.data)
                rpc_error.__cause__ = error
                return rpc_error
        return error


def _error_response(body: bytes) -> ErrorResponse | None:
    try:
        message = decode_message(body)
    except ProtocolError:
        return None
    return message if isinstance(message, ErrorResponse) else None


class Attempt:
    """One request from first try to final answer; the :class:`Exchange` its caller holds."""

    __slots__ = ("_body", "_exchange", "_extra", "_hops", "_on_response", "_sender", "_task", "_template", "_urgent")

    def __init__(
        self, sender: Sender, template: RequestTemplate, on_response: OnResponse, body: bytes, urgent: bool
    ) -> None:
        self._sender = sender
        self._template = template
        self._on_response: OnResponse | None = on_response
        self._body = body
        self._extra: HeaderList = ()
        self._urgent = urgent
        self._hops = 0
        self._exchange: Exchange | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> URL:
        """Where the last request went: after redirects, where the answer came from."""
        return self._template.url

    @property
    def is_sent(self) -> bool:
        """Something of it may have reached the server."""
        return self._task is not None or (self._exchange is not None and self._exchange.is_sent)

    def start(self, extra: HeaderList) -> None:
        self._extra = extra
        sender = self._sender
        self._exchange = sender.backend.start(
            self._template,
            self._respond,
            self._body,
            extra,
            connect_timeout=sender._connect_timeout,
            urgent=self._urgent,
        )

    def cancel(self) -> None:
        self._on_response = None
        if self._exchange is not None:
            self._exchange.cancel()
        if self._task is not None:
            self._task.cancel()

    def redirect(self, response: ClientResponse, extra: HeaderList) -> None:
        """Begin with the answer to a first try."""
        self._extra = extra
        self._respond(response, None)

    def _respond(self, response: ClientResponse | None, error: Exception | None) -> None:
        if response is not None and 300 <= response.status < 400:
            try:
                target = self._redirected(response)
                if target is not None:
                    self._template = target
                    self.start(self._extra)
                    return
            except (HTTPStatusError, TransportClosed) as fault:
                response, error = None, fault
        self._finish(response, error)

    def _redirected(self, response: ClientResponse) -> RequestTemplate | None:
        url = redirect_target(self._template, response)
        if url is None:
            return None
        self._hops += 1
        if self._hops > MAX_REDIRECTS:
            raise HTTPStatusError(
                response.status, what=f"{self._template.method} {self._template.url} (redirect {self._hops} in a row)"
            )
        return self._template.at(url)

    def _finish(self, response: ClientResponse | None, error: Exception | None) -> None:
        on_response, self._on_response = self._on_response, None
        if on_response is None:
            if response is not None:
                response.close()
        else:
            on_response(response, error)

    # With an async header_func, or auth

    def run(self, dynamic: Any, extra: HeaderList) -> None:
        """Do it in a task, which ends when the answer begins."""
        self._task = asyncio.get_running_loop().create_task(self._run(dynamic, extra))

    async def _run(self, dynamic: Any, extra: HeaderList) -> None:
        try:
            if inspect.isawaitable(dynamic):
                dynamic = await dynamic
            self._extra = [*header_list(dynamic), *extra] if dynamic else extra
            flow = self._sender._flow
            if flow is None:
                response = await self._fetch(self._template, self._extra)
            else:
                response = await flow.run(self._template, self._body, self._extra, self._fetch)
        except Exception as error:
            self._finish(None, error)
        else:
            self._finish(response, None)

    async def _fetch(self, template: RequestTemplate, extra: HeaderList) -> ClientResponse:
        """Send it once, and again wherever a redirect leads."""
        sender = self._sender
        while True:
            response = await fetch(
                sender.backend,
                template,
                self._body,
                extra,
                connect_timeout=sender._connect_timeout,
                urgent=self._urgent,
            )
            if not 300 <= response.status < 400:
                return response
            self._template = template
            target = self._redirected(response)
            if target is None:
                return response
            self._template = template = target
