"""A registry in memory: for one process, and for the simulation of many.

Time is the running loop's, so a simulated loop can run it. Each node has a handle with a name;
`cut` takes one off the registry as a broken network would, `heal` brings it back.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from dataclasses import dataclass, field

from chappe.errors import ClusterError, Conflict, Held
from chappe.registry.agreement import Agreement
from chappe.registry.bell import Bell
from chappe.registry.coordination import Versioned
from chappe.registry.ledger import (
    MEMBERS,
    MembersFound,
    SeatsFound,
    SessionOver,
    seats_bell,
    value_bell,
)
from chappe.registry.membership import Member
from chappe.registry.options import DEFAULTS, RegistryOptions
from chappe.registry.registry import Registry
from chappe.registry.roster import Roster
from chappe.registry.session import Session


@dataclass(slots=True)
class _Holding:
    session: str
    tag: str
    value: bytes


@dataclass(slots=True)
class _State:
    """What the registry knows."""

    sessions: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    members: dict[str, tuple[str, Member]] = field(default_factory=dict)
    values: dict[str, Versioned] = field(default_factory=dict)
    leases: dict[str, _Holding] = field(default_factory=dict)
    rows: dict[str, dict[int, _Holding]] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    # Numbers sessions, versions and epochs: none is given twice.
    last_number: int = 0
    # Where sequences begin.
    first: int = 0

    def number(self) -> int:
        self.last_number += 1
        return self.last_number


class MemoryRegistry:
    """The one registry that the handles of several nodes share.

    Its numbers begin above `first`, so that none is one that a registry before it gave.
    """

    def __init__(self, options: RegistryOptions = DEFAULTS, *, first: int = 0) -> None:
        self.options = options
        self.context = copy_context()
        self._state = _State(last_number=first, first=first)
        self._ledgers: dict[str, MemoryLedger] = {}

    def open(self, name: str) -> Registry:
        """Make the handle of a node; an earlier handle of that name is cut off for ever."""
        session = Session(self.ledger(name), users=2)
        poll_s = self.options.poll_s
        return Registry("memory", Roster(session, poll_s), Agreement(session, poll_s))

    def ledger(self, name: str) -> MemoryLedger:
        """Make a handle's ledger alone: for whoever serves it to another process."""
        self.cut(name)
        ledger = MemoryLedger(self, self._state, name)
        self._ledgers[name] = ledger
        return ledger

    def cut(self, name: str) -> None:
        """Let a node's requests go unanswered and its watches stall; its lease runs out."""
        if name in self._ledgers:
            self._ledgers[name].reachable = False

    def heal(self, name: str) -> None:
        """Bring a node's handle back: it finds out what it missed, and what it lost."""
        if name in self._ledgers:
            self._ledgers[name].reachable = True
            self._ledgers[name].bell.ring_all()

    def forget(self) -> None:
        """Lose everything, as a Redis that restarts empty does."""
        for timer in self._state.sessions.values():
            timer.cancel()
        self._state = _State(last_number=self._state.last_number, first=self._state.first)
        for ledger in self._ledgers.values():
            ledger.state = self._state
            ledger.ring_all()

    def ring(self, path: str) -> None:
        """Tell every handle that can be reached of a change."""
        for ledger in self._ledgers.values():
            if ledger.reachable:
                ledger.bell.ring(path)

    def detach(self, ledger: MemoryLedger) -> None:
        """Ring a ledger's bell no more."""
        if self._ledgers.get(ledger.name) is ledger:
            del self._ledgers[ledger.name]


