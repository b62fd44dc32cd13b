"""A station: a role of this process that is registered, from its beginnings to its end (R7, R8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, cast

import msgspec
import structlog

from chappe.clock import Clock
from chappe.registry.stop import stop
from chappe.rooms.enrolment import Enrolment
from chappe.rooms.role import Role
from chappe.rooms.rows import Loader, load_rows
from chappe.store.store import Store
from chappe.wire.rooms import RoleKind, State

log = structlog.get_logger()


class Member(Role, Protocol):
    """A role that has a state."""

    state: State


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
    # Whether those who have to know of the role do: what they hear from then on, it hears.
    known: Callable[[Met], bool]
    # Waits until what they heard before is in the store.
    written: Callable[[], Awaitable[object]]
    # After so long those who do not know of it do not count.
    confirm_s: float
    load_s: float


class Station:
    """Keeps a role in the registry, as what it is.

    A proxy sits down when it runs; who has an opening sits down first, and runs after it.
    """

    def __init__(
        self,
        role: Member,
        enrolment: Enrolment,
        opening: Opening | None = None,
    ) -> None:
        self.role = role
        self._enrolment = enrolment
        self._opening = opening
        self._met: Met = set()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether it runs, and the registry has that."""
        return self.role.state is State.RUNNING and self._enrolment.told

    def start(self) -> None:
        """Begin."""
        if self._opening is not None:
            self._enrolment.start()
            self._task = asyncio.create_task(self._open(self._opening))

    async def stop(self) -> None:
        """Rise; others learn of it at once."""
        await stop(self._task)
        await self._enrolment.stop()

    def meet(self, kind: RoleKind, number: int) -> None:
        """Take note that somebody knows of this role."""
        if self._opening is not None:
            self._met.add((kind, number))
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
            changed = msgspec.structs.replace(place, state=role.state, modulus=modulus)
            self._enrolment.tell(changed)
            if role.state is State.RUNNING:
                self._enrolment.start()

    async def _open(self, opening: Opening) -> None:
        role = cast("Beginner", self.role)
        try:
            async with asyncio.timeout(opening.confirm_s):
                while not role.id or not opening.known(self._met):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            log.warning("rooms.role.unknown", role=role.kind.name, id=role.id)
        await opening.written()
        if not await load_rows(opening.store, role, opening.load_s):
            log.error("rooms.rows.missing", role=role.kind.name, id=role.id)
        self._opening = None
        self._met.clear()
        role.loaded(opening.clock.monotonic())
        self.settle()
