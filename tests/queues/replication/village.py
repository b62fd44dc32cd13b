"""A village: nodes with simulated disks and links, each with its brokers, on one seeded loop.

A broker's state is the list of all values that were appended to its journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from random import Random
from typing import Any

import msgspec

from chappe.errors import Overload, RequestError
from chappe.log.journal import Journal
from chappe.log.options import JournalOptions
from chappe.queues.options import ReplicationOptions
from chappe.queues.replication.note import Notes
from chappe.queues.replication.record import BrokerRecord, decode_broker, record_path
from chappe.queues.replication.replication import Replication
from chappe.registry.memory import MemoryRegistry
from chappe.registry.options import RegistryOptions
from chappe.simulation.disk import SimDisk
from chappe.simulation.files import SimFs
from chappe.simulation.process import Process
from chappe.simulation.simulation import Simulation
from chappe.wire.nodeop import NodeOp
from chappe.wire.replica import REPLICA_OPS

LEASES = RegistryOptions(lease_s=3.0, poll_s=1.0, timeout_s=1.0)
JOURNAL = JournalOptions(segment_bytes=8192, batch_bytes_max=16_384, allocate_bytes=0)
TIMEOUT_S = 1.0
ACKNOWLEDGED: dict[str, Any] = {"mode": "acknowledged", "timeout_s": TIMEOUT_S}
# How long a link takes to notice that nobody is there.
SILENCE_S = 1.5
_decode = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_BY_TAG = {kind.__struct_config__.tag: kind for kind in REPLICA_OPS}


class Broker:
    """What a node has of a broker while it is its master."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.state: list[Any] = []
        self.serving = False


class Villager:
    """One node; `again` is it after it was killed."""

    def __init__(self, village: Village, name: str, fs: SimFs, options: ReplicationOptions) -> None:
        self.village = village
        self.name = name
        self.fs = fs
        self.options = options
        self.process = Process(name)
        self.brokers: dict[str, Broker] = {}
        self.told: list[tuple[str, str]] = []
        self.gone = False
        self._disks: list[SimDisk] = []
        self.replication: Replication | None = None
        self.bulk_bytes = 0

    def make(self) -> Replication:
        """Its replication, which has not begun."""
        village = self.village
        coordination = None
        if village.registry is not None:
            coordination = village.registry.open(self.name).coordination
        return Replication(
            name=self.name,
            options=self.options,
            coordination=coordination,
            peers=self,
            brokers=self,
            notes=Notes(self.fs, lambda broker: f"/{broker}"),
            rng=village.simulation.stream(f"election {self.name}"),
            no_election=_elect,
        )

    async def start(self) -> None:
        """Run in a process of its own."""
        held = [name for name in self.village.names if self.fs.exists(f"/{name}/lock")]
        self.replication = self.replication or self.make()
        await self.run(self.replication.start(held))

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in the node's process."""
        context = self.process.enter(copy_context())
        loop = asyncio.get_running_loop()
        return await loop.create_task(work, context=context)

    @property
    def context(self) -> Context:
        return self.process.enter(copy_context())

    def linked(self) -> list[str]:
        return [name for name in self.village.names if self.village.is_linked(self.name, name)]

    def preferred(self, broker: str) -> list[str]:
        return self.linked()

    def tell(self, node: str, op: NodeOp) -> None:
        self.village.carry(self, node, op)

    def send(self, node: str, op: NodeOp, size: int) -> bool:
        self.bulk_bytes += size
        self.village.carry(self, node, op)
        return True

    def open_journal(self, broker: str) -> Journal:
        loop = asyncio.get_running_loop()
        random = self.village.simulation.stream(f"disk {self.name} {len(self._disks)}")
        disks = [SimDisk(loop, random, self.fs, lambda: None) for _ in range(2)]
        self._disks += disks

        def snapshot() -> list[bytes]:
            return [msgspec.msgpack.encode({"all": self.brokers[broker].state})]

        clock = self.village.simulation.clock
        return Journal(
            self.fs, disks[0], disks[1], f"/{broker}", JOURNAL, clock.wall_ms, loop, snapshot
        )

    async def load(self, broker: str, journal: Journal) -> None:
        loaded = Broker(journal)
        for batch in journal.recover():
            for value in msgspec.msgpack.decode(batch.array):
                if isinstance(value, dict):
                    loaded.state = list(value["all"])
                else:
                    loaded.state.append(value)
        self.brokers[broker] = loaded

    def on_master(self, broker: str, journal: Journal) -> None:
        assert self.brokers[broker].journal is journal
        self.told.append((broker, "master"))
        self.brokers[broker].serving = True

    def on_fenced(self, broker: str, reason: str) -> None:
        self.told.append((broker, reason))
        self.brokers.pop(broker, None)

    def append(self, value: Any, broker: str = "a") -> asyncio.Future[RequestError | None]:
        """Append a value to a broker's log; the future is what became of it."""
        outcome: asyncio.Future[RequestError | None] = asyncio.get_running_loop().create_future()
        found = self.brokers.get(broker)
        if found is None or not found.serving or self.gone:
            outcome.set_result(Overload("not master"))
            return outcome

        def append() -> None:
            try:
                found.journal.append([msgspec.msgpack.encode(value)], outcome.set_result)
                found.state.append(value)
            except RequestError as error:
                outcome.set_result(error)

        asyncio.get_running_loop().call_soon(append, context=self.context)
        return outcome

    def serves(self, broker: str = "a") -> bool:
        """Whether it is master and takes values."""
        return not self.gone and broker in self.brokers and self.brokers[broker].serving

    def state(self, broker: str = "a") -> list[Any]:
        """All values, as the master has them."""
        return self.brokers[broker].state

    def record(self, broker: str = "a") -> BrokerRecord | None:
        """The record, as this node knows it."""
        assert self.replication is not None
        return self.replication.seats[broker].known.record

    def files(self, broker: str = "a") -> dict[str, bytes]:
        """The segments on its disk."""
        folder = f"/{broker}"
        names = [name for name in self.fs.list(folder) if name.endswith(".log")]
        paths = {name: f"{folder}/{name}" for name in names}
        return {name: self.fs.read(path, 0, self.fs.size(path)) for name, path in paths.items()}

    def log(self, broker: str = "a") -> bytes:
        """All of its log, without room that was allocated."""
        return b"".join(self.files(broker).values())

    def kill(self, *, power: bool = False) -> None:
        """End its process; with `power`, what was not synced is lost as well."""
        self.gone = True
        loop = asyncio.get_running_loop()
        loop.stop_process(self.process)  # type: ignore[attr-defined]
        for disk in self._disks:
            disk.crash()
        if power:
            self.fs.crash()
        else:
            self.fs.kill()
        if self.village.registry is not None:
            self.village.registry.cut(self.name)
        self.village.unlink(self.name)

    async def again(self, **options: Any) -> Villager:
        """The node, started again on the same disk."""
        assert self.gone
        return await self.village.add(self.name, fs=self.fs, options=self.options, **options)


