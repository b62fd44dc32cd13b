"""Enrolment: somebody's seat in a row of the registry, kept for as long as they live (R4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
import structlog

from chappe.errors import ClusterError
from chappe.registry import errand
from chappe.registry.coordination import Coordination, HeldSeat

log = structlog.get_logger()

# What the holder of a seat says of itself.
Place = TypeVar("Place", bound=msgspec.Struct)

# Tries in one lease's time while the registry does not answer.
TRIES = 15


class Enrolment(Generic[Place]):
    """Sits, says what its holder is, and sits again when the seat was lost.

    While the registry is away it keeps trying; the holder goes on as who it was.
    """

    def __init__(
        self,
        coordination: Coordination,
        path: str,
        place: Place,
        *,
        lease_s: float,
        seated: Callable[[int], None],
    ) -> None:
        self._coordination = coordination
        self._path = path
        self._pause_s = lease_s / TRIES
        self._seated = seated
        self._seat: HeldSeat | None = None
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._risen = False
        # What others are to know, and what they were told.
        self.place = place
        self._told: Place | None = None

    def start(self) -> None:
        """Begin; `seated` is called with each number the registry gives. Who has risen stays so."""
        if self._task is None and not self._risen:
            self._task = errand.run(self._stay(), f"registering at {self._path}")

    def tell(self, place: Place) -> None:
        """Let others know, as soon as the registry can be reached."""
        if place != self.place:
            self.place = place
            self._news.set()

    @property
    def dead(self) -> list[str]:
        """Which seat is kept no more, by mistake."""
        return errand.dead((self._task,))

    @property
    def told(self) -> bool:
        """Whether others can know all that they are to."""
        return self._told == self.place

    async def stop(self) -> None:
        """Rise; others learn of it at once, or when the lease is over."""
        self._risen = True
        await errand.end(self._task)
        self._task = None
        if self._seat is not None:
            await self._seat.release()
            self._seat = None

    async def _stay(self) -> None:
        while True:
            try:
                place = self.place
                seat = await self._coordination.sit(self._path, msgspec.json.encode(place))
            except ClusterError as error:
                log.debug(
                    "seat.none",
                    path=self._path,
                    reason=f"the registry did not take it yet, which is tried again: {error}",
                )
                await asyncio.sleep(self._pause_s)
                continue
            self._seat, self._told = seat, place
            self._seated(seat.number)
            await self._hold(seat)
            log.warning("seat.lost", path=self._path, id=seat.number)

    async def _hold(self, seat: HeldSeat) -> None:
        """Tell what changes, until the seat is lost."""
        losing = asyncio.create_task(seat.lost())
        losing.add_done_callback(lambda _: self._news.set())
        try:
            while not losing.done():
                self._news.clear()
                if self._told != self.place:
                    await self._tell(seat)
                else:
                    await self._news.wait()
        finally:
            losing.cancel()

    async def _tell(self, seat: HeldSeat) -> None:
        place = self.place
        try:
            await seat.tell(msgspec.json.encode(place))
        except ClusterError as error:
            log.debug("seat.untold", path=self._path, reason=str(error))
            await asyncio.sleep(self._pause_s)
        else:
            self._told = place
