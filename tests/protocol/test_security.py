"""Origin and Host: C061, H24-S-01, M26-S-02, M26-S-03."""

from __future__ import annotations

import pytest

from mcpfast.protocol.security import LOCAL_HOSTS, OriginAndHost, is_loopback

LISTED = OriginAndHost(["api.test", "localhost:*"], ["http://localhost:5173"])


def status(check: OriginAndHost, host: bytes | None, origin: bytes | None = None, scheme: str = "http") -> int:
    answers = set()
    for _ in range(2):  # the second time from what is remembered
        refusal = check.check(scheme, host, origin)
        answers.add(200 if refusal is None else refusal.status)
    assert len(answers) == 1
    return answers.pop()


@pytest.mark.parametrize("host", [b"api.test", b"API.TEST", b"localhost:8123", b"localhost", b"LocalHost:1"])
def test_listed_hosts_pass_in_any_case(host: bytes) -> None:
    """C061; ``name:*`` takes the bare name too."""
    assert status(LISTED, host) == 200


@pytest.mark.parametrize(
    "host",
    [b"evil.test", b"api.test.evil.test", b"api.test:8000", b"", None, b"localhost:", b"localhost:x", b"xlocalhost:1"],
)
def test_other_hosts_are_refused_by_name(host: bytes | None) -> None:
    """C061: the body names the refused value and the setting."""
    assert status(LISTED, host) == 421
    refusal = LISTED.check("http", host, None)
    assert refusal is not None
    assert (host or b"").decode() in refusal.message
    assert "allowed_hosts" in refusal.message


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, 200),
        (b"http://localhost:5173", 200),
        (b"HTTP://LOCALHOST:5173", 200),
        (b"http://api.test", 200),
        (b"https://api.test", 200),
        (b"https://api.test:443", 200),
        (b"http://api.test:80", 200),
        (b"http://api.test:8080", 403),
        (b"http://localhost:5174", 403),
        (b"http://evil.test", 403),
        (b"http://api.test.evil.test", 403),
        (b"null", 403),
        (b"", 403),
        (b"api.test", 403),
        (b"ftp://api.test", 403),
        (b"http://evil@api.test", 403),
        (b"http://api.test/", 403),
        (b"http://", 403),
    ],
)
def test_origin_must_be_the_host_or_listed(origin: bytes | None, expected: int) -> None:
    """C061, M26-S-03: 403, and no Origin passes."""
    assert status(LISTED, b"api.test", origin) == expected


def test_origin_refusal_names_value_and_setting_escaped() -> None:
    refusal = LISTED.check("http", b"api.test", b"http://evil.test\x1b")
    assert refusal is not None
    assert "'http://evil.test\\x1b'" in refusal.message
    assert "allowed_origins" in refusal.message


def test_plain_http_page_may_not_reach_a_server_that_ends_tls_itself() -> None:
    check = OriginAndHost()
    assert status(check, b"api.test", b"https://api.test", "https") == 200
    assert status(check, b"api.test", b"http://api.test", "https") == 403


def test_a_page_of_another_port_of_localhost_is_foreign() -> None:
    assert status(OriginAndHost(LOCAL_HOSTS), b"localhost:8000", b"http://localhost:5173") == 403
    assert status(OriginAndHost(LOCAL_HOSTS), b"localhost:8000", b"http://localhost:8000") == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (b"localhost:8000", 200),
        (b"127.0.0.1:8000", 200),
        (b"[::1]:8000", 200),
        (b"[::1]", 200),
        (b"127.0.0.1", 200),
        (b"rebound.evil:8000", 421),
        (b"127.0.0.1.nip.io:8000", 421),
        (b"::1", 421),
        (b"[::2]:8000", 421),
        (None, 421),
    ],
)
def test_rebinding_is_caught_by_the_host_of_a_loopback_server(host: bytes | None, expected: int) -> None:
    assert status(OriginAndHost(LOCAL_HOSTS), host) == expected


def test_without_allowed_hosts_any_host_passes_and_origin_is_still_checked() -> None:
    assert status(OriginAndHost(), b"anything.test") == 200
    assert status(OriginAndHost(), b"anything.test", b"http://evil.test") == 403
    assert status(OriginAndHost(), None, b"http://evil.test") == 403


def test_star_takes_all() -> None:
    assert status(OriginAndHost(["*"], ["*"]), b"x", b"null") == 200


def test_port_wildcard_of_an_origin_is_no_prefix_match() -> None:
    check = OriginAndHost(None, ["http://localhost:*"])
    assert status(check, b"h", b"http://localhost") == 200
    assert status(check, b"h", b"http://localhost:99") == 200
    assert status(check, b"h", b"http://localhost:9@evil") == 403
    assert status(check, b"h", b"https://localhost:99") == 403


def test_empty_list_warns_loudly() -> None:
    """C061: a server that refuses everybody says so at start-up."""
    warning = OriginAndHost([]).startup_warning()
    assert warning is not None
    assert "allowed_hosts is empty" in warning
    assert OriginAndHost(["a"]).startup_warning() is None
    assert OriginAndHost().startup_warning() is None


@pytest.mark.parametrize("hosts", ["api.test", ["http://api.test"], ["a/b"], ["*.test"], [""], [":*"]])
def test_host_entries_that_can_never_match_are_refused(hosts: list[str]) -> None:
    with pytest.raises(ValueError, match="allowed_hosts"):
        OriginAndHost(hosts)


@pytest.mark.parametrize("origins", ["http://a", ["a.test"], ["http://a/b"], ["null"], ["http://*.a"]])
def test_origin_entries_that_can_never_match_are_refused(origins: list[str]) -> None:
    with pytest.raises(ValueError, match="allowed_origins"):
        OriginAndHost(None, origins)


def test_what_is_remembered_is_bounded() -> None:
    check = OriginAndHost(["*"])
    for i in range(1000):
        assert status(check, b"h%d" % i) == 200
    assert len(check._good) <= 256


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("127.evil.test", False),
        ("::", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
