"""The good day after the bad one: members receive again, tables come to rest, partitions double."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from chappe.rooms.pulse import TRIAL_BEATS
from chappe.simulation import Faults
from chappe.wire.rooms import Carry, RoomOp, Submit
from tests.simulation.room_people import CLIENTS, KEYS
from tests.simulation.room_truth import Key, Publication

if TYPE_CHECKING:
    from tests.simulation.room_node import RoomNode
    from tests.simulation.room_world import RoomWorld

# Longer than any datagram is under way on a good day, and messages to a room after each other.
TRANSIT_S = 0.5
_SPACE_S = 0.01
_ROUND_S = 0.5
# Datagrams overtake each other, and come twice; none is lost.
MIXED_UP = Faults(latency_s=(0.001, 0.08), duplicate=0.3)
CALM = Faults()
LATE_S = (0.0, 0.5)
_BURST = 8
# One who moves nothing is noticed by eight messages in two beats, and a question's time; then it is
# passed over for two beats.
_UNNOTICED_BEATS, _PASSED_OVER_BEATS = 3.0, 0.75
_NOTICED_S = 0.2


class GoodDay:
    """Says something to all rooms again and again, and knows who is to hear it."""

    def __init__(self, world: RoomWorld) -> None:
        self._world = world
        self._random = world.simulation.stream("good day")

    async def run(self) -> None:
        """Go through all that is to be seen on a good day."""
        from tests.simulation.room_world import HEALED_S, REST_S

        world = self._world
        await self._recover(world.healed_at + HEALED_S)
        await self._call_all()
        await asyncio.sleep(max(0.0, world.healed_at + REST_S - world.loop.time()))
        await world.come_to_rest()
        await self._mix_up()
        await self._pass_over()
        await self._double()
        await world.come_to_rest()
        await self._leave()

    async def _recover(self, until: float) -> None:
        """Find out how long it takes until nothing gets lost any more."""
        world = self._world
        said: list[Publication | None] = []
        failed_at = world.healed_at
        while world.loop.time() < until:
            now = world.loop.time()
            for key in KEYS:
                # Whoever finds no proxy has not recovered.
                publication = self._random.choice(world.hubs).publish(key)
                said.append(publication)
                if publication is None:
                    failed_at = now
            await asyncio.sleep(_ROUND_S)
        await asyncio.sleep(TRANSIT_S)
        missed = [one.at for one in said if one is not None and self._missed(one, anyway=True)]
        world.recovered_s = max([failed_at, *missed]) - world.healed_at

    async def _call_all(self) -> None:
        """Each publisher says something to each room: all members get it, of both kinds."""
        said: list[Publication | None] = []
        for hub in self._world.hubs:
            for key in KEYS:
                said.append(hub.publish(key))
                said.append(hub.publish(key, reliable=True))
                await asyncio.sleep(_SPACE_S)
        await asyncio.sleep(TRANSIT_S)
        self._check(said, "after healing", anyway=True)

    def _check(self, said: list[Publication | None], when: str, *, anyway: bool = False) -> None:
        refused = sum(one is None for one in said)
        assert not refused, f"{refused} messages {when} found no proxy"
        for one in said:
            assert one is not None
            missed = self._missed(one, anyway=anyway)
            assert not missed, f"{when}: {one} of {self._world.loop.time()} missed by {missed}"

    def _missed(self, said: Publication, *, anyway: bool) -> list[str]:
        """The members that were there all the time, and got nothing; `anyway`: although not all
        brokers may have known of them."""
        key: Key = (said.app, said.room)
        missed = []
        for hub in self._world.hubs:
            known = hub.crowd.known.get(key, float("inf"))
            got = {
                client
                for receipt in hub.crowd.receipts
                if receipt.id == said.id
                for client in receipt.clients
            }
            missed += [
                f"{hub.life}/{client}"
                for client, since in hub.crowd.rooms.get(key, {}).items()
                if (since if anyway else max(since, known)) < said.at and client not in got
            ]
        return missed

    async def _mix_up(self) -> None:
        """R14: while all stay, one publisher's messages come in order though datagrams do not."""
        world = self._world
        world.network.set_faults(MIXED_UP)
        world.mixed_up = (world.loop.time(), 0.0)
        for hub in world.hubs:
            for key in self._random.sample(KEYS, 4):
                for _ in range(_BURST):
                    hub.publish(key)
                    await asyncio.sleep(self._random.uniform(0, 0.02))
        await asyncio.sleep(TRANSIT_S)
        world.mixed_up = (world.mixed_up[0], world.loop.time())
        world.network.set_faults(CALM)

    async def _pass_over(self) -> None:
        """R5: who answers beats but moves nothing is passed over, for as long as others can do it;
        and taken again when it does."""
        spare = self._spare()
        if not spare or self._random.random() < 0.5:
            return
        node, kind = self._random.choice(spare)
        beat_s = self._world.options.beat_s
        # All have something to hold against it, from the same time on.
        await self._say_all(beat_s)
        node.deaf_to[kind] = 1
        await self._say_all(_UNNOTICED_BEATS * beat_s)
        said = await self._say_all(_PASSED_OVER_BEATS * beat_s)
        await asyncio.sleep(TRANSIT_S)
        node.deaf_to.clear()
        self._check(said, f"while {node.life} moved nothing")
        # It may be tried again just now, and is so at the latest.
        await asyncio.sleep(TRIAL_BEATS * beat_s)

    def _spare(self) -> list[tuple[RoomNode, type[RoomOp]]]:
        """The proxies, and brokers, that have others beside them; and what those are sent.

        Not both of one process: who leaves its proxy finds others that have yet to notice of its
        brokers.
        """
        up = [node for node in self._world.nodes.values() if node.up]
        proxies = [node for node in up if node.rooms.dispatch.proxy is not None]
        replicas = Counter(each for node in up for each in node.rooms.dispatch.brokers)
        brokers = [
            node
            for node in up
            if (own := node.rooms.dispatch.brokers) and all(replicas[each] > 1 for each in own)
        ]
        return [
            *((node, Submit) for node in proxies if len(proxies) > 1),
            *((node, Carry) for node in brokers),
        ]

    async def _say_all(self, duration_s: float) -> list[Publication | None]:
        """Each publisher says something to each room so often that nobody can miss it."""
        said: list[Publication | None] = []
        until = self._world.loop.time() + duration_s
        while self._world.loop.time() < until:
            said += [hub.publish(key) for hub in self._world.hubs for key in KEYS]
            await asyncio.sleep(_NOTICED_S)
        return said

    async def _double(self) -> None:
        """R9: while partitions double, members come and go, and none misses anything."""
        from tests.simulation.room_world import DOUBLED_S

        world = self._world
        kinds = [False, True] if world.layout.router_partitions else [False]
        for routers in kinds:
            begun = world.doubling[routers]
            over = world.doubled(routers) and not await world.is_doubling(routers=routers)
            if over or (not begun and self._random.random() < 0.3):
                continue
            # All learn of it at different times.
            world.registry.slow_down(LATE_S)
            doubling = world.loop.create_task(world.double(routers=routers, timeout_s=DOUBLED_S))
            said = await self._talk_until(doubling)
            assert doubling.result() is not None, f"not doubled within {DOUBLED_S} s"
            # Proxies and routers that were told last have done with it as well.
            said += await self._talk_for(2.0)
            world.registry.slow_down((0.0, 0.0))
            self._check(said, "while partitions doubled")

    async def _talk_until(self, task: asyncio.Task[object]) -> list[Publication | None]:
        said: list[Publication | None] = []
        while not task.done():
            said += await self._talk()
        return said

    async def _talk_for(self, duration_s: float) -> list[Publication | None]:
        until = self._world.loop.time() + duration_s
        said: list[Publication | None] = []
        while self._world.loop.time() < until:
            said += await self._talk()
        await asyncio.sleep(TRANSIT_S)
        return said

    async def _talk(self) -> list[Publication | None]:
        """Each publisher says something to some rooms; and somebody comes or goes."""
        said = []
        hubs = self._world.hubs
        for hub in hubs:
            said += [hub.publish(key) for key in self._random.sample(KEYS, 4)]
        self._move(self._random.choice(hubs))
        await asyncio.sleep(0.1)
        return said

    def _move(self, hub: RoomNode) -> None:
        client, key = self._random.randrange(CLIENTS), self._random.choice(KEYS)
        if client in hub.crowd.rooms.get(key, ()):
            hub.leave(client, key)
        else:
            hub.join(client, key)

    async def _leave(self) -> None:
        """All go home."""
        world = self._world
        hubs = world.hubs
        for hub in hubs:
            assert hub.rooms.gateway is not None
            world.drops += hub.rooms.gateway.drops
        if len(hubs) > 1:
            await world.drain(hubs[0].name)
            # Goodbyes are quick; rows are removed behind.
            await asyncio.sleep(2 * world.options.beat_s)
            await world.come_to_rest()
        await asyncio.gather(*(world.drain(name) for name in list(world.nodes)))
        assert not world.network._datagrams, "ports are left"
