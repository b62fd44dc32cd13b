"""The lookout: keeps the roll as the registry has it, and says when it has changed (R4).

While the registry is away the last roll stands; when it comes back empty, for one lease's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from chappe.registry.coordination import Coordination, Versioned
from chappe.rooms.bench import Bench
from chappe.rooms.division import Division
from chappe.rooms.paths import Partitioned, Paths
from chappe.rooms.roll import EMPTY, Roll, Seats, Weights
from chappe.rooms.watches import Watches

log = structlog.get_logger()

# Beyond the moment at which something runs out: clocks count in steps.
_SLACK_S = 0.01
# Of those that are gone, so many are named.
_NAMED_MAX = 10


class Lookout:
    """Watches all paths of a system of rooms."""

    def __init__(
        self,
        coordination: Coordination,
        paths: Paths,
        *,
        independent: bool,
        lease_s: float,
        changed: Callable[[Roll], None],
    ) -> None:
        self._paths = paths
        self._independent = independent
        self._tell = changed
        self._watches = Watches(coordination, self._stir)
        self._proxies = Bench(lease_s)
        self._routers = Bench(lease_s)
        self._weights = Weights()
        self._brokers = self._division(coordination, paths.brokers, lease_s)
        self._own_routers = self._division(coordination, paths.independent, lease_s)
        self._look: asyncio.TimerHandle | asyncio.Handle | None = None
        self._soon = False
        self._started = False
        self.roll = EMPTY

    @property
    def dead(self) -> list[str]:
        """What is watched no more, by mistake."""
        return self._watches.dead + self._brokers.dead + self._own_routers.dead

    def start(self) -> None:
        """Begin; `changed` is called with each new roll, never from within this call."""
        self._started = True
        self._watches.bench(self._paths.proxies, self._proxies)
        self._watches.value(self._paths.weights, self._see_weights)
        self._brokers.start()
        if self._independent:
            self._own_routers.start()
        else:
            self._watches.bench(self._paths.routers, self._routers)

    async def stop(self) -> None:
        """Watch no more; the roll stays what it was."""
        self._started = False
        if self._look is not None:
            self._look.cancel()
        await self._watches.stop()
        await self._brokers.stop()
        await self._own_routers.stop()

    def _division(self, coordination: Coordination, paths: Partitioned, lease_s: float) -> Division:
        return Division(
            coordination,
            paths,
            lease_s=lease_s,
            changed=self._stir,
            forgotten=self._forget,
        )

    async def _see_weights(self, found: Versioned | None) -> None:
        if found is None and self._weights != Weights():
            log.warning(
                "rooms.weights.forgotten",
                reason="the registry has no weights any more: whoever set them has to do so again",
            )
        try:
            self._weights = read_weights(found)
        except msgspec.MsgspecError as error:
            log.warning("rooms.weights.unreadable", path=self._paths.weights, reason=str(error))
        self._stir()

    def _benches(self) -> list[Bench]:
        return [
            self._proxies,
            self._routers,
            *self._brokers.benches.values(),
            *self._own_routers.benches.values(),
        ]

    def _forget(self) -> None:
        now = asyncio.get_running_loop().time()
        for bench in self._benches():
            bench.forget(now)
        self._stir()

    def _stir(self) -> None:
        """Look once for all that changes in one turn of the loop."""
        if self._soon or not self._started:
            return
        self._soon = True
        if self._look is not None:
            self._look.cancel()
        self._look = asyncio.get_running_loop().call_soon(self._call_roll)

    def _call_roll(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._soon = False
        self._look = None
        until = min(bench.until(now) for bench in self._benches())
        if until < float("inf"):
            self._look = loop.call_at(until + _SLACK_S, self._call_roll)
        if self.roll is EMPTY and not self._complete():
            # Half a view is worse than none: who is missing would seem to be gone.
            return
        roll = self._called(now)
        if roll != self.roll:
            _miss_weighed(self.roll, roll)
            self.roll = roll
            self._tell(roll)

    def _complete(self) -> bool:
        """Whether everything has been looked at once."""
        if not self._brokers.known or not self._proxies.known:
            return False
        return self._own_routers.known if self._independent else self._routers.known

    def _called(self, now: float) -> Roll:
        return Roll(
            proxies=self._proxies.seats(now),
            routers=self._routers.seats(now),
            brokers=_seats(self._brokers.benches, now),
            partitions=self._brokers.number,
            wanted=self._brokers.wanted,
            independent=_seats(self._own_routers.benches, now),
            router_partitions=self._own_routers.number,
            router_wanted=self._own_routers.wanted,
            weights=self._weights,
        )


def read_weights(found: Versioned | None) -> Weights:
    """Read what somebody outside has set; raises MsgspecError."""
    return Weights() if found is None else msgspec.json.decode(found.value, type=Weights)


def _miss_weighed(before: Roll, roll: Roll) -> None:
    """Say whose weight is of no use any more: who is started anew has another id, and no weight.

    It is not handed on. One that was given nothing so that it could be restarted is wanted again.
    """
    gone = [
        f"{role} {seat.id} on {seat.name}"
        for role, there, here, weights in (
            ("proxy", before.proxies, roll.proxies, roll.weights.proxies),
            ("broker", _brokers(before), _brokers(roll), roll.weights.brokers),
        )
        for seat in there
        if seat.id in weights and seat.id not in {other.id for other in here}
    ]
    if gone:
        reason = "weights were set for who is gone; set them for whoever has come instead"
        log.warning("rooms.weights.gone", who=gone[:_NAMED_MAX], reason=reason)


def _brokers(roll: Roll) -> Seats:
    return tuple(seat for seats in roll.brokers.values() for seat in seats)


def _seats(benches: Mapping[int, Bench], now: float) -> dict[int, Seats]:
    return {partition: benches[partition].seats(now) for partition in sorted(benches)}
