"""Encryption of messages to browsers (RFC 8188 `aes128gcm`, RFC 8291), without I/O or randomness.

    +----------+---------+--------+-------------------+---------------------------------+
    | salt, 16 | size, 4 | 65, 1  | sender's key, 65  | AES-128-GCM of text and 0x02    |
    +----------+---------+--------+-------------------+---------------------------------+

There is one record, the last. The sender's key is fresh for each message, as is the salt: so a key
and its nonce are never used twice, and nothing need be counted.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

# What every push service takes (RFC 8291, section 4).
BODY_BYTES_MAX = 4096
SALT_BYTES = 16
AUTH_BYTES = 16
POINT_BYTES = 65
_HEADER_BYTES = SALT_BYTES + 4 + 1 + POINT_BYTES
_LAST = b"\x02"
_TAG_BYTES = 16
TEXT_BYTES_MAX = BODY_BYTES_MAX - _HEADER_BYTES - len(_LAST) - _TAG_BYTES

# Of randomness for a key: 128 bits more than the curve's order, so that none is likelier.
KEY_SEED_BYTES = 48
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def make_key(seed: bytes) -> ec.EllipticCurvePrivateKey:
    """A key on P-256, from 48 random bytes."""
    assert len(seed) == KEY_SEED_BYTES, "a key has 384 bits of randomness"
    return ec.derive_private_key(int.from_bytes(seed) % (_ORDER - 1) + 1, ec.SECP256R1())


def point_of(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as browsers write it: an uncompressed point."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def read_point(point: bytes) -> ec.EllipticCurvePublicKey:
    """A public key; raises ValueError if it is not an uncompressed point on the curve."""
    if len(point) != POINT_BYTES:
        raise ValueError(f"{len(point)} bytes, not {POINT_BYTES}")
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)


def encrypt(
    text: bytes, receiver: bytes, auth: bytes, salt: bytes, key: ec.EllipticCurvePrivateKey
) -> bytes:
    """The body for the receiver (its point and its secret), under a key and a salt used once."""
    assert len(text) <= TEXT_BYTES_MAX, "larger ones are not sent"
    assert len(salt) == SALT_BYTES, "a salt has 128 bits"
    sender = point_of(key.public_key())
    shared = key.exchange(ec.ECDH(), read_point(receiver))
    material = _derive(shared, auth, b"WebPush: info\0" + receiver + sender, 32)
    secret = _derive(material, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(material, salt, b"Content-Encoding: nonce\0", 12)
    header = salt + BODY_BYTES_MAX.to_bytes(4) + bytes([POINT_BYTES]) + sender
    return header + AESGCM(secret).encrypt(nonce, text + _LAST, None)


def _derive(material: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt=salt, info=info).derive(material)
