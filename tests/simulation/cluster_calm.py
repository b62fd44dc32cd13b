"""A good day for a simulated cluster: all must work at once, and nothing be left in the end."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import TYPE_CHECKING

from chappe.endpoints.presence import PresenceOptions
from tests.simulation.cluster_person import QUEUE, SERVICE, TOPICS, Deed, Device

if TYPE_CHECKING:
    from tests.simulation.cluster_node import SimulatedNode
    from tests.simulation.cluster_world import ClusterWorld

PRESENCE = PresenceOptions()
# A device whose connection broke comes back after its largest backoff, and a dial in vain or two;
# one whose connection is half open finds out after three heartbeats and one more.
BACK_S = 40.0
# All that is under way on a network without faults.
MOMENT_S = 3.0
TAKEN_S = 5.0


class GoodDay:
    """What is done, and must succeed, on a cluster that was healed."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world

    async def run(self) -> None:
        await asyncio.sleep(BACK_S)
        for device in self._world.devices:
            assert device.client.connected, f"{device.name} is not back"
        await self._ask_for_presence()
        await self._say_things()
        await self._ask_service()
        await self._do_jobs()
        await self._rest()

    async def _rest(self) -> None:
        await asyncio.sleep(MOMENT_S)
        self._world.check_rest()

    async def _ask_for_presence(self) -> None:
        """H8: every node tells the truth about everybody."""
        world = self._world
        online = {d.user for d in world.devices} | {
            a for a in world.addresses if a.startswith("avatar:")
        }
        for device, address in product(world.devices, world.addresses):
            deed = await device.do("presence", address, device.client.presence(address))
            assert deed.outcome == "ok", deed
            assert deed.result is (address in online), deed

    async def _say_things(self) -> None:
        """Everything that is said now reaches everybody it is for: once, in one order."""
        world = self._world
        before = {device: len(device.received) for device in world.devices}
        publishing = [device.publish(topic, 3) for device, topic in product(world.devices, TOPICS)]
        published = [deed for deeds in await asyncio.gather(*publishing) for deed in deeds]
        users = [address for address in world.addresses if address != "user:nobody"]
        sending = [device.send(to) for device, to in product(world.devices, users)]
        sent = await asyncio.gather(*sending, *(device.send(users) for device in world.devices))
        for deed in (*published, *sent):
            assert deed.outcome == "ok", deed
        await asyncio.sleep(TAKEN_S)
        new = {device: device.received[before[device] :] for device in world.devices}
        for topic in TOPICS:
            ids = sorted(int(deed.result.message) for deed in published if deed.to == topic)
            orders = [[m.id for m in new[d] if m.to == topic] for d in world.devices]
            for device, order in zip(world.devices, orders, strict=True):
                assert sorted(order) == ids, f"{device.name} did not get all of {topic} once"
                assert order == orders[0], f"{device.name} got {topic} in another order"
        for device in world.devices:
            mine = [deed for deed in sent if device.user in map(world.user_of, deed.to.split())]
            got = sorted(m.id for m in new[device] if m.to not in TOPICS)
            assert got == sorted(int(deed.result) for deed in mine), f"{device.name} lacks some"

    async def _ask_service(self) -> None:
        for device in self._world.devices:
            deed = await device.request()
            assert deed.outcome == "ok", f"{SERVICE} did not answer: {deed}"

    async def _do_jobs(self) -> None:
        """Whatever is in the queue gets done, by those who fetch and those who are pushed."""
        world = self._world
        for device in (*world.devices, *world.devices):
            deed = await device.enqueue()
            assert deed.outcome == "ok", deed
        # What somebody has kept for too long comes back first.
        await asyncio.sleep(10)
        idle = 0
        while idle < 2:
            taken = [await device.take_jobs(5, 0.5) for device in world.devices if device.fetches]
            idle = 0 if any(taken) else idle + 1
        self._check_jobs(world)

    def _today(self) -> list[Deed]:
        return [deed for deed in self._world.deeds if deed.invoked > self._world.healed_at]

    def _check_jobs(self, world: ClusterWorld) -> None:
        taken = {int(deed.to) for deed in world.deeds if deed.kind in ("ack", "nack")}
        assert any(d.kind == "ack" and world.devices[4].name == d.device for d in self._today()), (
            "nothing is pushed any more"
        )
        accepted = [d for d in world.deeds if d.kind == "enqueue" and d.outcome == "ok"]
        # What was on a link that broke is lost, as what was on a node that crashed.
        lost = world.truth.handed - world.truth.taken_on
        for deed in accepted:
            safe = not world.queue_crashed and int(deed.result) not in lost
            if deed.invoked > world.healed_at or safe:
                assert int(deed.result) in taken, f"{deed} was accepted, and is lost"

    async def bounce_and_leave(self, leaving: list[Device]) -> None:
        """H8: whoever leaves is told to be gone, whoever comes back in time is not."""
        world = self._world
        told = len(world.truth.tellings)
        self._crash_one()
        for device in world.devices:
            streams = world.network.streams_of(device.name)
            if streams and world.random.random() < 0.3:
                world.network.reset(streams[0])
        await asyncio.gather(*(device.close() for device in leaving))
        await asyncio.sleep(PRESENCE.grace_s + PRESENCE.takeover_s + MOMENT_S)
        gone = [t.transition for t in world.truth.tellings[told:] if t.transition.event == "gone"]
        left = {device.user for device in leaving} - {
            d.user for d in world.devices if d not in leaving
        }
        assert {one.address for one in gone} == left, f"{gone} were told to be gone, not {left}"
        for user in left:
            ids = {one.id for one in gone if one.address == user}
            assert len(ids) == 1, f"{user} was told to be gone by {len(ids)} ids"

    def _crash_one(self) -> None:
        """Kill a node: its clients come back elsewhere, within the grace."""
        world = self._world
        name = world.random.choice(sorted(world.nodes))
        world.crash(name, power=False)
        del world.machines[name]

    async def empty(self) -> None:
        """When everybody has left, nothing is left of them."""
        world = self._world
        await asyncio.gather(*(device.close() for device in world.devices))
        await asyncio.sleep(MOMENT_S)
        world.check_rest()
        for node in world.nodes.values():
            self._check_empty(node)

    def _check_empty(self, node: SimulatedNode) -> None:
        cluster, name = node.cluster, node.name
        assert not node.hub.apps, f"{name} holds {node.hub.apps}"
        assert not node.hub.sessions, f"{name} holds sessions"
        assert not cluster.carriage._stand_ins, f"{name} holds stand-ins"
        assert not cluster.carriage._introduced, f"{name} holds introductions"
        assert not cluster.carriage._standing, f"{name} holds what nobody does any more"
        assert not cluster.carriage._deliveries, f"{name} holds deliveries of nobody"
        assert not cluster.watching._interests, f"{name} watches for nobody"
        assert not any(cluster.watching._watched.values()), f"{name} is watched for nobody"
        assert not node.application.services._services, f"{name} has services of nobody"
        queue = node.application.queues.get("default", QUEUE)
        groups = [] if queue is None else list(queue.groups.values())
        assert not any(group.sessions() for group in groups), f"{name} has consumers who are gone"
