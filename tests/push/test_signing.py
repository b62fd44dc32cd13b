"""Signed requests: each thing that can be wrong with one has its own refusal."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from chappe.push.signing import (
    WINDOW_MS,
    BadSignature,
    check_mac,
    check_time,
    read_signature,
    sign,
)

NOW = 1_800_000_000_000
ASKED = ("POST", "/v1/push/send?x=1", b'{"a":1}')


def lower(headers):
    return {name.lower(): value for name, value in headers.items()}


def signed(secret="s", method="POST", target="/v1/push/send?x=1", body=b'{"a":1}', **more):
    more = {"time_ms": NOW, "nonce": "nonce-0001"} | more
    return lower(sign("key", secret, method, target, body, **more))


def test_the_signature_is_the_documented_one():  # P10
    said = b"POST\n/v1/push/send?x=1\n1800000000000\nnonce-0001\n"
    said += hashlib.sha256(b'{"a":1}').hexdigest().encode()
    wanted = hmac.new(b"s", said, hashlib.sha256).hexdigest()
    assert signed()["x-chappe-signature"] == wanted
    check_mac(read_signature(signed()), "s", *ASKED)


@pytest.mark.parametrize(
    "changed",
    [
        {"secret": "t"},
        {"method": "PUT"},
        {"target": "/v1/push/send?x=2"},
        {"target": "/v1/push/send"},
        {"body": b'{"a":2}'},
    ],
)
def test_what_was_not_signed_is_refused(changed):
    with pytest.raises(BadSignature, match="x-chappe-signature"):
        check_mac(read_signature(signed(**changed)), "s", *ASKED)


@pytest.mark.parametrize("header", ["x-chappe-time", "x-chappe-nonce"])
def test_time_and_nonce_are_signed_too(header):
    headers = signed() | {header: {"x-chappe-time": str(NOW + 1)}.get(header, "nonce-0002")}
    with pytest.raises(BadSignature):
        check_mac(read_signature(headers), "s", *ASKED)


@pytest.mark.parametrize("header", list(signed()))
def test_a_missing_header_is_named(header):
    headers = signed()
    del headers[header]
    with pytest.raises(BadSignature, match=header) as refused:
        read_signature(headers)
    assert "missing" in refused.value.reason


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-chappe-app", "k" * 65),
        ("x-chappe-app", "a b"),
        ("x-chappe-time", "soon"),
        ("x-chappe-time", "9" * 16),
        ("x-chappe-time", "-5"),
        ("x-chappe-time", "١٨٠٠"),
        ("x-chappe-nonce", "short"),
        ("x-chappe-nonce", "n" * 65),
        ("x-chappe-signature", "G" * 64),
        ("x-chappe-signature", "0" * 63),
        ("x-chappe-signature", ""),
    ],
)
def test_a_misshapen_header_is_named_with_the_form_it_has_to_have(header, value):
    form = {
        "x-chappe-app": "1 to 64 letters, digits, - and _",
        "x-chappe-time": "milliseconds since 1970, in digits",
        "x-chappe-nonce": "8 to 64 letters, digits, - and _",
        "x-chappe-signature": "64 hex digits",
    }[header]
    with pytest.raises(BadSignature, match=f"{header}: must be {form}"):
        read_signature(signed() | {header: value})


def test_hex_digits_may_be_of_either_case():
    headers = signed()
    upper = headers | {"x-chappe-signature": headers["x-chappe-signature"].upper()}
    check_mac(read_signature(upper), "s", *ASKED)


@pytest.mark.parametrize(("off_ms", "word"), [(3600_000, "ahead"), (-3600_000, "behind")])
def test_a_clock_that_is_an_hour_off_is_told_the_time(off_ms, word):
    with pytest.raises(BadSignature) as refused:
        check_time(read_signature(signed(time_ms=NOW + off_ms)), NOW)
    assert word in refused.value.reason
    assert str(NOW) in refused.value.reason


@pytest.mark.parametrize("off_ms", [-WINDOW_MS, 0, WINDOW_MS])
def test_five_minutes_are_allowed_and_no_more(off_ms):
    check_time(read_signature(signed(time_ms=NOW + off_ms)), NOW)
    if off_ms:
        beyond = off_ms + (1 if off_ms > 0 else -1)
        with pytest.raises(BadSignature):
            check_time(read_signature(signed(time_ms=NOW + beyond)), NOW)
