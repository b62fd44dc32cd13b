"""Membership: which nodes there are, and where each takes links (H7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec


class Member(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A node, as it tells the others about itself."""

    name: str
    # Which run of the node this is: larger after each start.
    incarnation: int
    # Where its links are accepted, such as ws://10.0.0.7:7403.
    url: str
    # Of its data folder: two nodes that were given one name by mistake differ in it.
    identity: str = ""


Members = Mapping[str, Member]


class Membership(Protocol):
    """Joins a node to the others, and tells it about them.

    An implementation keeps a node joined until it leaves: it renews leases, and joins again by
    itself when its registry comes back, or has forgotten it. While the registry is away, the last
    view stands; and when it comes back having forgotten this node, the others of that view stand
    for one more lease's time, in which they join again.
    """

    async def join(self, member: Member) -> None:
        """Become a member, in the place of an older run of this node if there is one.

        Raises ClusterError when the registry cannot be reached, or the name is held by a node that
        lives and is no older run.
        """
        ...

    async def leave(self) -> None:
        """Be no member any more; others learn of it at once."""
        ...

    async def replaced(self) -> Member:
        """Wait until another run of this node has its name, and give that run.

        This one is no member from then on, and does not join again by itself: it should end.
        """
        ...

    def watch(self) -> AsyncIterator[Members]:
        """Give the members, this node among them once it joined: the present view first, then each
        time it has changed.

        A slow reader gets the latest view, not each one between. Nothing is missed across
        reconnects: after one the view is read anew.
        """
        ...

    async def close(self) -> None:
        """Leave, and let go of the registry."""
        ...
