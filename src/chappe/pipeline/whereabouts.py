"""Whereabouts: which nodes a path's message should have come to, and did not, hop by hop.

The same as `legs.py` finds of many at once, and by the same rules; of a hop what it tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chappe.pipeline.kinds import DROPPING, PASSING, ROLES

Hop = dict[str, Any]
# From whom, to whom, in which role.
Leg = tuple[str, str, int]
_BROKER, _GATEWAY = ROLES["broker"], ROLES["gateway"]


def role_of(hop: Hop) -> int:
    """The role of rooms in which a node handed a message on; 0 is none, and a gateway's."""
    return ROLES.get(hop["role"] or "", 0) % _GATEWAY


def missing(hops: list[Hop]) -> Iterator[str]:
    """The nodes that a message was handed to, and did not come to; those that somebody missed it
    at."""
    handed, came = _handed(hops), {leg for _hop, leg in comings(hops)}
    # A node that tells that it dropped a message got it.
    dropped_at = {hop["node"] for hop in hops if hop["kind"] in DROPPING}
    ends = {hop["node"] for hop in hops if _is_end(hop)}
    through = came_through(hops)
    for _giver, taker, role in handed - came:
        served = taker in ends if role == _BROKER else through
        if taker not in dropped_at and not (role and served):
            yield taker


def untold_by(hops: list[Hop]) -> Iterator[str]:
    """The nodes that a message came from, and that do not tell that they handed it on, maybe to
    others, too; not those on its way to a broker, if one had it."""
    handed, through = _handed(hops), came_through(hops)
    for _hop, leg in comings(hops):
        giver, _taker, role = leg
        if leg not in handed and not (0 < role < _BROKER and through):
            yield giver


def came_through(hops: list[Hop]) -> bool:
    """Whether one of a message's copies came as far as to a broker."""
    return any(_is_end(hop) or _is_passed_by_broker(hop) for hop in hops)


def comings(hops: list[Hop]) -> Iterator[tuple[Hop, Leg]]:
    """Hops at which a message came from another node, and how it was handed there."""
    handed = _handed(hops)
    came = [hop for hop in hops if hop["came_from"] not in (None, hop["node"])]
    taken = [ROLES.get(hop["taken_as"] or "", 0) or ROLES.get(hop["role"] or "", 0) for hop in came]
    pairs = [(hop["came_from"], hop["node"]) for hop in came]
    sure = {(*pair, role - 1) for pair, role in zip(pairs, taken, strict=True) if role}
    for hop, pair, role in zip(came, pairs, taken, strict=True):
        if role:
            yield hop, (*pair, role - 1)
            continue
        # It may be a gateway, or came to a role before that on the same node.
        fits = [one for one in range(1, _GATEWAY) if (*pair, one) in handed]
        free = [one for one in fits if (*pair, one) not in sure]
        yield hop, (*pair, max(free or fits, default=0))


def _handed(hops: list[Hop]) -> set[Leg]:
    return {
        (hop["node"], peer, role_of(hop))
        for hop in hops
        for peer in hop["went_to"] or ()
        if peer != hop["node"]
    }


def _is_end(hop: Hop) -> bool:
    return hop["kind"] == "copied" or (hop["kind"] in PASSING and role_of(hop) == 0)


def _is_passed_by_broker(hop: Hop) -> bool:
    return hop["kind"] in PASSING and role_of(hop) == _BROKER
