"""Membership by seats in a row of the registry: for a mesh beside that of the nodes.

Members of the cluster are its nodes. Who forms a mesh of their own, such as the processes of push,
sit in a row of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import msgspec
import structlog

from chappe.errors import ClusterError
from chappe.registry.coordination import Coordination
from chappe.registry.enrolment import Enrolment
from chappe.registry.membership import Member, Members

log = structlog.get_logger()


class SeatedMembership:
    """Keeps somebody in a row, and tells who else is there."""

    def __init__(self, coordination: Coordination, path: str, lease_s: float) -> None:
        self._coordination = coordination
        self._path = path
        self._lease_s = lease_s
        self._enrolment: Enrolment[Member] | None = None
        self._seated = asyncio.Event()

    async def join(self, member: Member) -> None:
        """Take a seat; raises ClusterError when the registry gives none for a lease's time."""
        self._enrolment = Enrolment(
            self._coordination, self._path, member, lease_s=self._lease_s, seated=self._sat
        )
        self._enrolment.start()
        try:
            async with asyncio.timeout(self._lease_s):
                await self._seated.wait()
        except TimeoutError:
            await self.leave()
            raise ClusterError(f"registry: no seat at {self._path} in time") from None

    async def leave(self) -> None:
        """Rise."""
        if self._enrolment is not None:
            await self._enrolment.stop()
            self._enrolment = None

    async def replaced(self) -> Member:
        """Never happens: of two runs with one name the later one counts, and both may sit."""
        never: asyncio.Future[Member] = asyncio.get_running_loop().create_future()
        return await never

    async def watch(self) -> AsyncIterator[Members]:
        """Give who sits there; of several with one name the latest run."""
        async for row in self._coordination.watch_seats(self._path):
            yield _latest(row)

    async def close(self) -> None:
        """Rise; the registry is somebody else's to let go of."""
        await self.leave()

    def _sat(self, number: int) -> None:
        self._seated.set()


def _latest(row: Mapping[int, bytes]) -> dict[str, Member]:
    found: dict[str, Member] = {}
    for number, value in row.items():
        try:
            member = msgspec.json.decode(value, type=Member)
        except msgspec.MsgspecError as error:
            log.warning("seat.unreadable", id=number, reason=str(error))
            continue
        known = found.get(member.name)
        if known is None or member.incarnation >= known.incarnation:
            found[member.name] = member
    return found
