"""Doubling: from P partitions to 2P, of brokers or of independent routers, losing nothing (R9).

    nobody runs      who made ready for one that was withdrawn has ended, or waits
    wanted = 2P      new partitions are started, and load what their siblings have
    all are Running  as many as their siblings have, and each has what it needs
    number = 2P      proxies follow; brokers keep both until all proxies do, then clean up
    no wanted        all have cleaned up

What is done is in the registry alone. So whoever was interrupted begins again and goes on where the
last one was; only before the number is set may one take it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from enum import StrEnum
from typing import NamedTuple, cast

import structlog

from chappe.errors import ClusterError, Conflict
from chappe.registry.coordination import Coordination, Versioned
from chappe.rooms.bench import Bench
from chappe.rooms.division import Division, read_number
from chappe.rooms.options import RoomsOptions
from chappe.rooms.partition import PARTITIONS_MAX, is_power_of_two
from chappe.rooms.paths import Partitioned, paths_of
from chappe.rooms.roll import Seats
from chappe.rooms.watches import Watches

log = structlog.get_logger()

# A tool has no lease of its own; it tries this often while the registry does not answer.
_LEASE_S = 15.0


class Step(StrEnum):
    """How far a doubling is."""

    # One that was withdrawn is not over; nothing of the next is begun.
    RESTING = "resting"
    # New partitions make ready.
    READYING = "readying"
    # The number is set; not all have cleaned up yet.
    CLEANING = "cleaning"
    DONE = "done"


class Progress(NamedTuple):
    """How far a doubling is, who has which partition, and what it waits for."""

    step: Step
    partitions: int
    wanted: int
    replicas: Mapping[int, Seats]
    missing: tuple[str, ...]
    # Of so many replicas that have something to do in this step, so many have done it.
    ready: int = 0
    of: int = 0
    # Whether the number had been set before, so that nothing but the cleaning was left.
    resumed: bool = False


class NotDoubled(ClusterError):
    """A doubling did not come to its end; `missing` says what stands in its way."""

    def __init__(self, reason: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__("; ".join((reason, *missing)))
        self.reason = reason
        self.missing = missing


class Doubling:
    """Doubles the partitions of one kind; made for one run."""

    def __init__(
        self,
        coordination: Coordination,
        paths: Partitioned,
        *,
        role: str,
        replicas: int | None = None,
    ) -> None:
        assert replicas is None or replicas > 0
        self._coordination = coordination
        self._paths = paths
        self._role = role
        # How many each new partition is to have; as many as its sibling, if nobody says it.
        self._least = replicas
        self._begun = False
        self._news = asyncio.Event()
        self._division = Division(
            coordination,
            paths,
            lease_s=_LEASE_S,
            changed=self._news.set,
            forgotten=self._news.set,
            # Only who is there counts.
            stand_s=0.0,
        )

    async def run(self, tell: Callable[[Progress], None], timeout_s: float) -> Progress:
        """Double, or go on with a doubling that was begun; `tell` hears of each change.

        Raises NotDoubled when there is nothing to double, or when new partitions are not ready in
        time: then it may be run again, or withdrawn. That not all have cleaned up in time is no
        failure, and is said in the result. Cancelling it leaves what is done.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._find()
                self._division.start()
                await self._looked()
            return await self._double(tell, timeout_s)
        except TimeoutError:
            raise NotDoubled(f"the registry did not answer within {timeout_s:g} s") from None
        finally:
            await self._division.stop()

    async def withdraw(self) -> int:
        """Take a doubling back that has not set the number yet, and give that number.

        Raises NotDoubled when there is none.
        """
        number = read_number(await self._coordination.get(self._paths.number), self._paths.number)
        found = await self._coordination.get(self._paths.wanted)
        if found is None or read_number(found, self._paths.wanted) <= number:
            raise NotDoubled("no doubling is under way")
        await self._put(self._paths.wanted, 0, found)
        return number

    async def _double(self, tell: Callable[[Progress], None], timeout_s: float) -> Progress:
        before = self._division.number
        if self._division.asked == before:
            # Somebody has set the number, and did not see all clean up.
            done = await self._clean(before, tell, timeout_s)
            return done._replace(resumed=True)
        wanted = 2 * before
        if wanted > PARTITIONS_MAX:
            raise NotDoubled(f"{PARTITIONS_MAX} partitions are the most")
        if self._division.wanted > wanted:
            raise NotDoubled(
                f"{self._division.wanted} partitions are wanted already, where {before} are"
            )
        await self._rest(before, wanted, tell, timeout_s)
        if self._division.number > before:
            # Somebody else has doubled meanwhile: to double that once more is not what was asked.
            done = await self._clean(self._division.number, tell, timeout_s)
            return done._replace(resumed=True)
        await self._want(before, wanted)
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready(before, wanted, tell)
        except TimeoutError:
            missing = self._unready(before, wanted)
            raise NotDoubled(f"not ready within {timeout_s:g} s", missing) from None
        await self._switch(before, wanted)
        return await self._clean(wanted, tell, timeout_s)

    async def _find(self) -> None:
        """See that there is something to double; who watches would make a number of its own."""
        try:
            if await self._coordination.get(self._paths.number) is not None:
                return
        except ClusterError as error:
            raise NotDoubled(f"the registry does not answer: {error}") from None
        # A registry that has just come back empty is told the number after who is there.
        views = self._coordination.watch_seats(self._paths.row(0))
        async with aclosing(cast("AsyncGenerator[Mapping[int, bytes], None]", views)) as rows:
            async for row in rows:
                if row:
                    return
                break
        raise NotDoubled(self._nobody)

    async def _looked(self) -> None:
        """Wait until everything has been looked at."""
        while not self._division.known:
            self._news.clear()
            await self._news.wait()

    async def _ready(self, before: int, wanted: int, tell: Callable[[Progress], None]) -> None:
        """Wait until all new partitions have replicas enough, and all of these run."""
        while True:
            self._news.clear()
            if self._division.number > before:
                # Somebody else has gone on with it.
                return
            if self._division.wanted < wanted:
                await self._want(before, wanted)
            missing = self._unready(before, wanted)
            tell(self._progress(Step.READYING, before, wanted, missing))
            if not missing and self._division.wanted == wanted and self._division.known:
                return
            await self._news.wait()

    async def _rest(
        self, before: int, wanted: int, tell: Callable[[Progress], None], timeout_s: float
    ) -> None:
        """Wait until nobody runs any more that made ready for a doubling that was withdrawn.

        Since then nobody has told it of rooms: it would count as ready, and not know them. Raises
        NotDoubled.
        """
        benches = {partition: Bench(0.0) for partition in range(before, wanted)}
        watches = Watches(self._coordination, self._news.set)
        for partition, bench in benches.items():
            watches.bench(self._paths.row(partition), bench)
        running: tuple[str, ...] = ()
        try:
            async with asyncio.timeout(timeout_s):
                # One that is under way is gone on with.
                while self._division.wanted < wanted:
                    self._news.clear()
                    running = self._still_running(benches)
                    if not running and all(bench.known for bench in benches.values()):
                        return
                    if running:
                        tell(self._progress(Step.RESTING, before, wanted, running))
                    await self._news.wait()
                self._begun = True
        except TimeoutError:
            reason = f"a doubling that was withdrawn is not over within {timeout_s:g} s"
            raise NotDoubled(reason, running) from None
        finally:
            await watches.stop()

    def _still_running(self, benches: Mapping[int, Bench]) -> tuple[str, ...]:
        now = asyncio.get_running_loop().time()
        return tuple(
            f"{self._role} {seat.id} of partition {partition}, on {seat.name}, is still Running: "
            "restart it"
            for partition, bench in benches.items()
            for seat in bench.seats(now)
            if seat.running
        )

    async def _want(self, before: int, wanted: int) -> None:
        """Say how many there are to be, unless that was said; what a registry forgot is said anew.

        Raises NotDoubled when somebody has withdrawn it meanwhile.
        """
        found = await self._coordination.get(self._paths.wanted)
        value = read_number(found, self._paths.wanted)
        if found is not None and not value and self._begun:
            raise NotDoubled("it was withdrawn meanwhile")
        self._begun = True
        if value != wanted:
            await self._put(self._paths.wanted, wanted, found)

    async def _switch(self, before: int, wanted: int) -> None:
        found = await self._coordination.get(self._paths.number)
        if read_number(found, self._paths.number) == before:
            await self._put(self._paths.number, wanted, found)

    async def _put(self, path: str, number: int, found: Versioned | None) -> None:
        try:
            await self._coordination.put(
                path, b"%d" % number, None if found is None else found.version
            )
        except Conflict as conflict:
            there = conflict.found
            now = None if there is None else Versioned(*there)
            if read_number(now, path) != number:
                raise NotDoubled(f"somebody else has changed {path} meanwhile") from None

    async def _clean(
        self, number: int, tell: Callable[[Progress], None], timeout_s: float
    ) -> Progress:
        """Wait, as long as one wants to, until all have cleaned up."""
        try:
            async with asyncio.timeout(timeout_s):
                while missing := self._unclean(number):
                    tell(self._progress(Step.CLEANING, number, number, missing))
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return self._progress(Step.CLEANING, number, number, self._unclean(number))
        await self._finish(number)
        done = self._progress(Step.DONE, number, number, ())
        tell(done)
        return done

    async def _finish(self, number: int) -> None:
        """Let the next one begin anew."""
        found = await self._coordination.get(self._paths.wanted)
        if found is not None and read_number(found, self._paths.wanted) == number:
            try:
                await self._coordination.delete(self._paths.wanted, found.version)
            except Conflict:
                log.info("rooms.doubling.another", path=self._paths.wanted)

    def _progress(
        self, step: Step, partitions: int, wanted: int, missing: tuple[str, ...]
    ) -> Progress:
        replicas = self._replicas()
        if step is Step.RESTING:
            ready = of = 0
        elif step is Step.READYING:
            ready, of = self._count_ready(replicas, partitions, wanted)
        else:
            ready, of = _cleaned(replicas, wanted)
        return Progress(step, partitions, wanted, replicas, missing, ready, of)

    def _replicas(self) -> dict[int, Seats]:
        now = asyncio.get_running_loop().time()
        benches = self._division.benches
        return {partition: benches[partition].seats(now) for partition in sorted(benches)}

    def _unready(self, before: int, wanted: int) -> tuple[str, ...]:
        """What is not ready of the new partitions, and what to do about it."""
        missing = []
        replicas = self._replicas()
        for partition in range(before, wanted):
            seats = replicas.get(partition, ())
            running = sum(seat.running for seat in seats)
            needed = self._needed(replicas, partition, before)
            if not seats:
                missing.append(
                    f"partition {partition} has no {self._role}: start one with "
                    f"{self._flag} {partition}"
                )
            elif len(seats) < needed:
                missing.append(
                    f"partition {partition} has {running} of {needed} replicas Running: start "
                    f"another with {self._flag} {partition}, or say --replicas"
                )
            missing += [
                f"{self._role} {seat.id} of partition {partition}, on {seat.name}, is not Running"
                + (f": {seat.place.waits}" if seat.place.waits else "")
                for seat in seats
                if not seat.running
            ]
        return tuple(missing)

    def _needed(self, replicas: Mapping[int, Seats], partition: int, before: int) -> int:
        """How many replicas a new partition is to have at the least: where its sibling has several
        since machines die, it would be the death of one that loses its rooms."""
        return self._least or max(len(replicas.get(partition - before, ())), 1)

    def _count_ready(
        self, replicas: Mapping[int, Seats], before: int, wanted: int
    ) -> tuple[int, int]:
        """Of the replicas that new partitions have, or are to have, how many run."""
        ready = of = 0
        for partition in range(before, wanted):
            seats = replicas.get(partition, ())
            ready += sum(seat.running for seat in seats)
            of += max(len(seats), self._needed(replicas, partition, before))
        return ready, of

    @property
    def _flag(self) -> str:
        return "--partition" if self._role == "broker" else "--router-partition"

    @property
    def _nobody(self) -> str:
        system = self._paths.root.split("/")[1]
        if self._role == "broker":
            return f"no system {system} at this registry: nobody is registered there"
        return (
            f"no independent routers of system {system} at this registry: nobody is registered in "
            "any partition of routers"
        )

    def _unclean(self, number: int) -> tuple[str, ...]:
        """Who still keeps what is another's by now, as they say themselves."""
        return tuple(
            f"{self._role} {seat.id} of partition {partition}, on {seat.name}, has not cleaned up"
            for partition, seats in self._replicas().items()
            for seat in seats
            if 0 < seat.place.modulus < number
        )


