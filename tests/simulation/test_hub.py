"""A hub with clients, run from seeds: the same seed, the same run; and what holds for all."""

from __future__ import annotations

import asyncio

import pytest

from chappe.errors import CloseCode
from chappe.hub.options import HubOptions
from chappe.simulation import Simulation, seeds
from tests.simulation.invariants import check, check_now
from tests.simulation.proof import FULL, check_repeats, repeatable
from tests.simulation.scripted_client import ScriptedClient
from tests.simulation.workload import HUB, PORT, TracingRecorder, World, make_hub

SEEDS = 1000 if FULL else 20
# Seeds are run in groups, so that each group has a time limit of its own.
GROUPS = 100 if FULL else 20


def test_a_seed_gives_the_same_run_each_time_and_in_every_process():
    check_repeats(World, 11)


def test_different_seeds_give_different_runs():
    digests = {World(seed, duration_s=5).run().trace.digest() for seed in range(5)}
    assert len(digests) == 5


@pytest.mark.parametrize("group", range(GROUPS))
def test_the_hub_keeps_its_promises_for_every_seed(group: int):
    for seed in seeds(SEEDS)[group::GROUPS]:
        world = World(seed)
        world.look = check_now
        with repeatable(seed, world.simulation):
            check(world.run())


def test_the_workload_does_what_it_is_for():
    """The invariants would hold of a run in which nothing happens; this one is not such a run."""
    worlds = [World(seed).run() for seed in range(8 if FULL else 4)]
    lines = "\n".join(line for world in worlds for line in world.trace.lines)
    for event in ("reset", "partition", "heal", "vanish", "refused", "hub.dropped", "hub.sent"):
        assert f" {event} " in lines or f" {event}\n" in lines, event
    codes = {life.code for world in worlds for life in world.recorder.sessions.values()}
    assert CloseCode.HEARTBEAT_LOST in codes
    assert sum(len(world.accepted) for world in worlds) > 1000
    assert sum(len(c.deliveries) for world in worlds for c in world.connections) > 1000
    assert all(world.surviving for world in worlds)


def _idle_world(seed: int) -> tuple[Simulation, TracingRecorder]:
    simulation = Simulation(seed)
    recorder = TracingRecorder(simulation.trace, simulation.loop)
    make_hub(simulation, recorder, HubOptions())
    return simulation, recorder


async def _connected(simulation: Simulation, host: str) -> ScriptedClient:
    client = ScriptedClient(host, f"user:{host}", simulation.trace, host)
    await simulation.loop.create_connection(lambda: client, HUB, PORT, local_addr=(host, 0))
    await client.hello()
    return client


def test_a_client_that_answers_pings_stays_and_one_that_vanishes_does_not():
    """H4: three missed beats of five seconds."""
    simulation, recorder = _idle_world(3)

    async def main() -> None:
        staying = await _connected(simulation, "staying")
        vanishing = await _connected(simulation, "vanishing")
        await asyncio.sleep(300)
        vanished_at = simulation.loop.time()
        simulation.network.vanish("vanishing")
        await asyncio.sleep(300)
        life = recorder.sessions[vanishing.session]
        assert life.code == CloseCode.HEARTBEAT_LOST
        assert life.closed is not None
        # Its last pong may have come up to one interval before it vanished.
        assert 10 <= life.closed - vanished_at <= 25
        assert recorder.sessions[staying.session].closed is None

    simulation.run(main())


def test_a_step_of_the_wall_clock_closes_nobody():
    simulation, recorder = _idle_world(4)

    async def main() -> None:
        client = await _connected(simulation, "home")
        for step_ms in (3_600_000, -7_200_000):
            simulation.clock.step(step_ms)
            await asyncio.sleep(60)
        assert recorder.sessions[client.session].closed is None

    simulation.run(main())
