"""Tokens: what a device shows to a comet. Stores know them by a digest only (P5)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256

_BYTES = 32
_DIGEST_BYTES = 16
# What is longer was not given by us, and is not worth hashing.
TOKEN_CHARS_MAX = 64


def make_token(randomness: bytes) -> str:
    """The text of a token, from 32 random bytes."""
    assert len(randomness) == _BYTES, "a token has 256 bits"
    return urlsafe_b64encode(randomness).rstrip(b"=").decode()


def token_digest(token: str) -> bytes:
    """What a store knows a token by: the begin of the SHA-256 of its text."""
    return sha256(token.encode()).digest()[:_DIGEST_BYTES]
