"""The key of push: agreed by two, with nobody between them, and good for each message once (P4)."""

import hashlib
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import LocalProtocolError, RemoteProtocolError
from chappe.wire.push import (
    COMMANDS,
    RESPONSES,
    Message,
    decode_command,
    decode_response,
    encode_command,
    encode_response,
)
from chappe.wire.pushcipher import (
    MESSAGES_MAX,
    TAG_BYTES,
    CometAgreement,
    DeviceAgreement,
    Opening,
    Sealing,
    UntrustedComet,
)
from tests.wire import rfc
from tests.wire.push_vectors import (
    CLIENT,
    COMET,
    DEVICE,
    IDENTITY,
    VECTORS,
    agreements,
    joined,
    written,
)

IDENTITY_PUBLIC = Ed25519PrivateKey.from_private_bytes(IDENTITY).public_key().public_bytes_raw()
# All points of small order that RFC 7748's section 6.1 is about, each as 32 bytes.
SMALL_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


@pytest.fixture(scope="module")
def published():
    return json.loads(VECTORS.read_text())


def pair() -> tuple[Sealing, Opening]:
    comet, device = agreements()
    return comet.agree(device.secret_key), device.agree(comet.encrypt_key)


@given(st.lists(st.tuples(st.binary(max_size=50), st.binary(max_size=200)), max_size=5))
def test_what_a_comet_seals_its_device_opens_in_order(messages):  # P4
    sealing, opening = pair()
    for head, content in messages:
        sealed = sealing.seal(head, content)
        assert len(sealed) == len(content) + TAG_BYTES
        assert opening.open(head, sealed) == content
    assert sealing.count == opening.count == len(messages)


def test_the_same_content_is_never_sealed_to_the_same_bytes():
    sealing, _ = pair()
    assert len({sealing.seal(b"h", b"content") for _ in range(100)}) == 100


def test_fresh_parts_make_a_fresh_key():
    identity = Ed25519PrivateKey.from_private_bytes(IDENTITY)
    comet, device = agreements()
    other_comet = CometAgreement(CLIENT, DEVICE, identity)
    other_device = DeviceAgreement(CLIENT, COMET, IDENTITY_PUBLIC)
    keys = {
        comet.agree(device.secret_key).key,
        other_comet.agree(device.secret_key).key,
        comet.agree(other_device.secret_key).key,
        CometAgreement("c2", COMET, identity).agree(device.secret_key).key,
    }
    assert len(keys) == 4


@pytest.mark.parametrize("change", ["head", "content", "tag", "cut", "empty"])
def test_what_was_changed_on_the_way_does_not_open(change):
    sealing, opening = pair()
    head, sealed = b"head", sealing.seal(b"head", b"content")
    head = b"Head" if change == "head" else head
    flipped = {"content": 0, "tag": len(sealed) - 1}.get(change)
    if flipped is not None:
        sealed = bytes(b ^ (n == flipped) for n, b in enumerate(sealed))
    sealed = {"cut": sealed[:-1], "empty": b""}.get(change, sealed)
    with pytest.raises(RemoteProtocolError, match="encrypted_content"):
        opening.open(head, sealed)


def test_what_was_repeated_left_out_or_reordered_does_not_open():
    sealing, opening = pair()
    first, second = sealing.seal(b"", b"1"), sealing.seal(b"", b"2")
    with pytest.raises(RemoteProtocolError):
        opening.open(b"", second)
    assert opening.open(b"", first) == b"1"
    with pytest.raises(RemoteProtocolError):
        opening.open(b"", first)
    assert opening.open(b"", second) == b"2"


@pytest.mark.parametrize("at", [1, 32, 33, 96])
def test_a_comets_part_that_was_changed_is_not_trusted(at):
    comet, device = agreements()
    part = bytearray(comet.encrypt_key)
    part[at] ^= 1
    with pytest.raises(UntrustedComet, match="not signed by the identity"):
        device.agree(bytes(part))


def test_a_part_signed_by_another_identity_or_for_another_client_is_not_trusted():
    _, device = agreements()
    stranger = CometAgreement(CLIENT, COMET, Ed25519PrivateKey.from_private_bytes(DEVICE))
    identity = Ed25519PrivateKey.from_private_bytes(IDENTITY)
    for other in (stranger, CometAgreement("c010000065f2c3d5", COMET, identity)):
        with pytest.raises(UntrustedComet):
            device.agree(other.encrypt_key)


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_a_shared_secret_of_zeros_is_refused(point):
    comet, _ = agreements()
    assert rfc.x25519(COMET, bytes.fromhex(point)) == bytes(32)
    with pytest.raises(RemoteProtocolError, match="secret_key: not a public key"):
        comet.agree(b"\1" + bytes.fromhex(point))


def test_even_a_trusted_comet_may_not_agree_on_zeros():
    _, device = agreements()
    identity, zeros = Ed25519PrivateKey.from_private_bytes(IDENTITY), bytes(32)
    signed = joined(b"chappe push 1 comet key", b"\1", CLIENT.encode(), zeros)
    with pytest.raises(RemoteProtocolError, match="encrypt_key: not a public key"):
        device.agree(b"\1" + zeros + identity.sign(signed))


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (b"", "version 1 wanted, it has none"),
        (b"\2" + bytes(32), "version 1 wanted, it has 2"),
        (b"\1" + bytes(31), "32 bytes, 33 wanted"),
        (b"\1" + bytes(33), "34 bytes, 33 wanted"),
    ],
)
def test_a_part_that_is_none_is_refused_by_name(part, why):
    comet, device = agreements()
    with pytest.raises(RemoteProtocolError, match=f"secret_key: {why}"):
        comet.agree(part)
    with pytest.raises(RemoteProtocolError, match="encrypt_key: "):
        device.agree(part)


