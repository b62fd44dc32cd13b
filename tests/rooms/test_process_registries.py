"""Processes of rooms that meet in a registry of each kind."""

from __future__ import annotations

import asyncio

import pytest

from chappe.rooms.doubling import Step, doubling_of
from tests.registry.grounds import Ground, Run, runner
from tests.rooms.world import BROKER, HUB, PROXY, ROUTER, WAIT_S, World


@pytest.fixture(params=["redis", "zookeeper", "keeper"])
def run(request: pytest.FixtureRequest) -> Run:
    return runner(request)


# R4, R9
def test_processes_find_each_other_and_double_in_a_registry_of_each_kind(run: Run):
    async def story(ground: Ground) -> None:
        world = World(lease_s=ground.options.lease_s, registry=ground)
        for name in ("b0", "b1"):
            await world.start(name, frozenset({BROKER}))
        await world.start("r", frozenset({ROUTER}))
        await world.start("p", frozenset({PROXY}))
        first, second = await world.start("g0", HUB), await world.start("g1", HUB)
        await world.settled()
        rooms = [str(number) for number in range(8)]
        await asyncio.gather(first.join(*rooms), second.join(*rooms))
        sent: dict[str, list[int]] = {room: [] for room in rooms}

        async def talk() -> None:
            while True:
                for room in rooms:
                    sent[room].append(first.publish(room))
                await asyncio.sleep(0.01)

        talking = asyncio.create_task(talk())
        for partitions in (2, 4):
            tool = ground.coordination(f"tool{partitions}")
            result = await doubling_of(tool, world.options).run(lambda _: None, WAIT_S)
            assert (result.step, result.partitions) == (Step.DONE, partitions)
        talking.cancel()
        for room in rooms:
            await second.hears(room, sent[room])
        ids = [seat.id for seats in first.process.roll.brokers.values() for seat in seats]
        assert len(set(ids)) == 8
        await world.stop()

    run(story)
