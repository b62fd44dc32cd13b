"""Ways that probes go: by each proxy to each broker, some of them each round (R15)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from chappe.rooms.blame import Path
from chappe.rooms.linkstats import End, Link
from chappe.rooms.options import RoomsOptions
from chappe.rooms.role import Endpoint
from chappe.rooms.roll import Roll, Seat, Seats
from chappe.wire.rooms import RoleKind

# Who is new has to be seen by others first.
_SETTLE_BEATS = 2


class Way(NamedTuple):
    """A way that a probe goes, and where it is sent to first."""

    path: Path
    proxy: Endpoint

    @property
    def broker(self) -> End:
        """The broker that it goes by."""
        return self.path.to_broker.head


class Ways:
    """All ways of a process, and whose turn it is.

    Of a layout with more links than are looked at, each process takes a share of the ways, by its
    `spread`: others take others.
    """

    def __init__(self, options: RoomsOptions, name: str, spread: int) -> None:
        self._options = options
        self._publisher = End(RoleKind.PUBLISHER, name)
        self._gateway = End(RoleKind.GATEWAY, name)
        self._spread = spread
        self._ways: list[Way] = []
        self._turn = 0
        # Who is registered, and since when.
        self._since: dict[End, float] = {}

    def __len__(self) -> int:
        return len(self._ways)

    def see(self, roll: Roll, now: float) -> None:
        """Find the ways anew."""
        proxies = {End(RoleKind.PROXY, seat.name, seat.id): seat for seat in _lives(roll.proxies)}
        brokers = {
            End(RoleKind.BROKER, seat.name, seat.id, partition): seat
            for partition, seats in sorted(roll.brokers.items())
            for seat in _lives(seats)
        }
        self._since = {end: self._since.get(end, now) for end in (*proxies, *brokers)}
        ways_max = max(1, self._options.probe.links_max - len(self._since))
        running = [(end, seat) for end, seat in proxies.items() if seat.running]
        ends = [end for end, seat in brokers.items() if seat.running]
        self._ways = [
            self._way(*proxy, broker)
            for _, (proxy, broker) in zip(
                range(ways_max), _diagonals(running, ends, self._spread), strict=False
            )
        ]

    def leads(self, path: Path) -> bool:
        """Whether those that a path goes by are still registered."""
        return path.to_proxy.head in self._since and path.to_gateway.tail in self._since

    def has(self, link: Link) -> bool:
        """Whether the ends of a link are still registered, as far as they are others."""
        own = (self._publisher, self._gateway)
        return all(end in self._since or end in own for end in link)

    def take(self, now: float, known: Callable[[int], bool]) -> list[Way]:
        """The ways of the next round; `known` says of a partition whether it knows the room."""
        ready = [way for way in self._ways if self._is_ready(way, now, known)]
        if not ready:
            return []
        count = min(len(ready), self._options.probe.round_max)
        start = self._turn % len(ready)
        self._turn = (start + count) % len(ready)
        return (ready + ready)[start : start + count]

    def give_back(self, count: int) -> None:
        """The last so many that were taken were not gone: they come first in the next round."""
        self._turn -= count

    def _is_ready(self, way: Way, now: float, known: Callable[[int], bool]) -> bool:
        broker = way.broker
        since = self._since[broker]
        if now - max(since, self._since[way.path.to_proxy.head]) < (
            _SETTLE_BEATS * self._options.beat_s
        ):
            return False
        # A room that never gets known is no reason to be silent about the rest for ever.
        return known(broker.partition or 0) or now - since >= self._options.join_timeout_s

    def _way(self, proxy: End, seat: Seat, broker: End) -> Way:
        path = Path(Link(self._publisher, proxy), Link(proxy, broker), Link(broker, self._gateway))
        return Way(path, seat.endpoint)


def _lives(seats: Seats) -> Iterable[Seat]:
    """Of each node the latest: one that was killed is registered until its lease is over, and what
    is lost on the way to it would be told of under the name of who lives."""
    return {seat.name: seat for seat in seats}.values()


def _diagonals(
    proxies: list[tuple[End, Seat]], brokers: list[End], spread: int
) -> Iterator[tuple[tuple[End, Seat], End]]:
    """Each proxy with each broker, so that few in a row go by many of both."""
    for shift in range(spread, spread + len(brokers)):
        for number, proxy in enumerate(proxies):
            yield proxy, brokers[(number + shift) % len(brokers)]
