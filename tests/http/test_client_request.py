"""Addresses and headers of the client: what is taken, what is refused, what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfast.http.client_request import URL, RequestTemplate, header_list


@pytest.mark.parametrize(
    ("text", "netloc", "target"),
    [
        ("http://example.com", "example.com", "/"),
        ("http://example.com:80/a", "example.com", "/a"),
        ("https://example.com:443/a", "example.com", "/a"),
        ("https://example.com:8443/a?b=c&d", "example.com:8443", "/a?b=c&d"),
        ("HTTP://EXAMPLE.com/Path", "example.com", "/Path"),
        ("http://example.com?q=1", "example.com", "/?q=1"),
        ("http://example.com/a#fragment", "example.com", "/a"),
        ("http://example.com/mcp/", "example.com", "/mcp/"),
        ("http://example.com/mcp?", "example.com", "/mcp?"),
        ("http://example.com/mcp#a?b", "example.com", "/mcp"),
        ("http://example.com/a%20b/é", "example.com", "/a%20b/%C3%A9"),
        ("http://example.com/?q=é", "example.com", "/?q=%C3%A9"),
        ("http://[::1]:8000/x", "[::1]:8000", "/x"),
        ("http://[2001:DB8::1]/", "[2001:db8::1]", "/"),
        ("http://bücher.example/", "xn--bcher-kva.example", "/"),
        ("http://user:pa%3Ass@example.com/x", "example.com", "/x"),
        ("http://a_b.example/", "a_b.example", "/"),
    ],
)
def test_an_address_is_taken_apart(text: str, netloc: str, target: str) -> None:
    """C079: the path is used exactly as given, with or without a slash at its end."""
    url = URL(text)
    assert (url.netloc, url.target) == (netloc, target)
    assert url.text == f"{url.scheme}://{netloc}{target}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com/mcp",
        "/mcp",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://",
        "http:///path",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:port/",
        "http://exa mple.com/",
        "http://example.com/a b",
        "http://example.com/\r\nx: y",
        "http://example.com/\nx",
        "http://example.com/\0",
        "http://example.com/\x7f",
        "http://exam\tple.com/",
        "http://[::1/",
        "http://[not-ipv6]/",
        "http://[fe80::1%25eth0]/",
        "http://ex<am>ple.com/",
        " http://example.com/",
        "http://example.com\\@evil.test/",
    ],
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        URL(text)


def test_an_address_shows_neither_query_nor_password() -> None:
    url = URL("https://user:secret1@example.com/sse?token=secret2")
    assert str(url) == "https://example.com/sse"
    for shown in (str(url), repr(url), repr(RequestTemplate("GET", url))):
        assert "secret" not in shown
        assert "user" not in shown


def test_a_user_name_and_password_become_an_authorization_value() -> None:
    assert URL("http://us%40er:p%3Ass@example.com/").authorization == b"Basic dXNAZXI6cDpzcw=="
    assert URL("http://example.com/").authorization is None


@pytest.mark.parametrize(
    ("there", "follows"),
    [
        ("http://a.test/x", True),
        ("http://a.test:80/x", True),
        ("https://a.test/x", True),
        ("http://a.test:81/x", False),
        ("https://a.test:8443/x", False),
        ("http://b.test/x", False),
        ("https://b.test/x", False),
        ("http://a.test.b.test/x", False),
    ],
)
def test_a_redirect_may_stay_on_its_origin_or_become_safer(there: str, follows: bool) -> None:
    """C066"""
    assert URL("http://a.test/y").may_redirect_to(URL(there)) is follows


def test_a_redirect_may_not_become_less_safe() -> None:
    assert not URL("https://a.test/").may_redirect_to(URL("http://a.test/"))
    assert not URL("http://a.test:8080/").may_redirect_to(URL("https://a.test/"))


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "a\r\nX-B: b"},
        {"X-A": "a\nb"},
        {"X-A": "a\rb"},
        {"X-A": "a\0b"},
        {"X-A": "a\x01"},
        {"X-A": "a\x7f"},
        {"X-A\r\nX-B": "a"},
        {"X A": "a"},
        {"X:A": "a"},
        {"": "a"},
        {"X-É": "a"},
        {"Content-Length": "5"},
        {"transfer-encoding": "chunked"},
        {"Connection": "close"},
        {"Expect": "100-continue"},
        [(b"x-a", b"a\nb")],
    ],
)
def test_a_header_that_would_change_the_request_is_refused(headers: Any) -> None:
    with pytest.raises(ValueError, match="header"):
        header_list(headers)
    with pytest.raises(ValueError, match="header"):
        RequestTemplate("GET", URL("http://a.test/"), headers)


def test_a_refusal_does_not_show_the_value() -> None:
    with pytest.raises(ValueError, match="'authorization' holds a control character") as caught:
        header_list({"Authorization": "Bearer secret\n"[:-1] + "\r\n"[0] + "x"})
    assert "secret" not in str(caught.value)


def test_headers_that_are_no_text_are_a_type_error() -> None:
    wrong: Any = {"X-A": 1}
    with pytest.raises(TypeError, match="int"):
        header_list(wrong)


def test_headers_are_taken_as_mapping_or_pairs_of_text_or_bytes() -> None:
    assert header_list({"X-A": " a ", "X-B": "é"}) == [(b"x-a", b"a"), (b"x-b", "é".encode())]
    assert header_list([("X-A", "1"), (b"X-A", b"2")]) == [(b"x-a", b"1"), (b"x-a", b"2")]
    assert header_list(None) == []


def test_a_head_holds_each_field_once_and_the_callers_wins() -> None:
    template = RequestTemplate("POST", URL("http://a.test/x?y"), {"Accept": "a", "X-B": "1"})
    assert template.head() == (
        b"POST /x?y HTTP/1.1\r\nhost: a.test\r\naccept-encoding: identity\r\naccept: a\r\nx-b: 1\r\n"
        b"user-agent: mcpfast\r\n"
    )
    assert template.head([(b"x-b", b"2"), (b"x-c", b"3")]) == (
        b"POST /x?y HTTP/1.1\r\nhost: a.test\r\naccept-encoding: identity\r\naccept: a\r\nx-b: 2\r\nx-c: 3\r\n"
        b"user-agent: mcpfast\r\n"
    )
    named = template.head([(b"user-agent", b"mine"), (b"host", b"b.test")])
    assert (named.count(b"user-agent: "), named.count(b"host: ")) == (1, 1)
    assert b"user-agent: mine\r\n" in named
    assert b"host: other\r\n" in RequestTemplate("GET", URL("http://a.test/"), {"Host": "other"}).head()
    assert b"a.test" not in RequestTemplate("GET", URL("http://a.test/"), {"Host": "other"}).head()


def test_a_redirected_request_keeps_its_headers_but_for_the_host() -> None:
    template = RequestTemplate("POST", URL("http://a.test/x"), {"X-B": "1"})
    assert template.at(URL("https://a.test/y")).head() == (
        b"POST /y HTTP/1.1\r\nhost: a.test\r\naccept-encoding: identity\r\nx-b: 1\r\nuser-agent: mcpfast\r\n"
    )
