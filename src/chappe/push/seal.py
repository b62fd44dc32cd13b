"""The seal on secrets at rest: who reads the store does not read them.

    +-----------+------------------------------------+
    | nonce, 12 | ChaCha20-Poly1305 of the secret    |
    +-----------+------------------------------------+

What it is the secret of is authenticated with it, so that a record cannot stand in for another.
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from chappe.errors import ConfigError, StorageError

KEY_BYTES = 32
_NONCE_BYTES = 12
_INFO = b"chappe push seal 1"


class Seal:
    """Seals secrets under one key, which all processes of a deployment have."""

    __slots__ = ("_cipher", "_entropy")

    def __init__(self, key: bytes, entropy: Callable[[int], bytes]) -> None:
        if len(key) != KEY_BYTES:
            raise ConfigError(f"push key: it has {len(key)} bytes, not {KEY_BYTES}")
        self._cipher = ChaCha20Poly1305(key)
        self._entropy = entropy

    def close(self, secret: bytes, label: str) -> bytes:
        """Seal the secret of what the label names."""
        # Random nonces repeat after some 2**48: a deployment seals thousands.
        nonce = self._entropy(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, secret, label.encode())

    def open(self, sealed: bytes, label: str) -> bytes:
        """The secret; raises StorageError if it is another's, or was sealed under another key."""
        nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, text, label.encode())
        except (InvalidTag, ValueError):
            # ValueError: too short to have been sealed at all.
            raise StorageError(f"push: the seal of {label} is broken, or of another key") from None


def derive_key(cluster_secret: bytes) -> bytes:
    """The key of a deployment whose processes share a secret already."""
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=_INFO).derive(cluster_secret)
