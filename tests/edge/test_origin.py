"""Which pages may connect: exactly those that are listed."""

from __future__ import annotations

import pytest

from chappe.edge.origin import Origins
from chappe.errors import ConfigError

LISTED = ("https://a.example", "http://b.example:8080")


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),  # not a page
        ("https://a.example", True),
        ("http://b.example:8080", True),
        ("http://a.example", False),
        ("https://a.example:443", False),
        ("https://a.example/", False),
        ("https://A.example", False),
        ("https://a.example.evil.example", False),
        ("https://evil.example/https://a.example", False),
        ("https://a.example@evil.example", False),
        ("https://sub.a.example", False),
        ("http://b.example", False),
        ("null", False),
        ("", False),
        ("*", False),
        ("file://", False),
        (" https://a.example", False),
        ("https://a.example ", False),
        ("https://a.example, https://a.example", False),
        ("http://localhost", False),
        ("http://[", False),
    ],
)
def test_an_origin_passes_only_if_it_is_listed_to_the_letter(
    origin: str | None, allowed: bool
) -> None:
    assert Origins(LISTED).allow(origin) is allowed


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost", True),
        ("http://localhost:3000", True),
        ("https://127.0.0.1:8443", True),
        ("http://[::1]:8080", True),
        ("https://a.example", True),
        ("http://localhost.evil.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://evil.example", False),
        ("http://user@localhost", False),
        ("http://localhost@evil.example", False),
        ("http://evil.example#localhost", False),
        ("http://localhost/", False),
        ("http://local\thost", False),
        ("chrome-extension://localhost", False),
        ("null", False),
        ("", False),
        ("http://", False),
        ("http://[::1", False),
    ],
)
def test_in_development_pages_of_this_machine_pass_too(origin: str, allowed: bool) -> None:
    assert Origins(LISTED, loopback=True).allow(origin) is allowed


@pytest.mark.parametrize(
    "listed",
    [
        "",
        "*",
        "null",
        "a.example",
        "ws://a.example",
        "https://",
        "https://[",
        "https://a.example/",
        "https://a.example/path",
        "https://a.example?x",
        "https://user@a.example",
    ],
)
def test_what_is_no_origin_cannot_be_listed(listed: str) -> None:
    with pytest.raises(ConfigError, match="origins"):
        Origins([listed])
