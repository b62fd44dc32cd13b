"""A cluster and its users on a bad day, then on a good one: everything drawn from one seed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from structlog.testing import capture_logs

from chappe.cluster.link import Link, LinkState
from chappe.queues.lending import Lending
from chappe.registry.memory import MemoryRegistry
from chappe.simulation import SimulatedClock, Simulation
from chappe.store.memory import MemoryStore
from tests.simulation.cluster_calm import GoodDay
from tests.simulation.cluster_chaos import Chaos
from tests.simulation.cluster_node import LINK, Machine, SimulatedNode
from tests.simulation.cluster_person import ACK_TIMEOUT_S, KEPT, QUEUE, Deed, Device
from tests.simulation.cluster_truth import APP, Truth
from tests.simulation.workload import draw_faults

TROUBLE_S = 60.0
HISTORY = 30
# A side that has not heard of the end of its link needs the silence, one that was dialling when
# the network healed a handshake's time; then comes the largest backoff, and a dial that works.
HEALED_S = LINK.silence_s + LINK.handshake_timeout_s + LINK.backoff_max_s + LINK.heartbeat_s
DEVICES = ("user:u0", "user:u0", "user:u1", "user:u1", "user:u2", "user:u3", "user:u4", "user:u5")
AVATARS = {"avatar:a1": "user:u1", "avatar:a2": "user:u2"}
# How often a frame of a link comes again.
_AGAIN = 0.05
_REMEMBERED_FRAMES = 3
_LOOKS = 3
# Ten times what a run takes: more is going round in circles.
STEPS_MAX = 400_000


class ClusterWorld:
    """Machines with nodes, devices with clients, and bad luck."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed, steps_max=STEPS_MAX)
        self.loop = self.simulation.loop
        self.network = self.simulation.network
        self.trace = self.simulation.trace
        self.random = self.simulation.stream("cluster")
        self.truth = Truth(self.loop, self.trace)
        self.machines: dict[str, Machine] = {}
        # The newest run on each machine that has one.
        self.nodes: dict[str, SimulatedNode] = {}
        self.all_nodes: list[SimulatedNode] = []
        self.devices: list[Device] = []
        self.deeds: list[Deed] = []
        self.addresses = [*dict.fromkeys(DEVICES), *AVATARS, "user:nobody"]
        self.quiet = False
        self.healed_at = 0.0
        # Whether a node that had the queue has crashed: what was in it is lost then.
        self.queue_crashed = False
        # Told by whoever knows how tables should look like: what is wrong with them.
        self.differences: Callable[[ClusterWorld], list[str]] = lambda world: []

    def run(self) -> ClusterWorld:
        with ExitStack() as stack:
            # picows draws the key of its handshake from the operating system.
            stack.enter_context(patch("os.urandom", self.simulation.entropy))
            stack.enter_context(self._repeated_frames())
            stack.enter_context(self._known_loans())
            stack.enter_context(capture_logs())
            self.simulation.run(self._live())
        return self

    def _repeated_frames(self) -> Any:
        """Frames of links come again now and then, the last one or one before."""
        random, write = self.simulation.stream("repeats"), Link._write_message
        chance = random.choice([0.0, _AGAIN])
        frames: dict[Link, deque[bytes]] = {}

        def write_again(link: Any, *parts: bytes, **options: int) -> None:
            write(link, *parts, **options)
            if link.state is not LinkState.UP or options:
                return
            last = frames.setdefault(link, deque(maxlen=_REMEMBERED_FRAMES))
            last.append(b"".join(parts))
            if random.random() < chance:
                write(link, random.choice(last))

        return patch.object(Link, "_write_message", write_again)

    def _known_loans(self) -> Any:
        """Let the truth know what queues lend."""
        hand = Lending._hand

        def hand_and_tell(lending: Lending, items: Any, consumer: Any, now: float) -> bool:
            lent = hand(lending, items, consumer, now)
            if lent:
                for item in items:
                    self.truth.lent[item.record.id].append(self.loop.time())
            return lent

        return patch.object(Lending, "_hand", hand_and_tell)

    async def _live(self) -> None:
        self.registry = MemoryRegistry()
        self._shared = MemoryStore() if self.random.random() < 0.5 else None
        for number in range(self.random.randint(3, 7)):
            self.add_machine(number)
        await asyncio.gather(*(self.start(name) for name in self.machines))
        self.devices = [Device(self, number, user) for number, user in enumerate(DEVICES)]
        await asyncio.gather(*(self._on(device, device.open()) for device in self.devices))
        await self._make_things()
        await asyncio.gather(*(self._on(device, device.settle_in()) for device in self.devices))
        await self._suffer()
        await self._heal()

    def add_machine(self, number: int) -> str:
        """Put up another machine, without a node."""
        name = f"n{number}"
        # Clocks differ a little from machine to machine.
        clock = SimulatedClock(self.loop, offset_ms=self.random.uniform(-300, 300))
        self.machines[name] = Machine(name, self._shared or MemoryStore(), clock)
        return name

    def start(self, name: str) -> asyncio.Task[None]:
        """Start a node on a machine that has none."""
        node = self.nodes[name] = SimulatedNode(self, self.machines[name], len(self.all_nodes))
        self.all_nodes.append(node)
        self.trace.record("start", node=name, run=node.run)
        return self.network.on_host(name, node.start(), process=node.process)

    def give_up(self, name: str) -> asyncio.Task[None]:
        """End a node that could not start."""
        node = self.nodes.pop(name)
        self.trace.record("give_up", node=name)
        return self.network.on_host(name, node.give_up(), process=node.process)

    def drain(self, name: str) -> asyncio.Task[None]:
        """Let a node go with a goodbye."""
        node = self.nodes.pop(name)
        self.trace.record("drain", node=name)
        return self.network.on_host(name, node.drain(), process=node.process)

    def crash(self, name: str, *, power: bool) -> None:
        """End a node at once: with its machine's power, or alone, so that its kernel says so."""
        node = self.nodes.pop(name)
        held = node.application.queues.get(APP, QUEUE) is not None or node.cluster.handover.waiting
        self.queue_crashed |= node.up and bool(held)
        node.crashed = True
        self.loop.stop_process(node.process)
        self.truth.crashed(name)
        if power:
            self.network.vanish(name)
        else:
            self.network.kill(name)

    def _on(self, device: Device, coroutine: Any) -> asyncio.Task[Any]:
        return self.network.on_host(device.name, coroutine)

    async def _make_things(self) -> None:
        """What an administrator makes before anybody comes to need it."""
        admin = self.devices[0]
        client = admin.client
        await admin.until_ok("create", KEPT, lambda: client.create(KEPT, history=HISTORY))
        jobs = {"volatile": True, "ack_timeout_s": ACK_TIMEOUT_S, "attempts_max": 1000}
        await admin.until_ok("create", QUEUE, lambda: client.create(QUEUE, **jobs))
        for avatar, user in AVATARS.items():
            await admin.until_ok("avatar", avatar, lambda a=avatar, u=user: client.add_avatar(a, u))
        await asyncio.sleep(1)

    async def _suffer(self) -> None:
        self.network.set_faults(draw_faults(self.simulation.stream("faults")))
        acting = [self._on(device, device.act()) for device in self.devices]
        chaos = Chaos(self, self.simulation.stream("chaos"))
        await chaos.run(TROUBLE_S)
        self.quiet = True
        await chaos.end()
        self.healed_at = self.loop.time()
        self.trace.record("healed")
        await asyncio.gather(*acting)

    async def _heal(self) -> None:
        """See that all is well, soon, and stays so to the end."""
        await asyncio.sleep(max(0.0, self.healed_at + HEALED_S - self.loop.time()))
        await self._come_to_rest()
        day = GoodDay(self)
        await day.run()
        await day.bounce_and_leave(self.devices[-2:])
        await day.empty()
        await asyncio.gather(*(self.drain(name) for name in list(self.nodes)))
        await asyncio.sleep(5)
        assert not self.network.streams, "connections are left"

    async def _come_to_rest(self) -> None:
        """The bound is the time that has passed, and a moment for what happens just now."""
        for _ in range(_LOOKS):
            if not self.differences(self):
                return
            await asyncio.sleep(1)
        self.check_rest()

    def check_rest(self) -> None:
        """All tables agree with the truth."""
        found = self.differences(self)
        assert not found, "\n".join(found)

    def user_of(self, address: str) -> str:
        """The user at a user's or an avatar's address."""
        return AVATARS.get(address, address)