class Village:
    """All nodes, the links between them, and the registry."""

    def __init__(self, simulation: Simulation, *, registry: bool = True, **options: Any) -> None:
        self.simulation = simulation
        self.random: Random = simulation.stream("village")
        self.options = ReplicationOptions(**options)
        self.registry = MemoryRegistry(LEASES) if registry else None
        self.nodes: dict[str, Villager] = {}
        # Links that are up, by both names; and pairs that cannot reach each other.
        self._links: dict[tuple[str, str], int] = {}
        self._cut: set[frozenset[str]] = set()
        self._last: dict[tuple[str, str], float] = {}
        self._number = 0

    @property
    def names(self) -> list[str]:
        return sorted(self.nodes)

    async def add(
        self, name: str, *, fs: SimFs | None = None, options: ReplicationOptions | None = None
    ) -> Villager:
        """Start a node, and link it to all others."""
        simulation = self.simulation
        fs = fs or SimFs(simulation.stream(f"fs {name}"), simulation.trace)
        villager = self.nodes[name] = Villager(self, name, fs, options or self.options)
        self._link_all()
        await villager.start()
        return villager

    def is_linked(self, one: str, other: str) -> bool:
        return one != other and _pair(one, other) in self._links

    def carry(self, sender: Villager, node: str, op: NodeOp) -> None:
        """Bring an op to another node, in order; with its link goes what is under way."""
        link = self._links.get(_pair(sender.name, node))
        receiver = self.nodes.get(node)
        if link is None or receiver is None or sender.gone:
            return
        body = msgspec.msgpack.encode(op)
        loop = asyncio.get_running_loop()
        key = (sender.name, node)
        delay_s = self.random.uniform(0.0002, 0.003)
        when = max(loop.time() + delay_s, self._last.get(key, 0.0) + 1e-6)
        self._last[key] = when

        def arrive() -> None:
            if self._links.get(_pair(sender.name, node)) == link:
                kind = _BY_TAG[msgspec.msgpack.decode(_decode(body)[0])]
                read = msgspec.msgpack.decode(body, type=kind)
                assert receiver.replication is not None
                receiver.replication.HANDLERS[kind](receiver.replication, sender.name, read)

        loop.call_at(when, arrive, context=receiver.context)

    def cut(self, one: str, other: str) -> None:
        """Let two nodes not reach each other; they notice when they hear nothing."""
        self._cut.add(frozenset((one, other)))
        self._links.pop(_pair(one, other), None)
        self._tell(one, other, SILENCE_S)

    def isolate(self, name: str, *, registry: bool = True) -> None:
        """Cut a node off from all others, and from the registry."""
        for other in self.names:
            if other != name:
                self.cut(name, other)
        if registry and self.registry is not None:
            self.registry.cut(name)

    def heal(self) -> None:
        """Let everybody reach everybody."""
        self._cut.clear()
        if self.registry is not None:
            for name, node in self.nodes.items():
                if not node.gone:
                    self.registry.heal(name)
        self._link_all()

    def unlink(self, name: str) -> None:
        """A node is gone: the others notice."""
        for other in self.names:
            if self._links.pop(_pair(name, other), None) is not None:
                self._tell(name, other, 0.01)

    def _link_all(self) -> None:
        live = [name for name, node in sorted(self.nodes.items()) if not node.gone]
        for one in live:
            for other in live:
                pair = _pair(one, other)
                if one < other and pair not in self._links and frozenset(pair) not in self._cut:
                    self._number += 1
                    self._links[pair] = self._number
                    self._later(one, 0.02, lambda r, n=other: r.link_up(n), self._number, pair)
                    self._later(other, 0.02, lambda r, n=one: r.link_up(n), self._number, pair)

    def _tell(self, one: str, other: str, delay_s: float) -> None:
        self._later(one, delay_s, lambda r: r.link_down(other), None, _pair(one, other))
        self._later(other, delay_s, lambda r: r.link_down(one), None, _pair(one, other))

    def _later(
        self,
        name: str,
        delay_s: float,
        say: Callable[[Replication], None],
        link: int | None,
        pair: tuple[str, str],
    ) -> None:
        node = self.nodes[name]

        def tell() -> None:
            if node.replication is not None and self._links.get(pair) == link:
                say(node.replication)

        loop = asyncio.get_running_loop()
        loop.call_later(delay_s, tell, context=node.context)

    async def until(self, true: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Wait until something is so, in the village's own time."""
        async with asyncio.timeout(timeout_s):
            while not true():
                await asyncio.sleep(0.01)

    async def master(self, broker: str = "a") -> Villager:
        """Wait for whoever serves a broker."""
        await self.until(lambda: any(node.serves(broker) for node in self.nodes.values()))
        return next(node for _, node in sorted(self.nodes.items()) if node.serves(broker))

    async def agree(self, *names: str, broker: str = "a") -> None:
        """Wait until these nodes have the same log."""

        def same() -> bool:
            logs = [self.nodes[name].log(broker) for name in names]
            return bool(logs[0]) and all(log == logs[0] for log in logs)

        await self.until(same)

    async def record(self, broker: str = "a") -> BrokerRecord | None:
        """What the registry says."""
        assert self.registry is not None
        found = self.registry._state.values.get(record_path(broker))
        return None if found is None else decode_broker(found.value, "registry")


async def _elect() -> str | None:
    return None


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def village(
    seed: int, story: Callable[[Village], Coroutine[Any, Any, None]], **options: Any
) -> None:
    """Run a story in a village of its own."""
    simulation = Simulation(seed, replay=f"seed {seed}")

    async def run() -> None:
        place = Village(simulation, **options)
        await story(place)
        for node in place.nodes.values():
            if not node.gone and node.replication is not None:
                await node.run(node.replication.stop())

    simulation.run(run())


async def fill(node: Villager, values: Iterable[Any], broker: str = "a") -> list[Any]:
    """Append values one after the other; those that were acknowledged."""
    return [value for value in values if await node.append(value, broker) is None]


async def gather(place: Village, count: int) -> Villager:
    """Start nodes, and wait until all copies of the broker a are in sync."""
    names = "abcde"[:count]
    for name in names:
        await place.add(name)
    master = await place.master()
    assert master.name == "a"
    await place.until(lambda: sorted(master.record().insync) == list(names))  # type: ignore[union-attr]
    return master


def now() -> float:
    """The simulated time, in seconds."""
    return asyncio.get_running_loop().time()
