"""Datagrams that come before a process has begun: those that were meant for an earlier life."""

from __future__ import annotations

import asyncio
import os
from random import Random

import uvloop

from chappe.clock import SystemClock
from chappe.events.counting import CountingRecorder
from chappe.registry.memory import MemoryRegistry
from chappe.rooms.port import Port
from chappe.rooms.process import RoomsProcess
from chappe.store.memory import MemoryStore
from tests.rooms.world import ALL, OPTIONS, SECRET, Hall


def test_what_comes_before_a_process_has_begun_is_left_out(monkeypatch) -> None:
    opened = Port.open

    async def open_late(self: Port, host: str, port: int) -> None:
        await opened(self, host, port)
        self.datagram_received(b"for whoever was here before", ("127.0.0.1", 9))

    monkeypatch.setattr(Port, "open", open_late)
    uvloop.run(live())


async def live() -> None:
    coordination = MemoryRegistry().open("n").coordination
    process = RoomsProcess(
        options=OPTIONS,
        name="n",
        clock=SystemClock(),
        loop=asyncio.get_running_loop(),
        entropy=os.urandom,
        rng=Random(1),
        recorder=CountingRecorder(),
        store=MemoryStore(),
        coordination=coordination,
        secret=SECRET,
        cluster="c",
        roles=ALL,
        audience=Hall(),
        epoch=1,
        lease_s=5.0,
    )
    await process.start()
    await process.settled()
    await process.stop()
    assert coordination is not None
    await coordination.close()
