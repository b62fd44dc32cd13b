"""VAPID: with which a deployment proves to push services that it is the one browsers subscribed to
(RFC 8292).

The key is made by whichever process comes first, sealed, and the same for all from then on:
browsers give subscriptions that are good for this key only.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable

import jwt

from chappe.push.seal import Seal
from chappe.push.state.meta import MetaState
from chappe.push.webpush.encryption import KEY_SEED_BYTES, make_key, point_of

_NAME = "vapid"
# A day at most (RFC 8292, section 2); clocks differ.
_LIFE_S = 12 * 3600
# One is used again until half of its life is over: signing costs more than sending.
_USED_S = _LIFE_S // 2
# Browsers know a handful of push services; strangers may name any.
_CACHED_MAX = 1000


class Vapid:
    """An ES256 key, and what is signed with it."""

    def __init__(self, seed: bytes, contact: str = "") -> None:
        self.key = make_key(seed)
        self.public_text = _text(point_of(self.key.public_key()))
        self._contact = contact
        self._signed: dict[str, tuple[int, str]] = {}

    def authorization(self, origin: str, now_s: int) -> str:
        """The header for a push service."""
        until_s, header = self._signed.get(origin, (0, ""))
        # A clock that was set back: what was signed then may be refused as too far off.
        if not now_s < until_s <= now_s + _USED_S:
            if len(self._signed) >= _CACHED_MAX:
                self._signed.clear()
            header = self._sign(origin, now_s)
            self._signed[origin] = (now_s + _USED_S, header)
        return header

    def _sign(self, origin: str, now_s: int) -> str:
        claims: dict[str, str | int] = {"aud": origin, "exp": now_s + _LIFE_S}
        if self._contact:
            claims["sub"] = self._contact
        token = jwt.encode(claims, self.key, algorithm="ES256")
        return f"vapid t={token}, k={self.public_text}"


async def load_vapid(
    meta: MetaState, seal: Seal, entropy: Callable[[int], bytes], contact: str = ""
) -> Vapid:
    """The deployment's key, made if there is none; raises StorageError."""
    offered = seal.close(entropy(KEY_SEED_BYTES), _NAME)
    return Vapid(seal.open(await meta.keep(_NAME, offered, 0), _NAME), contact)


def _text(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode()