def test_an_identity_that_is_none_is_refused_by_name():
    with pytest.raises(LocalProtocolError, match="identity: 31 bytes, 32 wanted"):
        DeviceAgreement(CLIENT, DEVICE, bytes(31))


def test_a_key_is_not_used_beyond_its_messages():
    sealing, opening = pair()
    sealing.count = opening.count = MESSAGES_MAX - 1
    assert opening.open(b"", sealing.seal(b"", b"last")) == b"last"
    with pytest.raises(LocalProtocolError, match="agree on another"):
        sealing.seal(b"", b"")
    with pytest.raises(LocalProtocolError, match="agree on another"):
        opening.open(b"", b"")


def test_the_published_vectors_are_what_the_code_makes():
    assert VECTORS.read_text() == written()


def test_the_published_frames_are_read_and_written_again(published):
    kinds = [*COMMANDS, *RESPONSES]
    seen = set()
    for key, decode, encode in (
        ("commands", decode_command, encode_command),
        ("responses", decode_response, encode_response),
    ):
        for vector in published[key]:
            data = bytes.fromhex(vector["frame"])
            frame = decode(data[2:])
            assert encode(frame) == data
            seen.add(type(frame))
    assert seen == set(kinds)


def test_the_published_bad_frames_are_refused(published):
    for vector in published["refused"]:
        decode = {"command": decode_command, "response": decode_response}[vector["as"]]
        with pytest.raises(RemoteProtocolError):
            decode(bytes.fromhex(vector["frame_without_length"]))


def test_the_published_agreement_follows_from_the_rfcs_alone(published):
    """Nothing of the package is used here."""
    given = {
        name: bytes.fromhex(v) for name, v in published["agreement"].items() if name[:2] != "cl"
    }
    client = published["agreement"]["client_id"].encode()
    comet = rfc.x25519_public(given["comet_private"])
    device = rfc.x25519_public(given["device_private"])
    signed = joined(b"chappe push 1 comet key", b"\1", client, comet)
    identity, signature = rfc.ed25519(given["identity_private"], signed)
    encrypt_key, secret_key = b"\1" + comet + signature, b"\1" + device
    shared = rfc.x25519(given["device_private"], comet)
    transcript = joined(b"chappe push 1 transcript", client, encrypt_key, secret_key)
    salt, info = hashlib.sha256(transcript).digest(), b"chappe push 1 server to device"
    assert given == {
        "identity_private": given["identity_private"],
        "identity_public": identity,
        "comet_private": given["comet_private"],
        "comet_public": comet,
        "signed": signed,
        "signature": signature,
        "encrypt_key": encrypt_key,
        "device_private": given["device_private"],
        "device_public": device,
        "secret_key": secret_key,
        "shared": shared,
        "transcript": transcript,
        "salt": salt,
        "info": info,
        "key": rfc.hkdf_sha256(shared, salt, info, 32),
    }
    assert shared == rfc.x25519(given["comet_private"], device)


def test_the_published_messages_follow_from_the_rfcs_alone(published):
    key = bytes.fromhex(published["agreement"]["key"])
    assert len(published["messages"]) == 2
    for counter, vector in enumerate(published["messages"]):
        nonce, head = bytes(4) + counter.to_bytes(8), bytes.fromhex(vector["head"])
        content = bytes.fromhex(vector["content"])
        sealed = rfc.chacha20_poly1305(key, nonce, content, head)
        assert sealed.hex() == vector["encrypted_content"]
        body = b"\5" + head + len(sealed).to_bytes(2) + sealed
        assert (len(body).to_bytes(2) + body).hex() == vector["frame"]


def test_a_device_opens_the_published_messages(published):
    device = DeviceAgreement(CLIENT, DEVICE, IDENTITY_PUBLIC)
    opening = device.agree(bytes.fromhex(published["agreement"]["encrypt_key"]))
    for vector in published["messages"]:
        response = decode_response(bytes.fromhex(vector["frame"])[2:])
        assert isinstance(response, Message)
        opened = opening.open(response.message.head, response.message.encrypted_content)
        assert opened.hex() == vector["content"]


def test_the_slow_primitives_are_those_of_their_rfcs():
    """RFC 7748 5.2, RFC 8032 7.1 (test 2), RFC 5869 A.1, RFC 8439 2.8.2."""
    assert (
        rfc.x25519(
            bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"),
            bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"),
        ).hex()
        == "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    )
    public, signature = rfc.ed25519(
        bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"), b"\x72"
    )
    assert public.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert signature.hex().startswith(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    )
    okm = rfc.hkdf_sha256(
        bytes.fromhex("0b" * 22),
        bytes.fromhex("000102030405060708090a0b0c"),
        bytes.fromhex("f0f1f2f3f4f5f6f7f8f9"),
        42,
    )
    assert okm.hex().startswith("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf")
    sealed = rfc.chacha20_poly1305(
        bytes(range(0x80, 0xA0)),
        bytes.fromhex("070000004041424344454647"),
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the "
        b"future, sunscreen would be it.",
        bytes.fromhex("50515253c0c1c2c3c4c5c6c7"),
    )
    assert sealed[-16:].hex() == "1ae10b594f09e26a7e902ecbd0600691"
