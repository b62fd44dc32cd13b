"""The registry in memory under a simulated loop: nodes cut off and healed at random."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from chappe.errors import ClusterError, Held
from chappe.registry.agreement import Agreement
from chappe.registry.coordination import Lease
from chappe.registry.membership import Member
from chappe.registry.memory import MemoryLedger, MemoryRegistry
from chappe.registry.options import RegistryOptions
from chappe.registry.registry import Registry
from chappe.registry.session import Session
from chappe.simulation import Simulation, seeds
from tests.registry.grounds import seen

NAMES = ["n1", "n2", "n3", "n4"]


class Contender:
    """A node that joins, and takes the one lease whenever it can."""

    def __init__(self, name: str, registry: Registry) -> None:
        self.registry = registry
        self.lease: Lease | None = None
        self._member = Member(name=name, incarnation=1, url=f"ws://{name}")
        self.epochs: list[int] = []

    @property
    def holds(self) -> bool:
        """What it would do work by."""
        now = asyncio.get_running_loop().time()
        return self.lease is not None and self.lease.until > now

    async def run(self, random: Random) -> None:
        assert self.registry.coordination is not None
        await self.registry.membership.join(self._member)
        while True:
            try:
                self.lease = await self.registry.coordination.acquire("/lease", b"")
            except ClusterError:
                await asyncio.sleep(random.uniform(0, 2))
                continue
            self.epochs.append(self.lease.epoch)
            try:
                async with asyncio.timeout(random.uniform(0, 30)):
                    await self.lease.lost()
            except TimeoutError:
                await self.lease.release()


@pytest.mark.parametrize("seed", seeds(20))
def test_no_two_nodes_trust_one_lease_and_views_agree_after_healing(seed: int):
    simulation = Simulation(seed)

    async def story() -> None:
        random = simulation.random
        memory = MemoryRegistry(RegistryOptions())
        contenders = [Contender(name, memory.open(name)) for name in NAMES]
        tasks = [asyncio.create_task(contender.run(random)) for contender in contenders]
        for _ in range(400):
            await asyncio.sleep(random.uniform(0, 1))
            fault = random.choice(["cut", "heal", "nothing", "nothing"])
            if fault != "nothing":
                getattr(memory, fault)(random.choice(NAMES))
            assert sum(contender.holds for contender in contenders) <= 1
        for name in NAMES:
            memory.heal(name)
        for contender in contenders:
            await seen(contender.registry.membership.watch(), lambda view: sorted(view) == NAMES)
        epochs = [epoch for contender in contenders for epoch in contender.epochs]
        assert len(epochs) > 10
        assert len(set(epochs)) == len(epochs)
        for task in tasks:
            task.cancel()
        for contender in contenders:
            await contender.registry.close()

    simulation.run(story())


def test_a_registry_that_forgot_everything_is_told_again():
    async def story() -> None:
        memory = MemoryRegistry(RegistryOptions())
        registries = [memory.open(name) for name in NAMES]
        for name, registry in zip(NAMES, registries, strict=True):
            await registry.membership.join(Member(name=name, incarnation=1, url=""))
        memory.forget()
        stranger = memory.open("stranger")
        await seen(stranger.membership.watch(), lambda view: sorted(view) == NAMES)

    Simulation(1).run(story())


def test_a_name_opened_again_cuts_off_the_handle_before():
    async def story() -> None:
        memory = MemoryRegistry(RegistryOptions())
        old = memory.open("n1")
        await old.membership.join(Member(name="n1", incarnation=1, url="a"))
        new = memory.open("n1")
        await new.membership.join(Member(name="n1", incarnation=2, url="b"))
        assert old.coordination is not None
        with pytest.raises(ClusterError, match="n1 is cut off"):
            await old.coordination.get("/a")
        await seen(new.membership.watch(), lambda view: view["n1"].incarnation == 2)

    Simulation(1).run(story())


def test_a_lease_is_trusted_from_when_its_renewal_was_sent_not_from_when_it_was_answered():
    async def story() -> None:
        loop = asyncio.get_running_loop()
        memory = MemoryRegistry(RegistryOptions())
        ledger = SlowLedger(memory, memory.ledger("n1").state, "n1")
        holder = Agreement(Session(ledger), poll_s=5)
        contender = memory.open("n2").coordination
        assert contender is not None
        lease = await holder.acquire("/lease", b"")
        first = lease.until
        while lease.until == first:
            await asyncio.sleep(0.01)
        ledger.reachable = False
        while True:
            try:
                await contender.acquire("/lease", b"")
                break
            except Held:
                await asyncio.sleep(0.01)
        assert first < lease.until <= loop.time()

    Simulation(1).run(story())


class SlowLedger(MemoryLedger):
    """One whose answers to renewals are long under way."""

    async def renew(self, session: str) -> bool:
        renewed = await super().renew(session)
        await asyncio.sleep(4)
        return renewed


def test_a_seat_that_was_forgotten_is_lost_as_soon_as_something_is_told_of_it():
    async def story() -> None:
        loop = asyncio.get_running_loop()
        memory = MemoryRegistry(RegistryOptions())
        coordination = memory.open("n1").coordination
        assert coordination is not None
        seat = await coordination.sit("/row", b"init")
        memory.forget()
        with pytest.raises(ClusterError, match="over"):
            await seat.tell(b"running")
        async with asyncio.timeout(0.1):
            await seat.lost()
        assert loop.time() < memory.options.lease_s / 3

    Simulation(1).run(story())
