"""CORS, and what clients without a good token are told."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfast.protocol.bearer import bearer_token, challenge
from mcpfast.server import Principal
from mcpfast.server.app import App
from mcpfast.server.options import ServerOptions
from mcpfast.server.resource_metadata import ResourceMetadata
from mcpfast.server.streamable import StreamableHTTPHandler
from tests.server.streamable_peer import Peer, initialize, make_server

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]

PAGE = "http://localhost:3000"
METADATA = ResourceMetadata(
    resource="https://api.test/mcp",
    authorization_servers=["https://issuer.test"],
    scopes_supported=["read", "write"],
    resource_name="Test",
)


def app(**options: Any) -> App:
    return App(make_server(), ServerOptions(**options))


def handler(**options: Any) -> StreamableHTTPHandler:
    server = make_server()
    return StreamableHTTPHandler(lambda request: server, **options)


# CORS


@pytest.mark.parametrize("make", [app, handler])
async def test_a_preflight_allows_what_clients_send(make: Any) -> None:
    """C062."""
    asked = "content-type, Authorization, mcp-session-id, mcp-method, Mcp-Param-Region, x-other"
    answer = await Peer(make(cors=True, allowed_origins=["http://localhost:*"])).fetch(
        "OPTIONS",
        origin=PAGE,
        access_control_request_method="POST",
        access_control_request_headers=asked,
    )
    headers = answer.exchange.headers
    assert answer.status == 204
    assert headers["access-control-allow-origin"] == PAGE
    assert set(headers["access-control-allow-methods"].split(", ")) == {"GET", "POST", "DELETE"}
    allowed = headers["access-control-allow-headers"].split(", ")
    for name in [*asked.lower().split(", ")[:-1], "mcp-protocol-version", "last-event-id", "mcp-name"]:
        assert name in allowed
    assert "x-other" not in allowed
    assert "origin" in headers["vary"]
    assert "access-control-allow-credentials" not in headers


@pytest.mark.parametrize("make", [app, handler])
async def test_answers_and_errors_can_be_read_by_the_page(make: Any) -> None:
    """C062."""
    client = Peer(make(cors=True, allowed_origins=[PAGE]), origin=PAGE)
    await client.initialize()
    for answer, status in (
        (await client.fetch("POST", initialize(), ("mcp-session-id",)), 200),
        (await client.fetch("POST", b"{"), 400),
        (await client.fetch("POST", client.call("ping"), mcp_session_id="x"), 404),
        (await client.fetch("PUT"), 405),
        (await client.request("say", {"count": 1}).ended(), 200),
        (await client.send("GET").started(), 200),
    ):
        headers = answer.exchange.headers
        assert answer.status == status
        assert headers["access-control-allow-origin"] == PAGE
        exposed = headers["access-control-expose-headers"]
        assert all(n in exposed for n in ("Mcp-Session-Id", "MCP-Protocol-Version", "WWW-Authenticate"))
        assert "origin" in headers["vary"]


async def test_a_401_can_be_read_by_the_page() -> None:
    """C062."""
    client = Peer(handler(cors=True, allowed_origins=[PAGE], authenticate=lambda request: None))
    answer = await client.fetch("POST", initialize(), origin=PAGE)
    assert answer.status == 401
    assert answer.exchange.headers["access-control-allow-origin"] == PAGE


async def test_foreign_pages_get_no_cors_headers() -> None:
    """C062, M26-S-03."""
    client = Peer(handler(cors=True, allowed_origins=[PAGE]))
    for method in ("POST", "OPTIONS"):
        answer = await client.fetch(
            method, initialize(), origin="http://evil.test", access_control_request_method="POST"
        )
        assert answer.status == 403
        assert not any(name.startswith("access-control") for name in answer.exchange.headers)


async def test_without_the_option_and_without_an_origin_there_are_no_cors_headers() -> None:
    for client in (Peer(handler(allowed_origins=[PAGE]), origin=PAGE), Peer(handler(cors=True))):
        answer = await client.fetch("POST", initialize())
        assert not any(name.startswith("access-control") for name in answer.exchange.headers)
    plain = await Peer(handler(allowed_origins=[PAGE])).fetch(
        "OPTIONS", origin=PAGE, access_control_request_method="POST"
    )
    assert plain.status == 405


async def test_streams_are_kept_going_through_the_cors_responder() -> None:
    client = Peer(handler(cors=True, allowed_origins=[PAGE], keepalive_s=0.1), origin=PAGE)
    await client.initialize()
    stream = await client.send("GET").started()
    await stream.exchange.until(lambda: b":" in stream.exchange.body)
    stream.leave()
    assert client.shell.handler.shared.stats.streams == 0  # type: ignore[attr-defined]


# Tokens


def by_token(request: Any) -> Principal | None:
    """Takes tokens that were issued for this server, from the Authorization header only."""
    token = bearer_token(request.headers.find(b"authorization"))
    if token is None or not token.startswith("ours."):
        return None
    return Principal("somebody", scopes=frozenset(token.split(".")[1:]))


@pytest.mark.parametrize("make", [app, handler])
async def test_a_missing_and_an_invalid_token_get_a_challenge(make: Any) -> None:
    """M26-S-64, M26-S-65, M26-S-66, M26-S-67."""
    client = Peer(make(authenticate=by_token, required_scopes=["read"], resource_metadata=METADATA))
    where = 'scope="read", resource_metadata="https://api.test/.well-known/oauth-protected-resource/mcp"'
    for headers, challenge_ in (
        ({}, f"Bearer {where}"),
        ({"authorization": "Bearer theirs.read"}, f'Bearer error="invalid_token", {where}'),
        ({"authorization": "Basic b3Vycy5yZWFk"}, f'Bearer error="invalid_token", {where}'),
    ):
        for method in ("POST", "GET", "DELETE"):
            answer = await client.fetch(method, initialize(), **headers)
            assert answer.status == 401
            assert answer.exchange.headers["www-authenticate"] == challenge_
    client.path = "/mcp?access_token=ours.read"
    assert (await client.fetch("POST", initialize())).status == 401


async def test_a_token_without_the_scopes_gets_403_naming_them() -> None:
    """M26-S-66."""
    client = Peer(handler(authenticate=by_token, required_scopes=["read", "write"]))
    answer = await client.fetch("POST", initialize(), authorization="Bearer ours.read")
    assert answer.status == 403
    assert answer.exchange.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="read write"'
    assert (await client.fetch("POST", initialize(), authorization="Bearer ours.read.write")).status == 200


@pytest.mark.parametrize("path", [METADATA.path, METADATA.path + "/", "/.well-known/oauth-protected-resource"])
async def test_the_metadata_of_the_resource_is_public(path: str) -> None:
    """M26-S-64."""
    client = Peer(app(authenticate=by_token, resource_metadata=METADATA, cors=True), path)
    answer = await client.fetch("GET", origin="http://localhost")
    assert answer.status == 200
    assert answer.exchange.headers["access-control-allow-origin"] == "http://localhost"
    assert answer.json() == {
        "resource": "https://api.test/mcp",
        "authorization_servers": ["https://issuer.test"],
        "scopes_supported": ["read", "write"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Test",
    }
    assert (await client.fetch("POST", initialize())).status == 405


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource": "api.test/mcp"},
        {"resource": "http://api.test/mcp"},
        {"resource": "https://api.test/mcp#x"},
        {"resource": 'https://api.test/"'},
        {"authorization_servers": []},
        {"authorization_servers": "https://issuer.test"},
        {"authorization_servers": ["issuer"]},
        {"scopes_supported": ["a b"]},
        {"scopes_supported": ['a"']},
    ],
)
def test_metadata_that_cannot_be_meant_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"not a|at least one"):
        ResourceMetadata(**{"resource": "https://a.test", "authorization_servers": ["https://b.test"], **wrong})


def test_scopes_without_authentication_are_refused() -> None:
    with pytest.raises(ValueError, match="authenticate"):
        ServerOptions(required_scopes=["read"])
    with pytest.raises(ValueError, match="required_scopes"):
        ServerOptions(required_scopes="read", authenticate=by_token)


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (b"Bearer abc", "abc"),
        (b"bearer  a.b-c_d~e+f/g==", "a.b-c_d~e+f/g=="),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"Bearer a b", None),
        (b"Bearer \xff", None),
        (b"Basic abc", None),
        (b"Bearerabc", None),
        (b"", None),
        (None, None),
    ],
)
def test_a_token_is_read_from_its_header(header: bytes | None, token: str | None) -> None:
    """M26-S-67."""
    assert bearer_token(header) == token


def test_a_challenge_without_anything_is_the_scheme_alone() -> None:
    assert challenge() == b"Bearer"
