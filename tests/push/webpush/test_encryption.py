"""Messages to browsers: RFC 8291, byte for byte."""

from __future__ import annotations

from base64 import urlsafe_b64decode

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from chappe.push.webpush.encryption import (
    BODY_BYTES_MAX,
    KEY_SEED_BYTES,
    TEXT_BYTES_MAX,
    encrypt,
    make_key,
    point_of,
    read_point,
)
from tests.push.webpush.browsers import Browser


def decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def key_of(text: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(decoded(text)), ec.SECP256R1())


# RFC 8291, section 5 and appendix A.
SENDER = key_of("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")
RECEIVER = key_of("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94")
RECEIVER_POINT = decoded(
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
)
SALT = decoded("DGv6ra1nlYgDCS1FRnbzlw")
AUTH = decoded("BTBZMqHH6r4Tts7J_aSIgg")
TEXT = b"When I grow up, I want to be a watermelon"
BODY = decoded(
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27ml"
    "mlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT"
    "pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)


def test_the_example_of_the_rfc_comes_out_byte_for_byte():
    assert point_of(RECEIVER.public_key()) == RECEIVER_POINT
    assert encrypt(TEXT, RECEIVER_POINT, AUTH, SALT, SENDER) == BODY


def test_what_tests_decrypt_with_reads_the_example_of_the_rfc():
    assert Browser("https://push.example", RECEIVER, AUTH).decrypt(BODY) == TEXT


@given(st.binary(max_size=TEXT_BYTES_MAX), st.binary(min_size=16, max_size=16), st.randoms())
def test_a_browser_reads_whatever_was_encrypted_for_it(text, salt, random):
    browser = Browser("https://push.example", make_key(random.randbytes(KEY_SEED_BYTES)), AUTH)
    key = make_key(random.randbytes(KEY_SEED_BYTES))
    body = encrypt(text, browser.point, AUTH, salt, key)
    assert browser.decrypt(body) == text
    assert len(body) <= BODY_BYTES_MAX


def test_the_largest_text_fills_what_every_push_service_takes():
    assert len(encrypt(bytes(TEXT_BYTES_MAX), RECEIVER_POINT, AUTH, SALT, SENDER)) == 4096


@pytest.mark.parametrize("seed", [bytes(KEY_SEED_BYTES), b"\xff" * KEY_SEED_BYTES])
def test_any_randomness_makes_a_key(seed):
    assert read_point(point_of(make_key(seed).public_key()))


@pytest.mark.parametrize(
    "point",
    [
        b"",
        bytes(65),
        b"\x04" + bytes(64),
        RECEIVER_POINT[:-1] + bytes([RECEIVER_POINT[-1] ^ 1]),
        RECEIVER_POINT[:64],
        RECEIVER_POINT + b"\0",
        # Compressed: the same point, but not as browsers write it.
        bytes([2 + RECEIVER_POINT[-1] % 2]) + RECEIVER_POINT[1:33],
    ],
)
def test_what_is_no_point_on_the_curve_is_no_key(point):
    with pytest.raises(ValueError, match=r"\w"):
        read_point(point)
