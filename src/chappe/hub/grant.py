"""Grants: who a session is and what it may do, as whoever authenticated it found out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from chappe.wire.ops import Hello


class Scope:
    """A set of addresses, given as exact ones and as prefixes that end in `*`."""

    __slots__ = ("_exact", "_prefixes")

    def __init__(self, patterns: Iterable[str]) -> None:
        patterns = tuple(patterns)
        self._exact = frozenset(p for p in patterns if not p.endswith("*"))
        self._prefixes = tuple(p[:-1] for p in patterns if p.endswith("*"))

    def __contains__(self, address: object) -> bool:
        return address in self._exact or (
            isinstance(address, str) and address.startswith(self._prefixes)
        )

    def patterns(self) -> list[str]:
        """What it was made of, or means the same."""
        return sorted(self._exact) + [f"{prefix}*" for prefix in self._prefixes]

    @property
    def everything(self) -> bool:
        """Whether no address is outside."""
        return "" in self._prefixes


EVERYTHING = Scope(("*",))
NOTHING = Scope(())


def scope_of(patterns: Iterable[str]) -> Scope:
    """The scope of these patterns; everything is always the same object, so that the hot path can
    ask by identity."""
    scope = Scope(patterns)
    return EVERYTHING if scope.everything else scope


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """An identity in an app, and the addresses it may use for what."""

    app: str
    address: str
    send: Scope = NOTHING
    publish: Scope = NOTHING
    subscribe: Scope = NOTHING
    provide: Scope = NOTHING
    # The avatars it may give to users and take from them (H15).
    manage: Scope = NOTHING
    administer: Scope = NOTHING
    # Wall clock, seconds; None for a grant that does not end.
    expires_at: float | None = None
    token_id: str | None = None


class Authenticator(Protocol):
    """Decides who may come in."""

    def authenticate(self, hello: Hello) -> Grant:
        """Return what the bearer of this hello may do; raise Forbidden or BadRequest."""
        ...
