"""Revocations: the tokens that are good no more, until they would have expired anyway."""

from __future__ import annotations

from typing import Protocol

from chappe.clock import Clock
from chappe.errors import Forbidden

REVOKED_MAX = 100_000


class Revocations(Protocol):
    """Remembers the tokens that are good no more."""

    def revoke(self, app: str, token_id: str, until: float) -> None:
        """Remember a token until then, in seconds since 1970.

        Raises Forbidden or Overload when there is no room for another.
        """
        ...

    def is_revoked(self, app: str, token_id: str) -> bool:
        """Whether a token is good no more."""
        ...


class MemoryRevocations:
    """Revocations of one process, which forgets them with its end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # App -> token id -> until when it is remembered.
        self._revoked: dict[str, dict[str, float]] = {}

    def revoke(self, app: str, token_id: str, until: float) -> None:
        """Remember a token until then; raises Forbidden when there is no room for another."""
        now = self._clock.wall_ms() / 1000
        revoked = self._revoked.setdefault(app, {})
        if len(revoked) >= REVOKED_MAX:
            for old in [token for token, end in revoked.items() if end <= now]:
                del revoked[old]
        if len(revoked) >= REVOKED_MAX:
            raise Forbidden(f"{REVOKED_MAX} tokens are revoked already; change the key instead")
        revoked[token_id] = until

    def is_revoked(self, app: str, token_id: str) -> bool:
        """Whether a token is good no more."""
        return token_id in self._revoked.get(app, ())
