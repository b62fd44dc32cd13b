"""A station: a role of this process that is registered, from its beginnings to its end (R7, R8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

import msgspec
import structlog

from chappe.clock import Clock
from chappe.registry import errand
from chappe.registry.enrolment import Enrolment
from chappe.rooms.askers import Askers
from chappe.rooms.role import Role, Source
from chappe.rooms.roll import Place
from chappe.rooms.rows import Loader, load_rows
from chappe.store.store import Store
from chappe.wire.rooms import Pulse, Pulsed, RoleKind, State

log = structlog.get_logger()

_UNKNOWN = (
    "it starts though not all routers of the registry have told it that they know it and have "
    "written their rows; see whether they run and reach this node by UDP, and whether the store "
    "keeps up: until gateways refresh their rooms (rooms.refresh_s) some may be missing"
)
_WAITS = (
    "not all routers have told it that they know it and have written their rows: do they reach "
    "it by UDP, and have the same cluster.secret?"
)


class Member(Role, Protocol):
    """A role that has a state."""

    state: State
    # Whether it is about to end, and tells so whoever asks.
    leaving: bool


class Beginner(Member, Loader, Protocol):
    """A role that begins with what the store knows."""

    def loaded(self, now: float) -> None:
        """Take what came meanwhile as well, and run."""
        ...


Met = set[tuple[RoleKind, int]]


class Opening(NamedTuple):
    """What a role waits for and loads before it runs."""

    store: Store
    clock: Clock
    # Whether its partition is: until then nobody tells it anything, and what it loaded would age.
    wanted: Callable[[], bool]
    # Whether those who have to know of the role do: what they hear from then on, it hears, and
    # what they heard before is in the store.
    known: Callable[[Met], bool]
    # Whether nobody else could do what the role does.
    alone: Callable[[], bool]
    # After so long those who do not know of it do not count,
    confirm_s: float
    load_s: float
    # where it may start without them. In a partition that nobody uses yet it is not needed, and
    # would have messages sent to one whom nobody reaches as soon as that is used.
    excused: Callable[[Met], bool]


class Station:
    """Keeps a role in the registry, as what it is.

    A proxy sits down when it runs; who has an opening sits down first, and runs after it.
    """

    def __init__(
        self,
        role: Member,
        enrolment: Enrolment[Place],
        opening: Opening | None = None,
    ) -> None:
        self.role = role
        self._enrolment = enrolment
        self._opening = opening
        self._wanted = opening.wanted if opening is not None else None
        self._begun = False
        self._met: Met = set()
        # How much those that it has met had to write when they met it first.
        self._marks: dict[tuple[RoleKind, int], int] = {}
        self._askers = Askers()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether it runs, and the registry has that."""
        return self.role.state is State.RUNNING and self._enrolment.told

    @property
    def early(self) -> bool:
        """Whether its partition is not wanted yet: it waits, and nobody waits for it."""
        return self._opening is not None and not self._opening.wanted()

    @property
    def outdated(self) -> bool:
        """Whether its partition was wanted, and is not any more: what it knows ages from then on,
        so that one that is made afresh has to take its place before the partition is wanted again.
        """
        return self._begun and self._wanted is not None and not self._wanted()

    @property
    def dead(self) -> list[str]:
        """What it does no more, by mistake: it will never run, or is not registered."""
        return errand.dead((self._task,)) + self._enrolment.dead

    def start(self) -> None:
        """Begin."""
        if self._opening is not None:
            self._enrolment.start()
            opening, what = self._open(self._opening), f"starting {self.role.kind.name}"
            self._task = errand.run(opening, what, ends=True)

    async def stop(self) -> None:
        """Rise; others learn of it at once."""
        await errand.end(self._task)
        await self._enrolment.stop()

    async def part(self, silence_s: float, now: float) -> None:
        """Let whoever asks know that this role takes no more, and wait until they do."""
        self.role.leaving = True
        await self._askers.told(silence_s, now)

    def meet(self, op: Pulse | Pulsed, source: Source, now: float) -> None:
        """Take note that somebody knows of this role."""
        if isinstance(op, Pulse):
            who, stored = (op.sender, op.sender_id), op.stored
            self._askers.note((*who, source.endpoint), now)
        elif self.role.kind is RoleKind.ROUTER:
            # Other routers say in their questions what they have written, not in their answers.
            return
        else:
            who, stored = (op.role, op.id), 0
        if self._opening is None:
            return
        # There may be less to write by now, but never more than counts.
        mark = self._marks[who] = min(self._marks.get(who, op.news), op.news)
        if stored >= mark:
            self._met.add(who)
            self._news.set()

    def look(self) -> None:
        """Look again whether all know of this role: something has changed."""
        self._news.set()

    def settle(self) -> None:
        """Let the registry have the role's state; called whenever that may have changed."""
        role = self.role
        place = self._enrolment.place
        modulus = getattr(role, "modulus", 0)
        if place.state is not role.state or place.modulus != modulus:
            waits = "" if role.state is State.RUNNING else place.waits
            changed = msgspec.structs.replace(place, state=role.state, modulus=modulus, waits=waits)
            self._enrolment.tell(changed)
            if role.state is State.RUNNING:
                self._enrolment.start()

    async def _open(self, opening: Opening) -> None:
        role = cast("Beginner", self.role)
        while not opening.wanted():
            self._news.clear()
            await self._news.wait()
        self._begun = True
        while not await self._is_known(opening):
            if role.id and opening.excused(self._met):
                log.warning("rooms.role.unknown", role=role.kind.name, id=role.id, reason=_UNKNOWN)
                break
            self._complain()
        await self._load(opening, role)
        self._opening = None
        self._met.clear()
        self._marks.clear()
        role.loaded(opening.clock.monotonic())
        self.settle()

    async def _is_known(self, opening: Opening) -> bool:
        """Wait a while until all know it who have to."""
        try:
            async with asyncio.timeout(opening.confirm_s):
                while not self.role.id or not opening.known(self._met):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _complain(self) -> None:
        """Say once, here and in the registry, what it waits for."""
        place, role = self._enrolment.place, self.role
        if not place.waits:
            log.warning("rooms.role.waits", role=role.kind.name, id=role.id, reason=_WAITS)
            self._enrolment.tell(msgspec.structs.replace(place, waits=_WAITS))

    async def _load(self, opening: Opening, role: Beginner) -> None:
        """Load what the store knows; run without it only if nobody else does."""
        while not await load_rows(opening.store, role, opening.load_s):
            alone = opening.alone()
            then = "as the only one it starts without" if alone else "others run; it tries again"
            log.error(
                "rooms.rows.missing",
                role=role.kind.name,
                id=role.id,
                reason=f"the store did not give the rows of rooms in time (rooms.load_timeout_s), "
                f"{then}; see whether the store can be reached and is not too slow",
            )
            if alone:
                return
