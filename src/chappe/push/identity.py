"""The identity of a deployment: the key with which comets prove to devices who they are (P4).

It is made by whichever process comes first, sealed, and the same for all from then on.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from chappe.push.seal import Seal
from chappe.push.state.meta import MetaState

_NAME = "identity"
_KEY_BYTES = 32


class Identity:
    """An Ed25519 key, and the half of it that devices pin."""

    __slots__ = ("key", "public", "public_text")

    def __init__(self, private: bytes) -> None:
        self.key = Ed25519PrivateKey.from_private_bytes(private)
        self.public = self.key.public_key().public_bytes_raw()
        self.public_text = b64encode(self.public).decode()


async def load_identity(meta: MetaState, seal: Seal, entropy: Callable[[int], bytes]) -> Identity:
    """The deployment's identity, made if there is none; raises StorageError."""
    offered = seal.close(entropy(_KEY_BYTES), _NAME)
    return Identity(seal.open(await meta.keep(_NAME, offered, 0), _NAME))
