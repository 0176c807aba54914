"""Which transport and which revision a server speaks: the newest first, and what the answers mean.

::

    server/discover ──> 2026-07-28
          │ a refusal that only an older server gives, or a list of older revisions
          v
    initialize ───────> 2025-03-26 to 2025-11-25
          │ 400, 404, 405 and the like
          v
    GET, expecting an ``endpoint`` event ──> HTTP+SSE

An outage, a time-out, a server that wants authorization or is busy is none of these: it is raised.

Source: MCP 2026-07-28, basic/transports/streamable-http §Backward Compatibility and §HTTP+SSE Transport,
basic/versioning (M26-C-14, M26-C-24 to M26-C-26); MCP 2025-11-25 and 2025-06-18, basic/transports §Backwards
Compatibility (L25-C-14, L06-C-02).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..errors import (
    AuthorizationRequired,
    EndpointMissing,
    HTTPStatusError,
    MCPFastError,
    ProtocolError,
    RPCError,
    UnexpectedContentType,
)
from ..http.client_request import URL
from ..jsonrpc import HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_VERSION
from ..protocol.revisions import HTTP_SSE, LATEST, LEGACY, MODERN, REVISIONS
from .client import Client

__all__ = ["Plan", "forget_all", "reach"]

MAX_REMEMBERED = 1000

# Statuses that say nothing of the server's age: it wants something of us, or cannot answer now.
_NOT_OF_AGE = frozenset({401, 402, 403, 407, 408, 409, 421, 423, 424, 425, 428, 429, 431, 451})

# By endpoint, oldest first: "legacy" or "sse" (what is newer is tried first anyway), and who answered.
_remembered: dict[str, tuple[str, Any]] = {}


@dataclass
class Plan:
    """What is known before the server is asked.

    Attributes:
        url: of the endpoint.
        streamable, sse: open a client of that transport, not yet initialized; None if it is ruled out.
        protocol_version: fixed by the user, or None.
        handshake: arguments for ``initialize`` and ``discover``.
    """

    url: URL
    streamable: Callable[[], Awaitable[Client]] | None
    sse: Callable[[], Awaitable[Client]] | None
    protocol_version: str | None
    handshake: dict[str, Any]


def forget_all() -> None:
    """Forget what earlier connections in this process have found out."""
    _remembered.clear()


async def reach(plan: Plan) -> Client:
    """Return a client that has shaken hands with the server.

    Raises:
        MCPFastError, ConnectionError: the server cannot be reached, or speaks nothing that we do.
    """
    version = plan.protocol_version
    if plan.streamable is None or (plan.sse is not None and version == HTTP_SSE.version):
        return await _over_sse(plan)
    endpoint = plan.url.origin + plan.url.path
    if plan.sse is not None and version is None and endpoint in _remembered:
        known, who = _remembered[endpoint]
        try:
            client = await (_over_sse(plan) if known == "sse" else _by_initialize(plan))
        except (MCPFastError, OSError) as error:
            if not _may_be_of_age(error):
                raise
        else:
            if _identity(client) == who:
                return client
            await client.close()
        _remembered.pop(endpoint, None)  # it is another server now: look again
    try:
        client = await _over_streamable(plan)
    except (RPCError, HTTPStatusError, ProtocolError) as error:
        if plan.sse is None or version in MODERN or not _may_be_http_sse(error):
            raise
        client = await _over_sse_instead(plan, error)
        _remember(endpoint, "sse", client)
    else:
        if client.protocol_version in LEGACY:
            _remember(endpoint, "legacy", client)
    return client


def _remember(endpoint: str, what: str, client: Client) -> None:
    while len(_remembered) >= MAX_REMEMBERED:
        del _remembered[next(iter(_remembered))]
    _remembered[endpoint] = (what, _identity(client))


def _identity(client: Client) -> Any:
    """Return what tells a server from a newer one that took its place and still answers to ``initialize``."""
    return client.server_info, client.server_capabilities


# The ways


async def _over_streamable(plan: Plan) -> Client:
    assert plan.streamable is not None
    client = await plan.streamable()
    try:
        asked = plan.protocol_version
        if asked is None or asked in MODERN:
            asked = await _discover(client, asked, plan.handshake)
            if asked in MODERN:
                return client
        await client.initialize(protocol_version=asked, **plan.handshake)
    except BaseException:
        await client.close()
        raise
    return client


async def _by_initialize(plan: Plan) -> Client:
    assert plan.streamable is not None
    client = await plan.streamable()
    try:
        await client.initialize(protocol_version=plan.protocol_version, **plan.handshake)
    except BaseException:
        await client.close()
        raise
    return client


async def _over_sse(plan: Plan) -> Client:
    assert plan.sse is not None
    client = await plan.sse()
    try:
        await client.initialize(protocol_version=plan.protocol_version, **plan.handshake)
    except BaseException:
        await client.close()
        raise
    return client


async def _over_sse_instead(plan: Plan, refusal: Exception) -> Client:
    """Try HTTP+SSE where ``initialize`` was refused; a GET that is refused too makes that the news."""
    try:
        return await _over_sse(plan)
    except (AuthorizationRequired, EndpointMissing):
        raise
    except (HTTPStatusError, UnexpectedContentType) as error:
        raise refusal from error


async def _discover(client: Client, fixed: str | None, handshake: dict[str, Any]) -> str | None:
    """Ask a server what it speaks.

    Returns:
        The revision to go on with: one without sessions is spoken already, one with sessions is to be asked for in
        ``initialize``; None: the server is an older one, ask for the latest.

    Raises:
        RPCError, HTTPStatusError, ...: the server is not an older one, and yet cannot be spoken to.
    """
    version = LATEST if fixed is None else fixed
    try:
        result = await client.discover(protocol_version=version, **handshake)
    except RPCError as error:
        if fixed is not None and error.code == METHOD_NOT_FOUND:
            client.speak(version, **handshake)  # as told; the server only does not say what it is
            return version
        if fixed is not None or not _is_older(error):
            raise
        return _common(error.data.get("supported"), error) if error.code == UNSUPPORTED_VERSION else None
    except HTTPStatusError as error:
        if fixed is not None or not 400 <= error.status < 500 or error.status in _NOT_OF_AGE:
            raise
        return None
    except ProtocolError:
        # Such as a server that takes any POST with 202. If it is no server of ours, initialize will tell.
        if fixed is not None:
            raise
        return None
    supported = result["supportedVersions"]
    if version in supported:
        return version
    if fixed is not None:
        raise ProtocolError(f"server does not serve protocol version {version}")
    return _common(supported, None)


def _is_older(error: RPCError) -> bool:
    """Tell whether an error may come from a server that does not know ``server/discover``.

    The codes that only 2026-07-28 has are another matter (M26-C-24), unless the server names revisions to choose from.
    """
    if error.code == UNSUPPORTED_VERSION:
        return isinstance(error.data, dict) and isinstance(error.data.get("supported"), list)
    if error.code in (HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY):
        return False
    status = _status_of(error)
    return status is None or (400 <= status < 500 and status not in _NOT_OF_AGE)


def _common(supported: list[Any], cause: Exception | None) -> str:
    """Return the newest revision with sessions among those that a server lists (M26-C-14).

    Raises:
        ProtocolError: there is none.
    """
    for version in reversed(LEGACY):
        if version in supported:
            return version
    names = ", ".join(str(version)[:20] for version in supported[:20])
    raise ProtocolError(
        f"server serves protocol versions {names or 'none'}, this client {', '.join(REVISIONS)}"
    ) from cause


# What errors mean


def _status_of(error: BaseException) -> int | None:
    """Return the status behind an error, where there was one."""
    if isinstance(error, HTTPStatusError):
        return error.status
    if isinstance(error, RPCError) and isinstance(error.__cause__, HTTPStatusError):
        return error.__cause__.status
    return None


def _may_be_http_sse(error: Exception) -> bool:
    """Tell whether the refusal of ``initialize`` leaves HTTP+SSE possible (L25-C-14, C048)."""
    if isinstance(error, RPCError) and error.code in (HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_VERSION):
        return False
    status = _status_of(error)
    return status is not None and 400 <= status < 500 and status not in _NOT_OF_AGE


def _may_be_of_age(error: Exception) -> bool:
    """Tell whether what was found out earlier may hold no longer, judging by how it failed now."""
    status = _status_of(error)
    if status is not None:
        return 400 <= status < 500 and status not in _NOT_OF_AGE
    return isinstance(error, (RPCError, EndpointMissing, UnexpectedContentType, ProtocolError))
