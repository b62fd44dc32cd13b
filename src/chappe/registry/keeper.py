"""A ledger that another process of this machine keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from chappe.errors import ClusterError
from chappe.registry.bell import Bell
from chappe.registry.coordination import Versioned
from chappe.registry.ledger import MembersFound, SeatsFound
from chappe.registry.membership import Member


class Line(Protocol):
    """How the keeper is asked; `again` says that a request may be carried out twice.

    Raises OSError when there is no answer, and whatever the method raised where it was done.
    """

    # Told each path that rings; None when some rings may have been missed.
    on_ring: Callable[[str | None], None] | None

    def open(self) -> None:
        """Begin to connect, on the running loop."""
        ...

    async def ask(self, method: str, *arguments: Any, again: bool = False) -> Any:
        """Have a method carried out and give its result."""
        ...

    async def close(self) -> None:
        """Hang up."""
        ...


class KeeperLedger:
    """The ledger of the keeper at the other end of a line.

    The keeper ends a session by itself when the process that began it has died; a keeper that was
    replaced has forgotten all sessions.
    """

    place = "keeper"

    def __init__(self, line: Line, lease_s: float) -> None:
        self.bell = Bell()
        self.lease_s = lease_s
        self._line = line
        line.on_ring = self._ring

    def open(self) -> None:
        """Begin to listen for changes."""
        self._line.open()

    async def close(self) -> None:
        """Hang up."""
        await self._line.close()

    async def begin(self) -> str:
        """Begin a session that nobody had before."""
        return str(await self._ask("ledger.begin"))

    async def renew(self, session: str) -> bool:
        """Make it last again; False when it is over."""
        return bool(await self._ask("ledger.renew", session))

    async def end(self, session: str) -> None:
        """End a session and all that it holds."""
        await self._ask("ledger.end", session)

    async def enter(self, session: str, member: Member) -> Member | None:
        """Enter a member, or give the one that is there instead."""
        other = await self._ask("ledger.enter", session, member)
        return None if other is None else msgspec.convert(other, Member)

    async def withdraw(self, session: str, name: str) -> None:
        """Remove a member if this session entered it."""
        await self._ask("ledger.withdraw", session, name)

    async def members(self) -> MembersFound:
        """Look who is there."""
        members, fresh_s = await self._ask("ledger.members")
        return MembersFound(msgspec.convert(members, dict[str, Member]), fresh_s)

    async def next_id(self, path: str) -> int:
        """The next number of a sequence; one whose answer was lost is nobody's."""
        return int(await self._ask("ledger.next_id", path))

    async def get(self, path: str, *, watch: bool = False) -> Versioned | None:
        """Read a value; the keeper rings for all paths, watched or not."""
        found = await self._ask("ledger.get", path)
        return None if found is None else Versioned(*found)

    async def put(self, path: str, value: bytes, version: int | None) -> Versioned:
        """Write a value if its version is still this; raises Conflict."""
        return Versioned(*await self._ask("ledger.put", path, value, version))

    async def delete(self, path: str, version: int) -> None:
        """Remove a value if its version is still this; raises Conflict."""
        await self._ask("ledger.delete", path, version)

    async def take(self, session: str, path: str, tag: str, holder: bytes) -> int:
        """Take a lease and give its epoch; raises Held, or SessionOver."""
        return int(await self._ask("ledger.take", session, path, tag, holder))

    async def free(self, session: str, path: str, tag: str) -> None:
        """Give a lease back if it is held under this session and tag."""
        await self._ask("ledger.free", session, path, tag)

    async def sit(self, session: str, path: str, tag: str, value: bytes) -> int:
        """Take the next seat in a row; raises SessionOver."""
        return int(await self._ask("ledger.sit", session, path, tag, value))

    async def tell(self, session: str, path: str, tag: str, value: bytes) -> None:
        """Change what is said on a seat; raises SessionOver."""
        await self._ask("ledger.tell", session, path, tag, value)

    async def rise(self, session: str, path: str, tag: str) -> None:
        """Free the seat that was taken under this session and tag, if any."""
        await self._ask("ledger.rise", session, path, tag)

    async def seats(self, path: str) -> SeatsFound:
        """Look which seats are taken."""
        seats, fresh_s = await self._ask("ledger.seats", path)
        return SeatsFound(dict(seats), fresh_s)

    def _ring(self, path: str | None) -> None:
        if path is None:
            self.bell.ring_all()
        else:
            self.bell.ring(path)

    async def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            # Again, when a keeper goes: whatever it did for us went with it.
            return await self._line.ask(method, *arguments, again=True)
        except OSError as error:
            raise ClusterError(f"keeper: {error}") from error
