"""Subscriptions as browsers, and others, give them."""

from __future__ import annotations

import pytest

from chappe.errors import BadRequest, ConfigError
from chappe.push.webpush.options import WebPushOptions
from chappe.push.webpush.subscription import pack, read_subscription, unpack
from tests.push.webpush.browsers import Browser, text

OPTIONS = WebPushOptions()
BROWSER = Browser("https://fcm.googleapis.com/fcm/send/abc:def")
OFF_CURVE = text(BROWSER.point[:-1] + bytes([BROWSER.point[-1] ^ 1]))
P256DH, AUTH = text(BROWSER.point), text(BROWSER.auth)


def read(endpoint=BROWSER.endpoint, p256dh=P256DH, auth=AUTH, **options):
    return read_subscription(endpoint, p256dh, auth, WebPushOptions(**options))


def test_what_a_browser_gives_is_read_and_comes_back_from_its_bytes():
    subscription = read()
    assert subscription == BROWSER.subscription
    assert unpack(pack(subscription)) == subscription
    assert (subscription.host, subscription.origin) == (
        "fcm.googleapis.com",
        "https://fcm.googleapis.com",
    )
    assert read(p256dh=P256DH + "=") == subscription
    assert read("https://push.example:8443/x").origin == "https://push.example:8443"


@pytest.mark.parametrize(
    "endpoint",
    [
        *("", "x", "ftp://push.example/x", "http://push.example/x", "//push.example/x"),
        *("https://", "https:///x", "https://u:p@push.example/x", "https://push.example/x#y"),
        *("https://push.example:99999/x", "https://push.example:x/", "https://[::1/x"),
        *("https://push.example/\n", "https://push.example/ x", "https://pu\nsh.example/x"),
        *(
            "https://localhost/x",
            "https://LOCALHOST./x",
            "https://a.localhost/",
            "https://x.local/",
        ),
        *("https://127.0.0.1/", "https://127.1/", "https://2130706433/", "https://0x7f000001/"),
        *("https://0x7f.1/", "https://017700000001/", "https://10.0.0.1:443/", "https://[::1]/"),
        *("https://[::ffff:127.0.0.1]/", "https://169.254.169.254/", "https://metadata.internal/"),
        "https://intranet/x",
        "https://push.example/" + "x" * 2048,
        "https://push.exämple/x",
    ],
)
def test_an_endpoint_that_nothing_may_be_sent_to_is_refused_by_its_field(endpoint):
    with pytest.raises(BadRequest, match="endpoint: "):
        read(endpoint)


def test_an_endpoint_of_another_scheme_is_told_which_is_needed():
    for endpoint in ("ftp://x", "http://push.example.org/x"):
        with pytest.raises(BadRequest, match="https"):
            read(endpoint)


def test_one_on_this_machine_is_allowed_to_tests():
    assert read("http://127.0.0.1:1234/x", allow_private=True).host == "127.0.0.1"


def test_hosts_can_be_named_and_then_no_other_will_do():
    hosts = ("fcm.googleapis.com", "push.apple.com")
    assert read(hosts=hosts)
    assert read("https://web.push.apple.com/x", hosts=hosts)
    for endpoint in ("https://evilpush.apple.com.example/x", "https://xpush.apple.com/x"):
        with pytest.raises(BadRequest, match="endpoint: its host is none"):
            read(endpoint, hosts=hosts)


@pytest.mark.parametrize("p256dh", ["", "!", "AAAA", text(bytes(65)), OFF_CURVE, "é", "A" * 5])
def test_a_key_that_is_none_is_refused_by_its_field(p256dh):
    with pytest.raises(BadRequest, match=r"keys\.p256dh: "):
        read(p256dh=p256dh)


@pytest.mark.parametrize("auth", ["", "+/+/", text(bytes(15)), text(bytes(17)), "A"])
def test_a_secret_that_is_none_is_refused_by_its_field(auth):
    with pytest.raises(BadRequest, match=r"keys\.auth: "):
        read(auth=auth)


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout_s", 0), ("queue_max", -1), ("concurrency_max", 0), ("contact", "ops@example.com")],
)
def test_an_option_that_makes_no_sense_is_named(name, value):
    with pytest.raises(ConfigError, match=rf"push\.webpush\.{name}: "):
        WebPushOptions(**{name: value})
