"""A division: how many partitions there are, how many there are to be, and who has each (R4, R9).

The number never falls: whoever sees less in the registry than it has seen before, since that was
restarted empty or stepped back in time, writes back what it knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from chappe.errors import ClusterError, Conflict
from chappe.registry.coordination import Coordination, Versioned
from chappe.registry.enrolment import TRIES
from chappe.rooms.bench import Bench
from chappe.rooms.partition import is_power_of_two
from chappe.rooms.paths import Partitioned
from chappe.rooms.watches import Watches

log = structlog.get_logger()


class Division:
    """The partitions of brokers, or of independent routers."""

    def __init__(
        self,
        coordination: Coordination,
        paths: Partitioned,
        *,
        lease_s: float,
        changed: Callable[[], None],
        forgotten: Callable[[], None],
        stand_s: float | None = None,
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self._pause_s = lease_s / TRIES
        # How long who was forgotten stands.
        self._stand_s = lease_s if stand_s is None else stand_s
        self._changed = changed
        self._forgotten = forgotten
        self._watches = Watches(coordination, changed)
        # What somebody has asked for; 0: nothing, or nobody has looked yet.
        self.asked = 0
        self._asked_known = False
        # 0: not known yet.
        self.number = 0
        self.benches: dict[int, Bench] = {}

    @property
    def wanted(self) -> int:
        """How many there are to be; as many as there are, if nobody says more."""
        return max(self.asked, self.number)

    @property
    def known(self) -> bool:
        """Whether everything has been looked at once."""
        looked = self.number > 0 and self._asked_known
        return looked and all(bench.known for bench in self.benches.values())

    @property
    def dead(self) -> list[str]:
        """What of it is watched no more, by mistake."""
        return self._watches.dead

    def start(self) -> None:
        """Begin to watch."""
        self._watches.value(self._paths.number, self._see_number)
        self._watches.value(self._paths.wanted, self._see_wanted)

    async def stop(self) -> None:
        """Watch no more."""
        await self._watches.stop()

    async def _see_number(self, found: Versioned | None) -> None:
        number = read_number(found, self._paths.number)
        if found is None and self.number:
            log.warning("rooms.registry.empty", path=self._paths.number)
            self._forgotten()
        if found is None or 0 < number < self.number:
            await self._write_back(found)
        elif number > self.number:
            self.number = number
            await self._watch_rows()
            self._changed()

    async def _see_wanted(self, found: Versioned | None) -> None:
        self.asked = read_number(found, self._paths.wanted)
        self._asked_known = True
        await self._watch_rows()
        self._changed()

    async def _write_back(self, found: Versioned | None) -> None:
        """Write the largest number that was ever seen, 1 if none was; others may be faster."""
        value = b"%d" % max(self.number, 1)
        while True:
            try:
                await self._coordination.put(
                    self._paths.number, value, None if found is None else found.version
                )
            except Conflict:
                return
            except ClusterError as error:
                log.debug("rooms.number.unwritten", path=self._paths.number, reason=str(error))
                await asyncio.sleep(self._pause_s)
            else:
                return

    async def _watch_rows(self) -> None:
        """Watch the partitions that there are, and are to be, and no others."""
        for partition in range(self.wanted):
            if partition not in self.benches:
                bench = self.benches[partition] = Bench(self._stand_s)
                self._watches.bench(self._paths.row(partition), bench)
        for partition in [known for known in self.benches if known >= self.wanted]:
            del self.benches[partition]
            await self._watches.end(self._paths.row(partition))


def read_number(found: Versioned | None, path: str) -> int:
    """Read a number of partitions; 0 if there is none, or none that may be."""
    if found is None:
        return 0
    text = found.value.decode(errors="replace").strip()
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
    if text != "0" and not is_power_of_two(number):
        log.warning("rooms.number.unreadable", path=path, value=text[:40])
        return 0
    return number
