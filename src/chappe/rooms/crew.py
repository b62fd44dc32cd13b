"""The crew: the roles of this process that are registered, as many as there are partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Protocol, cast

import msgspec
import structlog

from chappe.registry import errand
from chappe.registry.coordination import Coordination
from chappe.registry.enrolment import Enrolment
from chappe.rooms.broker import Broker
from chappe.rooms.cast import Cast
from chappe.rooms.dispatch import Dispatch
from chappe.rooms.partition import router_partitions_of, sibling_of
from chappe.rooms.paths import paths_of
from chappe.rooms.roll import EMPTY, Place, Roll, Seat
from chappe.rooms.rows import RowWriter, audit_rows
from chappe.rooms.station import Member, Met, Opening, Station
from chappe.store.store import Store
from chappe.wire.rooms import RoleKind

log = structlog.get_logger()


class _Author(Protocol):
    """A role that has news for the store."""

    def changes(self) -> tuple[dict[str, bytes], list[str]]:
        """Rows to put and to remove; handed out once."""
        ...


class Crew:
    """Starts the proxy, brokers and routers of a process, and stops those not wanted any more."""

    def __init__(
        self,
        roles: Cast,
        dispatch: Dispatch,
        kinds: frozenset[RoleKind],
        coordination: Coordination,
        store: Store,
        writer: RowWriter,
        place: Place,
        *,
        lease_s: float,
        stir: Callable[[], None],
    ) -> None:
        self._cast = roles
        self._dispatch = dispatch
        self._kinds = kinds
        self._coordination = coordination
        self._store = store
        self._writer = writer
        self._place = place
        self._lease_s = lease_s
        self._stir = stir
        self._options = roles.options
        self._paths = paths_of(roles.options)
        self._roll = EMPTY
        self._leaving: set[errand.Errand] = set()
        self._audits: dict[Station, errand.Errand] = {}
        self.stations: dict[tuple[RoleKind, int], Station] = {}

    @property
    def running(self) -> bool:
        """Whether all that are wanted are there, and run."""
        stations = self.stations.values()
        return self._roll is not EMPTY and all(each.running or each.early for each in stations)

    @property
    def dead(self) -> list[str]:
        """What was to go on for ever and has ended, by mistake."""
        stations = chain.from_iterable(station.dead for station in self.stations.values())
        return [*errand.dead(self._audits.values()), *errand.dead(self._leaving), *stations]

    def see(self, roll: Roll) -> None:
        """Start who is wanted by now, and stop who is not.

        Who was started by hand for a doubling that was withdrawn is replaced: the next one waits.
        """
        self._roll = roll
        wanted = set(self._wanted(roll))
        outdated = {key for key, station in self.stations.items() if station.outdated}
        for key in sorted(self.stations.keys() - wanted | outdated):
            ending = self._end(key, self.stations.pop(key))
            task = errand.run(ending, f"withdrawing {key[0].name} {key[1]}", ends=True)
            self._leaving.add(task)
            task.add_done_callback(self._left)
        for key in sorted(wanted - self.stations.keys()):
            self._start(*key)
        for station in self.stations.values():
            station.look()

    def _left(self, task: errand.Errand) -> None:
        if not errand.failed(task):
            self._leaving.discard(task)

    def settle(self) -> int:
        """Let the registry have what has changed of them, and the store what is news: so much."""
        news = 0
        for station in self.stations.values():
            station.settle()
        for router in self._dispatch.routers.values():
            news += self._write(cast("_Author", router))
        return news

    def _write(self, router: _Author) -> int:
        puts, deletes = router.changes()
        if puts or deletes:
            self._writer.add(puts, deletes)
        return len(puts) + len(deletes)

    def _ledger(self, router: _Author) -> tuple[int, int]:
        """How many rows were news to a router of this process, and how many of them are stored."""
        self._write(router)
        return self._writer.news, self._writer.stored

    async def part(self, silence_s: float) -> None:
        """Let whoever asks know that nothing is taken here any more; what comes still is."""
        now = self._cast.clock.monotonic()
        stations = self.stations.values()
        await asyncio.gather(*[station.part(silence_s, now) for station in stations])

    async def stop(self) -> None:
        """Give up all seats; the roles still hear what comes."""
        for audit in list(self._audits.values()):
            await errand.end(audit)
        ending = [station.stop() for station in self.stations.values()]
        await asyncio.gather(*ending)
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _wanted(self, roll: Roll) -> Iterable[tuple[RoleKind, int]]:
        options = self._options
        if RoleKind.PROXY in self._kinds:
            yield RoleKind.PROXY, 0
        if RoleKind.BROKER in self._kinds:
            for partition in _partitions(options.partition, roll.wanted):
                yield RoleKind.BROKER, partition
        if RoleKind.ROUTER in self._kinds and not options.independent_routers:
            yield RoleKind.ROUTER, 0
        elif RoleKind.ROUTER in self._kinds:
            for partition in _partitions(options.router_partition, roll.router_wanted):
                yield RoleKind.ROUTER, partition

    def _start(self, kind: RoleKind, partition: int) -> None:
        role, path, opening = self._made(kind, partition)
        place = msgspec.structs.replace(self._place, state=role.state)
        enrolment = Enrolment(
            self._coordination,
            path,
            place,
            lease_s=self._lease_s,
            seated=partial(self._seat, role),
        )
        station = Station(role, enrolment, opening)
        self.stations[kind, partition] = station
        self._dispatch.meeting[role] = station.meet
        station.start()
        if kind is RoleKind.ROUTER:
            every_s = self._options.audit_s
            audit = role.audit  # type: ignore[attr-defined]
            auditing = audit_rows(self._store, audit, self._cast.clock, every_s)
            self._audits[station] = errand.run(auditing, "comparing the store with what is known")

    def _made(self, kind: RoleKind, partition: int) -> tuple[Member, str, Opening | None]:
        dispatch, independent = self._dispatch, self._options.independent_routers
        if kind is RoleKind.PROXY:
            dispatch.proxy = proxy = self._cast.proxy()
            return proxy, self._paths.proxies, None
        if kind is RoleKind.BROKER:
            dispatch.brokers[partition] = broker = self._cast.broker(partition)
            known = partial(self._known_to_routers, partition)
            wanted = partial(self._broker_wanted, partition)
            opening = self._opening(
                wanted,
                known,
                alone=partial(self._alone, broker),
                excused=partial(self._broker_excused, partition),
            )
            return broker, self._paths.brokers.row(partition), opening
        dispatch.routers[partition] = router = self._cast.router(partition)
        router.pulses.ledger = partial(self._ledger, router)
        if not independent:
            return router, self._paths.routers, self._opening(_wanted_anyway, _known_anyway)
        wanted = partial(self._router_wanted, partition)
        known = partial(self._known_to_peers, router, partition)
        # Who lives asks four times in a beat. What others have not written by then they tell it
        # once they know of it, and gateways tell it of all rooms when it is a new one.
        confirm_s = min(self._options.beat_s, self._options.confirm_s)
        excused = partial(self._router_excused, partition)
        opening = self._opening(wanted, known, confirm_s=confirm_s, excused=excused)
        return router, self._paths.independent.row(partition), opening

    def _broker_wanted(self, partition: int) -> bool:
        return partition < max(self._roll.partitions, self._roll.wanted)

    def _router_wanted(self, partition: int) -> bool:
        return partition < max(self._roll.router_partitions, self._roll.router_wanted)

    def _broker_excused(self, partition: int, met: Met) -> bool:
        return partition < self._roll.partitions

    def _router_excused(self, partition: int, met: Met) -> bool:
        """Whether a router's partition is in use, or those know it who have its rooms until then;
        the others of a partition that is new have heard nothing that they do not have as well."""
        number = self._roll.router_partitions
        sibling = sibling_of(partition, max(number, 1))
        row = self._roll.independent.get(sibling, ())
        return partition < number or all((RoleKind.ROUTER, seat.id) in met for seat in row)

    def _opening(
        self,
        wanted: Callable[[], bool],
        known: Callable[[Met], bool],
        *,
        alone: Callable[[], bool] | None = None,
        confirm_s: float | None = None,
        excused: Callable[[Met], bool] | None = None,
    ) -> Opening:
        return Opening(
            store=self._store,
            clock=self._cast.clock,
            wanted=wanted,
            known=known,
            alone=alone or _alone_anyway,
            confirm_s=self._options.confirm_s if confirm_s is None else confirm_s,
            load_s=self._options.load_timeout_s,
            excused=excused or _excused_anyway,
        )

    def _seat(self, role: Member, number: int) -> None:
        self._dispatch.seat(role, number)
        if (station := self._of(role)) is not None:
            station.look()
        self._stir()

    def _of(self, role: Member) -> Station | None:
        return next((each for each in self.stations.values() if each.role is role), None)

    async def _end(self, key: tuple[RoleKind, int], station: Station) -> None:
        """Let others know first: until they do, the role goes on."""
        kind, partition = key
        log.info("rooms.role.withdrawn", role=kind.name, partition=partition)
        await errand.end(self._audits.pop(station, None))
        await station.stop()
        self._dispatch.forget(station.role)
        roles = self._dispatch.brokers if kind is RoleKind.BROKER else self._dispatch.routers
        if roles.get(partition) is station.role:
            del roles[partition]

    def _known_to_routers(self, partition: int, met: Met) -> bool:
        """Whether what routers hear from now on comes to a broker of a partition."""
        roll = self._roll
        if not self._options.independent_routers:
            return all((RoleKind.ROUTER, seat.id) in met for seat in roll.routers)
        own = router_partitions_of(partition, max(roll.partitions, 1), roll.router_partitions)
        rows = [roll.independent.get(each, ()) for each in own]
        return all(not row or _any_met(row, met) for row in rows)

    def _known_to_peers(self, router: Member, partition: int, met: Met) -> bool:
        """Whether what other routers of its rooms have heard so far is in the store: those of its
        own partition, and of the one that has its rooms before a doubling."""
        roll = self._roll
        sibling = sibling_of(partition, max(roll.router_partitions, 1))
        rows = [roll.independent.get(each, ()) for each in {partition, sibling}]
        others = {seat.id for row in rows for seat in row if not self._is_earlier_life(seat)}
        return all((RoleKind.ROUTER, number) in met for number in others - {router.id})

    def _is_earlier_life(self, seat: Seat) -> bool:
        """Whether a router was one of this node before it was started anew."""
        own = {router.id for router in self._dispatch.routers.values()}
        return seat.name == self._place.name and seat.id not in own

    def _alone(self, broker: Broker) -> bool:
        """Whether no other replica of a broker's partition runs."""
        row = self._roll.brokers.get(broker.partition, ())
        return not any(seat.running and seat.id != broker.id for seat in row)


def _partitions(own: int | None, wanted: int) -> Iterable[int]:
    return range(wanted) if own is None else (own,)


def _any_met(row: Iterable[Seat], met: Met) -> bool:
    return any((RoleKind.ROUTER, seat.id) in met for seat in row)


def _wanted_anyway() -> bool:
    """A router that finds brokers in the registry has no partition."""
    return True


def _known_anyway(met: Met) -> bool:
    """Nobody tells a router anything because the store does not know it yet."""
    return True


def _excused_anyway(met: Met) -> bool:
    """A router that finds brokers in the registry is of no new partition."""
    return True


def _alone_anyway() -> bool:
    """A router carries what it is told, whatever it has loaded."""
    return True
