"""Processes of a simulation: stopped, resumed and killed with all that came of them."""

from __future__ import annotations

import asyncio

from chappe.simulation import Process, Simulation
from tests.simulation.grounds import Recorder


def test_a_stopped_process_does_nothing_and_then_all_it_should_have_done_in_order():
    simulation = Simulation(1)
    loop, process = simulation.loop, Process("worker")
    beats: list[float] = []

    async def beat() -> None:
        while True:
            await asyncio.sleep(1)
            beats.append(loop.time())

    async def main() -> None:
        simulation.network.on_host("machine", beat(), process=process)
        await asyncio.sleep(2.5)
        loop.stop_process(process)
        await asyncio.sleep(10)
        assert len(beats) == 2
        loop.resume_process(process)
        await asyncio.sleep(1.5)
        # One that was due meanwhile, late, and the next a second after it.
        assert len(beats) == 4
        assert 12 < beats[2] < 13 < beats[3]

    simulation.run(main())


def test_a_killed_process_tells_its_peers_by_its_kernel_and_nobody_else():
    simulation = Simulation(2)
    loop, network, process = simulation.loop, simulation.network, Process("server")
    near, far = Recorder(), Recorder()

    async def serve() -> None:
        network.listen(lambda: far, "machine", 7000, None)

    async def main() -> None:
        await network.on_host("machine", serve(), process=process)
        await loop.create_connection(lambda: near, "machine", 7000)
        await far.until_event("made")
        loop.stop_process(process)
        network.kill("machine")
        await near.until_event("lost")
        assert isinstance(near.error, ConnectionResetError)
        await asyncio.sleep(60)
        assert far.events == ["made"]
        assert not network.streams

    simulation.run(main())
