"""The ring: which comet a client goes to (P11).

Rendezvous hashing: of all comets that live, the one whose hash with the client is largest. Every
process computes the same; when a comet comes or goes only its own share of clients moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from chappe.errors import Overload
from chappe.push.comets import CometCard


def choose_comet(client: str, comets: Iterable[CometCard]) -> CometCard:
    """The comet of a client; raises Overload when none lives."""
    best = max(comets, key=lambda comet: _weight(client, comet.name), default=None)
    if best is None:
        raise Overload("comet: none is there now")
    return best


def _weight(client: str, comet: str) -> bytes:
    # By the name, which a comet keeps when it comes back; names cannot hold a zero byte.
    return blake2b(f"{comet}\0{client}".encode(), digest_size=8).digest()
