"""A ledger: the few things that a registry's server has to do, each in one step.

Memory, Redis and ZooKeeper each have one. What a node sees, a Roster and an Agreement, is the same
code over all of them, so their promises are the same too.

Whatever lives no longer than its node (a member, a lease, a seat) is entered under a *session*,
and goes with it. A session that is not renewed for `lease_s` is over, by the ledger's own clock.
Each thing is entered under a `tag` as well, which its session uses once: what was asked for without
getting an answer can then be taken back, whether it happened or not.

Every method raises ClusterError when no answer came in time; it may have happened then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from chappe.errors import ClusterError
from chappe.registry.bell import Bell
from chappe.registry.coordination import Versioned
from chappe.registry.membership import Member, Members

# What the bell is rung with besides the paths that Coordination's callers choose, which begin with
# a slash: so these are no such path.
MEMBERS = "members"
SESSION = "session"


def value_bell(path: str) -> str:
    """Name the bell of a value."""
    return f"value{path}"


def seats_bell(path: str) -> str:
    """Name the bell of a row of seats."""
    return f"seats{path}"


class SessionOver(ClusterError):
    """The session under which something was to be entered is no more."""


class MembersFound(NamedTuple):
    """The members, and after how long one may go without a ring (None: never)."""

    members: Members
    fresh_s: float | None


class SeatsFound(NamedTuple):
    """The seats taken, and after how long one may go without a ring (None: never)."""

    seats: Mapping[int, bytes]
    fresh_s: float | None


class Ledger(Protocol):
    """What a registry's server does."""

    # Its kind and place, for people: "redis at 10.0.0.5:6379"; no secret is in it.
    place: str
    bell: Bell

    @property
    def lease_s(self) -> float:
        """How long a session surely lasts after a renewal was *sent*."""
        ...

    def open(self) -> None:
        """Begin to listen for changes, on the running loop; called once, before all else."""
        ...

    async def close(self) -> None:
        """Let go; what was entered under a session that did not end goes by its lease."""
        ...

    async def begin(self) -> str:
        """Begin a session that nobody had before."""
        ...

    async def renew(self, session: str) -> bool:
        """Make it last again; False when it is over, and all that it held is gone."""
        ...

    async def end(self, session: str) -> None:
        """End a session and all that it holds."""
        ...

    async def enter(self, session: str, member: Member) -> Member | None:
        """Enter a member, in place of an older run of it, or of the same under another session.

        Gives the member that is there instead, when that is not older. Raises SessionOver.
        """
        ...

    async def withdraw(self, session: str, name: str) -> None:
        """Remove a member if this session entered it."""
        ...

    async def members(self) -> MembersFound:
        """Look who is there; the bell rings at MEMBERS when it changes."""
        ...

    async def next_id(self, path: str) -> int:
        """See Coordination."""
        ...

    async def get(self, path: str, *, watch: bool = False) -> Versioned | None:
        """Read a value; when watched, the bell rings at value_bell(path) when it changes."""
        ...

    async def put(self, path: str, value: bytes, version: int | None) -> Versioned:
        """See Coordination; raises Conflict."""
        ...

    async def delete(self, path: str, version: int) -> None:
        """See Coordination; raises Conflict."""
        ...

    async def take(self, session: str, path: str, tag: str, holder: bytes) -> int:
        """Take a lease and give its epoch; a session may take its own again, under a new tag.

        Raises Held, or SessionOver.
        """
        ...

    async def free(self, session: str, path: str, tag: str) -> None:
        """Give a lease back if it is held under this session and tag."""
        ...

    async def sit(self, session: str, path: str, tag: str, value: bytes) -> int:
        """Take the next seat in a row and give its number; raises SessionOver."""
        ...

    async def tell(self, session: str, path: str, tag: str, value: bytes) -> None:
        """Change what is said on the seat that was taken under this session and tag.

        Raises SessionOver when there is none. What came late does not undo what was told after it.
        """
        ...

    async def rise(self, session: str, path: str, tag: str) -> None:
        """Free the seat that was taken under this session and tag, if any."""
        ...

    async def seats(self, path: str) -> SeatsFound:
        """Look which seats are taken, in ascending order; the bell rings at seats_bell(path)."""
        ...
