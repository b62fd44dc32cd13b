"""Where the transport contract runs: real sockets, and simulated ones with and without faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from chappe.edge.acceptor import AcceptCounters, Acceptor, Listener
from chappe.simulation import Faults, Simulation

HOST = "127.0.0.1"
ROUGH = Faults(latency_s=(0.001, 0.05), cut=0.7, stall=0.05, bytes_per_s=50e6)

ProtocolFactory = Callable[[], asyncio.BaseProtocol]
Scenario = Callable[["Ground"], Awaitable[Any]]


class Recorder(asyncio.Protocol):
    """Notes what a transport tells its protocol."""

    def __init__(self, *, keep_open: bool = False, greeting: bytes = b"") -> None:
        self.events: list[str] = []
        self.received = bytearray()
        self.error: Exception | None = None
        self.lost = 0
        self._keep_open = keep_open
        self._greeting = greeting
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._note("made")
        if self._greeting:
            transport.write(self._greeting)

    def data_received(self, data: bytes) -> None:
        assert data
        self.received += data
        self._note("data")

    def eof_received(self) -> bool:
        self._note("eof")
        return self._keep_open

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.lost += 1
        self._note("lost")

    def _note(self, event: str) -> None:
        if self.events[-1:] != ["data"] or event != "data":
            self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(600):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_event(self, event: str) -> None:
        await self.until(lambda: event in self.events)

    async def until_received(self, size: int) -> None:
        await self.until(lambda: len(self.received) >= size)


class Ground:
    """Runs scenarios on real sockets."""

    def __init__(self) -> None:
        self._recorders: list[Recorder] = []

    def run(self, scenario: Scenario) -> Any:
        loop = asyncio.SelectorEventLoop()
        try:
            return loop.run_until_complete(self._run_and_tidy(scenario))
        finally:
            loop.close()

    async def _run_and_tidy(self, scenario: Scenario) -> Any:
        result = await scenario(self)
        for recorder in self._recorders:
            if not recorder.lost:
                recorder.transport.abort()
            await recorder.until_event("lost")
        return result

    def listen(self, factory: ProtocolFactory) -> Listener:
        loop = asyncio.get_running_loop()
        return Acceptor(loop, factory, HOST, 0, None, AcceptCounters())

    async def pair(
        self, near: Recorder | None = None, far: Recorder | None = None
    ) -> tuple[Recorder, Recorder]:
        """Two connected recorders: the one that connected and the one that was accepted."""
        far = far or Recorder()
        listener = self.listen(lambda: far)
        _, near = await asyncio.get_running_loop().create_connection(
            lambda: near or Recorder(), HOST, listener.port
        )
        await far.until_event("made")
        listener.close()
        self._recorders += near, far
        return near, far


class SimulatedGround(Ground):
    """Runs scenarios on the simulated network."""

    def __init__(self, faults: Faults, seed: int) -> None:
        super().__init__()
        self._simulation = Simulation(seed)
        self._simulation.network.link(HOST, HOST).faults = faults

    def run(self, scenario: Scenario) -> Any:
        return self._simulation.run(self._run_and_tidy(scenario))

    def listen(self, factory: ProtocolFactory) -> Listener:
        return self._simulation.network.listen(factory, HOST, 0, None)


def make_ground(name: str) -> Ground:
    if name == "real":
        return Ground()
    return SimulatedGround(Faults() if name == "simulated" else ROUGH, seed=len(name))