def _cleaned(replicas: Mapping[int, Seats], number: int) -> tuple[int, int]:
    """Of the replicas that say what they keep, how many keep no more than is theirs."""
    kept = [seat.place.modulus for seats in replicas.values() for seat in seats]
    return sum(modulus >= number for modulus in kept), sum(modulus > 0 for modulus in kept)


def doubling_of(
    coordination: Coordination,
    options: RoomsOptions,
    *,
    routers: bool = False,
    replicas: int | None = None,
) -> Doubling:
    """Make the doubling of a system's brokers, or of the independent routers that it uses.

    New partitions have so many replicas at the least, or as many as their siblings.
    """
    paths = paths_of(options)
    if routers:
        return Doubling(coordination, paths.independent, role="router", replicas=replicas)
    return Doubling(coordination, paths.brokers, role="broker", replicas=replicas)


async def lay_out(coordination: Coordination, paths: Partitioned, partitions: int) -> int:
    """Say with how many partitions a new system begins, and give how many it has.

    Raises ClusterError. One that has a number already keeps it.
    """
    assert is_power_of_two(partitions)
    try:
        await coordination.put(paths.number, b"%d" % partitions, None)
    except Conflict as conflict:
        there = conflict.found
        return read_number(None if there is None else Versioned(*there), paths.number)
    return partitions