class MemoryLedger:
    """One node's access to the registry."""

    place = "memory registry"

    def __init__(self, registry: MemoryRegistry, state: _State, name: str) -> None:
        self.name = name
        self.state = state
        self.bell = Bell()
        self.reachable = True
        self._registry = registry

    @property
    def lease_s(self) -> float:
        return self._registry.options.lease_s

    def open(self) -> None:
        """Rings come by themselves."""

    async def close(self) -> None:
        self._registry.detach(self)

    def ring_all(self) -> None:
        """Ring every bell here, unless it is cut off."""
        if self.reachable:
            self.bell.ring_all()

    async def begin(self) -> str:
        await self._arrive()
        session = str(self.state.number())
        self._last(session)
        return session

    async def renew(self, session: str) -> bool:
        await self._arrive()
        if session not in self.state.sessions:
            return False
        self._last(session)
        return True

    async def end(self, session: str) -> None:
        await self._arrive()
        self._over(self.state, session)

    async def enter(self, session: str, member: Member) -> Member | None:
        await self._arrive(session)
        found = self.state.members.get(member.name)
        if found is not None:
            other = found[1]
            if other != member and other.incarnation >= member.incarnation:
                return other
        self.state.members[member.name] = (session, member)
        self._registry.ring(MEMBERS)
        return None

    async def withdraw(self, session: str, name: str) -> None:
        await self._arrive()
        if self.state.members.get(name, ("",))[0] == session:
            del self.state.members[name]
            self._registry.ring(MEMBERS)

    async def members(self) -> MembersFound:
        await self._arrive()
        entries = sorted(self.state.members.items())
        return MembersFound({name: member for name, (_, member) in entries}, None)

    async def next_id(self, path: str) -> int:
        await self._arrive()
        self.state.sequences[path] = self.state.sequences.get(path, self.state.first) + 1
        return self.state.sequences[path]

    async def get(self, path: str, *, watch: bool = False) -> Versioned | None:
        await self._arrive()
        return self.state.values.get(path)

    async def put(self, path: str, value: bytes, version: int | None) -> Versioned:
        await self._arrive()
        found = self.state.values.get(path)
        if (found.version if found else None) != version:
            raise Conflict(path, found)
        written = Versioned(value, self.state.number())
        self.state.values[path] = written
        self._registry.ring(value_bell(path))
        return written

    async def delete(self, path: str, version: int) -> None:
        await self._arrive()
        found = self.state.values.get(path)
        if found is None or found.version != version:
            raise Conflict(path, found)
        del self.state.values[path]
        self._registry.ring(value_bell(path))

    async def take(self, session: str, path: str, tag: str, holder: bytes) -> int:
        await self._arrive(session)
        found = self.state.leases.get(path)
        if found is not None and found.session != session:
            raise Held(path, found.value)
        self.state.leases[path] = _Holding(session, tag, holder)
        return self.state.number()

    async def free(self, session: str, path: str, tag: str) -> None:
        await self._arrive()
        found = self.state.leases.get(path)
        if found is not None and (found.session, found.tag) == (session, tag):
            del self.state.leases[path]

    async def sit(self, session: str, path: str, tag: str, value: bytes) -> int:
        await self._arrive(session)
        number = self.state.number()
        self.state.rows.setdefault(path, {})[number] = _Holding(session, tag, value)
        self._registry.ring(seats_bell(path))
        return number

    async def tell(self, session: str, path: str, tag: str, value: bytes) -> None:
        await self._arrive(session)
        for seat in self.state.rows.get(path, {}).values():
            if (seat.session, seat.tag) == (session, tag):
                seat.value = value
                self._registry.ring(seats_bell(path))
                return
        raise SessionOver(f"{self.place}: {self.name} has no such seat in {path}")

    async def rise(self, session: str, path: str, tag: str) -> None:
        await self._arrive()
        row = self.state.rows.get(path, {})
        for number, seat in list(row.items()):
            if (seat.session, seat.tag) == (session, tag):
                del row[number]
                self._registry.ring(seats_bell(path))

    async def seats(self, path: str) -> SeatsFound:
        await self._arrive()
        row = self.state.rows.get(path, {})
        return SeatsFound({number: row[number].value for number in sorted(row)}, None)

    async def _arrive(self, session: str | None = None) -> None:
        """Take a turn of the loop, as a real request would; fail if the way is cut."""
        await asyncio.sleep(0)
        if not self.reachable:
            await asyncio.sleep(self._registry.options.timeout_s)
            raise ClusterError(f"{self.place}: {self.name} is cut off from it")
        if session is not None and session not in self.state.sessions:
            raise SessionOver(f"{self.place}: the session of {self.name} is over")

    def _last(self, session: str) -> None:
        """Let a session last one lease's time from now."""
        state = self.state
        if (timer := state.sessions.get(session)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        # In the registry's own context: its clock goes on when that of a simulated node stands.
        state.sessions[session] = loop.call_later(
            self.lease_s, self._over, state, session, context=self._registry.context
        )

    def _over(self, state: _State, session: str) -> None:
        """Drop a session and all that it holds."""
        timer = state.sessions.pop(session, None)
        if timer is None:
            return
        timer.cancel()
        for name in [name for name, entry in state.members.items() if entry[0] == session]:
            del state.members[name]
            self._registry.ring(MEMBERS)
        for path in [path for path, held in state.leases.items() if held.session == session]:
            del state.leases[path]
        for path, row in state.rows.items():
            for number in [number for number, seat in row.items() if seat.session == session]:
                del row[number]
                self._registry.ring(seats_bell(path))
