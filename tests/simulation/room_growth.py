"""Whether anything grows in processes of rooms that work for long: how much they hold is counted.

All that can be reached from a process by objects of rooms and by containers counts, each element of
a container as one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from chappe.simulation import Faults
from tests.simulation.room_layout import Layout
from tests.simulation.room_people import APPS
from tests.simulation.room_world import RoomWorld

# Tables that forget what is oldest are full soon, and stay so.
SMALL = {"dedup_max": 100, "flows_max": 30, "peers_max": 20}
# Each life of a gateway has a number of its own, of which there are 65,535; and so on.
SLACK = 100
_WORK_S = 0.05
_RESTART_S = 3.0


class BusyWorld(RoomWorld):
    """Members come to rooms that nobody was ever in, talk, and go; processes begin anew."""

    def __init__(self, seed: int, *, periods: int, period_s: float) -> None:
        super().__init__(seed, layout=Layout(gateways=3, proxies=2, replicas=2, routers=2))
        self.options = msgspec.structs.replace(self.options, **SMALL)
        self.quiet = True
        self._periods = periods
        self._period_s = period_s
        # What those hold that are never started anew, after each period.
        self.sizes: list[dict[str, int]] = []

    @property
    def grown(self) -> list[str]:
        """What holds more at the end than it ever did in the first half."""
        half = self.sizes[: self._periods // 2]
        most = {name: max(sizes[name] for sizes in half) for name in half[0]}
        return [
            f"{name} held {most[name]}, then {size}"
            for name, size in self.sizes[-1].items()
            if size > 1.2 * most[name] + SLACK
        ]

    async def _live(self) -> None:
        await self.begin()
        self.network.set_faults(Faults(loss=0.05, duplicate=0.1, latency_s=(0.001, 0.02)))
        working = [self.loop.create_task(self._work()), self.loop.create_task(self._restart())]
        for _ in range(self._periods):
            await asyncio.sleep(self._period_s)
            steady = [node for name, node in self.nodes.items() if not name.endswith("1")]
            self.sizes.append({node.name: size(node.rooms) for node in steady})
        for task in working:
            task.cancel()

    async def _work(self) -> None:
        number = 0
        while True:
            number += 1
            hub = self.random.choice(self.hubs)
            key = (APPS[number % 2], str(number))
            hub.join(0, key)
            self.random.choice(self.hubs).publish(key, reliable=number % 3 == 0)
            await asyncio.sleep(_WORK_S)
            if hub.up:
                hub.leave(0, key)

    async def _restart(self) -> None:
        """One of each kind dies and comes again, one after the other."""
        while True:
            for name in ("g1", "p1", "b0-1", "r1"):
                await asyncio.sleep(_RESTART_S)
                self.crash(name)
                await self.start(name)


def size(root: object) -> int:
    """How many elements all containers within something have."""
    seen: set[int] = set()
    waiting: deque[Any] = deque([root])
    count = 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        parts = list(_parts(one))
        if isinstance(one, Mapping | list | tuple | set | frozenset | deque):
            count += len(one)
        waiting.extend(parts)
    return count


def _parts(one: Any) -> Iterator[Any]:
    if isinstance(one, Mapping):
        yield from one.values()
    elif isinstance(one, list | tuple | set | frozenset | deque):
        yield from one
    elif type(one).__module__.startswith("chappe.rooms"):
        yield from vars(one).values() if hasattr(one, "__dict__") else ()
        for slot in getattr(type(one), "__slots__", ()):
            yield getattr(one, slot, None)
