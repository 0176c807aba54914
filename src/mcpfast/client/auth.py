"""``auth=``: drives the ``Auth`` objects of httpx and httpx2 over any backend.

Such an object is a generator of requests: it puts its header on ours, looks at the answer, may make
requests of its own (discovery, a token) and then have ours sent again. Those of its own go through the
library it is written for; ours goes where every other goes. The flow has ended by the time an answer's
body is read, so a lock it holds never spans a stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ..errors import ProtocolError
from ..http.client_interface import REFUSAL_BYTES, ClientResponse
from ..http.client_request import RequestTemplate, header_list
from ..http.httpx_backend import library_of
from ..http.interface import HeaderList

__all__ = ["AuthFlow"]

Fetch: TypeAlias = "Callable[[RequestTemplate, HeaderList], Awaitable[ClientResponse]]"

MAX_TRIES = 3
"""How often one request is sent: as it is, after a refresh, after a new login. More is a loop (C064)."""

MAX_OWN_REQUESTS = 20
"""Requests a flow may make of its own for one of ours."""

OWN_REQUEST_TIMEOUT_S = 30.0

# Fields the library adds by itself, or that are the backend's to set.
_NOT_OURS = frozenset(
    [b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"accept-encoding"]
)


class AuthFlow:
    """Runs an auth object's flow around a request.

    Args:
        auth: an instance of ``httpx.Auth`` or ``httpx2.Auth``.

    Raises:
        TypeError: it is neither.
    """

    def __init__(self, auth: Any) -> None:
        library = library_of(auth, "Auth")
        if library is None:
            raise TypeError(f"auth must be an Auth object of httpx or httpx2, not {type(auth).__name__}")
        self._auth = auth
        self._library = library
        self._client: Any = None

    async def run(self, template: RequestTemplate, body: bytes, extra: HeaderList, fetch: Fetch) -> ClientResponse:
        """Return the final answer to the request, with its body still to be read.

        Raises:
            ProtocolError: the flow goes on without end.
            Exception: whatever the flow raises.
        """
        library = self._library
        request = library.Request(
            template.method, template.url.text, headers=list(template.merged(extra)), content=body or None
        )
        ours = request.url
        tries = own = 0
        flow = self._auth.async_auth_flow(request)
        answer: ClientResponse | None = None
        refusal: ClientResponse | None = None
        try:
            request = await flow.__anext__()
            while True:
                if request.url == ours and request.method == template.method:
                    tries += 1
                    if tries > MAX_TRIES and refusal is not None:
                        return refusal  # whatever the flow still hopes for, this is the news
                    if tries > MAX_TRIES:
                        raise ProtocolError(f"auth flow asked for {template.method} {template.url} {tries} times")
                    answer = await fetch(template, _fields_of(request))
                    if answer.status >= 400:
                        refusal, content = await _read(answer)
                        answer = refusal
                    else:
                        refusal, content = None, b""
                    reply = library.Response(answer.status, headers=_plain(answer), content=content, request=request)
                else:
                    own += 1
                    if own > MAX_OWN_REQUESTS:
                        raise ProtocolError(f"auth flow made {own} requests of its own, limit is {MAX_OWN_REQUESTS}")
                    answer = None
                    reply = await self._own_client().send(request)
                try:
                    request = await flow.asend(reply)
                except StopAsyncIteration:
                    break
                if answer is not None and answer is not refusal:  # a refusal is read, and holds nothing
                    answer.discard()
                answer = None
        except BaseException:
            if answer is not None:
                answer.close()
            raise
        finally:
            await flow.aclose()
        answer = answer or refusal  # a flow that failed to get a token ends with that
        if answer is None:
            raise ProtocolError("auth flow ended without sending the request")
        return answer

    def _own_client(self) -> Any:
        if self._client is None:
            self._client = self._library.AsyncClient(follow_redirects=True, timeout=OWN_REQUEST_TIMEOUT_S)
        return self._client

    async def aclose(self) -> None:
        """Close what the flow's own requests used. Repeatable."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _fields_of(request: Any) -> HeaderList:
    return header_list([(name, value) for name, value in request.headers.raw if name.lower() not in _NOT_OURS])


def _plain(answer: ClientResponse) -> list[tuple[bytes, bytes]]:
    """The answer's fields less those about a body's form, as the body given is plain, or none."""
    dropped = (b"content-length", b"content-encoding", b"transfer-encoding")
    return [field for field in answer.headers.raw if field[0] not in dropped]


class _Replay:
    """Source of a body that is here already."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close_body(self) -> None: ...


async def _read(answer: ClientResponse) -> tuple[ClientResponse, bytes]:
    """Read a refusal for the flow, and return it in a form that can be read again."""
    content = await answer.read(REFUSAL_BYTES, truncate=True)
    again = ClientResponse(answer.status, answer.headers, _Replay())
    again.feed(content)
    again.finish()
    return again, content
