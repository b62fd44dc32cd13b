"""The simulated clock: monotonic whatever happens to the wall."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from chappe.clock import Clock
from chappe.ids import Snowflake
from chappe.simulation import SimulatedClock, Simulation


def test_both_clocks_follow_the_loop():
    simulation = Simulation(1)
    clock: Clock = simulation.clock

    async def main() -> tuple[float, int]:
        monotonic, wall_ms = clock.monotonic(), clock.wall_ms()
        await asyncio.sleep(60)
        return clock.monotonic() - monotonic, clock.wall_ms() - wall_ms

    monotonic, wall_ms = simulation.run(main())
    assert 60 <= monotonic < 60.1
    assert 60_000 <= wall_ms < 60_100


def test_a_step_moves_the_wall_either_way_and_nothing_else():
    simulation = Simulation(1)
    clock = simulation.clock
    before_ms, before = clock.wall_ms(), clock.monotonic()
    clock.step(3_600_000)
    assert clock.wall_ms() == before_ms + 3_600_000
    clock.step(-7_200_000)
    assert clock.wall_ms() == before_ms - 3_600_000
    assert clock.monotonic() == before
    simulation.loop.close()


def test_skew_changes_the_walls_pace_without_a_jump():
    simulation = Simulation(1)
    clock = SimulatedClock(simulation.loop, offset_ms=500)

    async def main() -> None:
        await asyncio.sleep(10)
        before_ms = clock.wall_ms()
        clock.skew(1.5)
        assert clock.wall_ms() == before_ms
        await asyncio.sleep(10)
        assert 15_000 <= clock.wall_ms() - before_ms < 15_100

    assert clock.wall_ms() == simulation.clock.wall_ms() + 500
    simulation.run(main())


def test_ids_grow_while_the_wall_is_stepped_at_random():
    simulation = Simulation(9)
    ids = Snowflake(0, simulation.clock.wall_ms)

    async def main() -> list[int]:
        given = []
        for _ in range(500):
            simulation.clock.step(simulation.random.randint(-5_000, 5_000))
            ids.tick()
            given += [ids.next() for _ in range(simulation.random.randint(1, 20))]
            await asyncio.sleep(simulation.random.random())
        return given

    given = simulation.run(main())
    assert all(earlier < later for earlier, later in pairwise(given))
