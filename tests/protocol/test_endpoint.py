"""The endpoint URI: A8, A14, C023, C024, H24-C-02, H24-S-06."""

from __future__ import annotations

import pytest

from mcpfast.errors import EndpointMissing
from mcpfast.protocol.endpoint import Origin, build_endpoint, origin_of, resolve_endpoint

BASE = "http://h:8000/mcp/sse"


@pytest.mark.parametrize(
    ("data", "url"),
    [
        ("/messages/?session_id=1", "http://h:8000/messages/?session_id=1"),
        ("messages/?session_id=1", "http://h:8000/mcp/messages/?session_id=1"),
        ("?session_id=1", "http://h:8000/mcp/sse?session_id=1"),
        ("http://h:8000/x/messages?s=1", "http://h:8000/x/messages?s=1"),
        ("HTTP://H:8000/x", "http://H:8000/x"),
        ("//h:8000/y", "http://h:8000/y"),
        ("../up?s=1", "http://h:8000/up?s=1"),
        ("/a%2Fb?s=%20", "http://h:8000/a%2Fb?s=%20"),
        ("/caf\u00e9", "http://h:8000/caf%C3%A9"),
        ("/x#part", "http://h:8000/x"),
    ],
)
def test_endpoint_is_resolved_as_rfc_3986_says(data: str, url: str) -> None:
    """C023: no guessing and no rewriting by the client."""
    assert resolve_endpoint(BASE, data) == url


@pytest.mark.parametrize(
    "data",
    [
        "http://localhost:9/messages?s=1",
        "https://h:8000/messages",
        "http://h/messages",
        "http://h.evil:8000/",
        "//evil/x",
        "http://user:pw@h:8000/x",
        "http://h:8000@evil/x",
        "ftp://h:8000/x",
        "javascript:alert(1)",
        "http://h:99999/x",
        "http://[::1/x",
        "",
        "/a b",
        "/a\tb",
        "/\\evil",
        "/a\nb",
        "/a\x00b",
        "/" + "a" * 9000,
        "/\ud800",
    ],
)
def test_endpoint_of_another_origin_or_no_uri_is_refused(data: str) -> None:
    """C024, A14, H24-C-02."""
    with pytest.raises(EndpointMissing):
        resolve_endpoint(BASE, data)


def test_refusal_of_another_origin_names_both_and_no_query() -> None:
    """C024: both origins stand in the message; a query may hold a secret and does not."""
    with pytest.raises(EndpointMissing) as caught:
        resolve_endpoint("http://127.0.0.1:8001/sse", "http://localhost:9/messages?s=secret")
    assert "http://127.0.0.1:8001" in str(caught.value)
    assert "http://localhost:9" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_default_ports_and_case_of_the_host_do_not_make_another_origin() -> None:
    assert resolve_endpoint("https://Api.Test/sse", "https://api.test:443/m") == "https://api.test:443/m"
    assert origin_of("http://[::1]:80/x") == Origin("http", "::1", 80)
    assert str(origin_of("http://[::1]:81/x")) == "http://[::1]:81"


@pytest.mark.parametrize(
    ("path", "root", "uri"),
    [
        ("/sse", "", "/sse?sessionid=s"),
        ("/sse", "/api/v1", "/api/v1/sse?sessionid=s"),
        ("/sse", "/api/", "/api/sse?sessionid=s"),
        ("//evil.test/sse", "", "/evil.test/sse?sessionid=s"),
        ("/a b?c#d%2F", "", "/a%20b%3Fc%23d%252F?sessionid=s"),
        ("/caf\u00e9", "", "/caf%C3%A9?sessionid=s"),
    ],
)
def test_built_endpoint_is_the_request_path_with_the_session_in_its_query(path: str, root: str, uri: str) -> None:
    """A8, H24-S-06; a path with two slashes must not name another host."""
    assert build_endpoint(path, "s", root) == uri
    assert resolve_endpoint("http://h:1/other", uri) == "http://h:1" + uri
