"""The durable queues of a node: which engine keeps them, opened and closed with the node.

In a journal, a broker's queues are served by its master. A node is the master of the broker that
has its name; with replicas, others have copies of its journal, and one of them may become its
master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import structlog

from chappe.clock import Clock
from chappe.cluster.cluster import Cluster
from chappe.cluster.replicas import ReplicaPeers
from chappe.endpoints.application import Application
from chappe.errors import ClusterError, ConfigError, Forbidden, Overload, RequestError, StorageError
from chappe.events.tail import Tail
from chappe.hub.grant import EVERYTHING
from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.log.disk import ThreadDisk
from chappe.log.fs import OsFs
from chappe.log.journal import Journal
from chappe.node.copying import Copying
from chappe.node.options import JOURNALS, NodeOptions
from chappe.node.sequel import Sequel
from chappe.queues.local import LocalStorage
from chappe.queues.ops import REDIS
from chappe.queues.replication.note import FILE as NOTE
from chappe.queues.replication.note import Notes
from chappe.queues.replication.replication import Replication
from chappe.registry.registry import Registry
from chappe.wire.ops import Promote, Reply

if TYPE_CHECKING:
    from chappe.queues.redis import RedisStorage

log = structlog.get_logger()

# What a node is called that is alone.
_ALONE = "node"
# How long a start waits for a journal to be read, or for another node to say that it leads it.
_START_S = 60.0


def lone_name(data: Path, name: str) -> str:
    """What a node is called that is alone: as was said, or else as its journal is."""
    folder = data / JOURNALS
    kept = [entry.name for entry in folder.iterdir() if entry.is_dir()] if folder.is_dir() else []
    return name or (kept[0] if len(kept) == 1 else _ALONE)


async def _nobody() -> str | None:
    return "there are no other nodes"


class Queueing:
    """Opens the journals of a node, or Redis, and gives their queues to the application layer."""

    def __init__(
        self,
        options: NodeOptions,
        *,
        hub: Hub,
        application: Application,
        cluster: Cluster,
        registry: Registry | None,
        data: Path,
        name: str,
        clock: Clock,
        rng: Random,
        tail: Tail,
    ) -> None:
        self._options = options
        self._sequel = Sequel(tail, hub.recorder)
        self._hub = hub
        self._application = application
        self._cluster = cluster
        self._folder = data / JOURNALS
        self._name = name
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._fs = OsFs()
        self._storages: dict[str, LocalStorage] = {}
        self._disks: dict[str, tuple[ThreadDisk, ThreadDisk]] = {}
        self._redis: RedisStorage | None = None
        self.copying = Copying(options.parquet, data)
        self._tasks: set[asyncio.Task[None]] = set()
        # What this node's own broker was called before, if it has another name now.
        self._formerly = ""
        # Set when it is known for the first time who serves this node's own broker.
        self._placed = asyncio.Event()
        if options.replication.replicas and registry is None:
            raise ConfigError("replication.replicas: needs a registry, so that nodes agree")
        if options.replication.replicas and registry is not None:
            registry.coordinate("replication")
        self.replication = Replication(
            name=name,
            options=options.replication,
            coordination=None if registry is None else registry.coordination,
            peers=ReplicaPeers(lambda: cluster.peers, cluster.peer),
            brokers=self,
            notes=Notes(self._fs, self._folder_of),
            rng=rng,
            no_election=_nobody if registry is None else registry.forgets,
            changed=self._masters_changed,
        )

    def _folder_of(self, broker: str) -> str:
        return str(self._folder / broker)

    def prepare(self) -> None:
        """Take part in what nodes say of journals, before the first of them is linked."""
        cluster, replication = self._cluster, self.replication
        cluster.serve(
            {kind: self._bound(handler) for kind, handler in replication.HANDLERS.items()}
        )
        cluster.on_up, cluster.on_down = replication.link_up, replication.link_down
        self._application.definitions.master_of = replication.masters.get
        self._application.definitions.refusal = replication.refusal
        self._hub.serve({Promote: self.promote})

    async def start(self) -> None:
        """Go on with the queues that are stored; raises StorageError or ConfigError."""
        if self._options.queues != "local":
            await self._open_redis(self._options.queues)
            return
        replication = self.replication
        self._application.definitions.engine = self._name
        self.copying.start()
        self._take_along()
        await replication.start(self._kept())
        try:
            async with asyncio.timeout(_START_S):
                await self._placed.wait()
        except TimeoutError:
            reason = replication.refusal(self._name)
            if not self._options.replication.replicas:
                raise StorageError(f"queues: {self._folder_of(self._name)}: {reason}") from None
            log.warning("queues.waiting", broker=self._name, reason=reason)

    def _bound(
        self, handler: Callable[[Replication, str, object], None]
    ) -> Callable[[str, object], None]:
        return lambda node, op: handler(self.replication, node, op)

    def _kept(self) -> list[str]:
        """The brokers that have a journal here; raises ConfigError."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            return sorted(entry.name for entry in self._folder.iterdir() if entry.is_dir())
        except OSError as error:
            raise ConfigError(f"data: {error}") from None

    def _take_along(self) -> None:
        """A node that has another name now keeps its queues, unless others have copies of them."""
        mine = self._folder / self._name
        kept = self._kept()
        if mine.exists() or len(kept) != 1 or (self._folder / kept[0] / NOTE).exists():
            return
        try:
            (self._folder / kept[0]).rename(mine)
        except OSError as error:
            raise ConfigError(f"data: {error}") from None
        self._formerly = kept[0]
        log.info("queues.taken_along", broker=self._name, formerly=self._formerly)

    async def _open_redis(self, url: str) -> None:
        from chappe.queues.redis import open_redis  # noqa: PLC0415, an extra

        queues = self._application.queues
        storage = self._redis = open_redis(url, queues.limits, home=self._name)
        await storage.start()
        broker = queues.broker(storage, REDIS)
        storage.lost = broker.lose
        storage.back = broker.try_again
        queues.durable[REDIS] = broker
        self._application.definitions.engine = REDIS
        self._application.definitions.keep()

    def open_journal(self, broker: str) -> Journal:
        """Make a broker's journal, not recovered yet."""
        self._close_disks(broker)
        storage = LocalStorage(self._application.queues.limits, self._loop)
        disks = (
            ThreadDisk(self._loop, f"{broker} writes"),
            ThreadDisk(self._loop, f"{broker} reads"),
        )
        self._storages[broker], self._disks[broker] = storage, disks
        return Journal(
            self._fs,
            *disks,
            self._folder_of(broker),
            self._options.journal,
            self._clock.wall_ms,
            self._loop,
            storage.snapshot,
        )

    def _close_disks(self, broker: str) -> None:
        for disk in self._disks.pop(broker, ()):
            disk.close()

    async def load(self, broker: str, journal: Journal) -> None:
        """Read a journal off the loop: it may be large."""
        await asyncio.to_thread(self._read, broker, journal)

    def _read(self, broker: str, journal: Journal) -> None:
        storage = self._storages[broker]
        storage.recover(journal)
        self._sequel.read(broker, storage)

    def on_master(self, broker: str, journal: Journal) -> None:
        """This node serves a broker's queues from now on."""
        self.copying.take(broker, journal)
        queues = self._application.queues
        found = queues.durable[broker] = queues.broker(self._storages[broker], broker)
        found.start()
        self._sequel.tell(broker, found)
        formerly = self._formerly if broker == self._name else ""
        self._application.definitions.announce(found, formerly)
        if found.queues:
            held = sum(queue.state.depth() for queue in found.queues.values())
            log.info("queues.open", broker=broker, queues=len(found.queues), messages=held)
        if broker == self._name:
            self._placed.set()

    def positions(self) -> dict[str, int]:
        """Up to where the journal of each broker that is served here was told of."""
        return {name: journal.committed for name, journal in self._served()}

    def epochs(self) -> dict[str, int]:
        """In which epoch the journal of each broker that is served here is written."""
        return {name: journal.epoch for name, journal in self._served()}

    def _served(self) -> list[tuple[str, Journal]]:
        return [
            (name, self._storages[name].journal)
            for name in self._application.queues.durable
            if name in self._storages
        ]

    def on_fenced(self, broker: str, reason: str) -> None:
        """Another node serves a broker's queues from now on, or nobody."""
        self.copying.let_go(broker)
        queues = self._application.queues
        found = queues.durable.pop(broker, None)
        if self._storages[broker].journal.broken:
            queues.broken.add(broker)
        if found is not None:
            found.close(Overload(f"broker {broker}: {reason}", outcome_unknown=True))

    def _masters_changed(self) -> None:
        if self._name in self.replication.masters:
            self._placed.set()
        self._application.definitions.master_of = self.replication.masters.get
        self._cluster.masters_changed()

    def promote(self, session: Session, op: Promote) -> None:
        """Make this node the master of a broker; answered when it is; raises Forbidden."""
        scope = session.grant.administer
        if scope is not EVERYTHING and f"broker:{op.broker}" not in scope:
            raise Forbidden(f"broker: this token does not let one promote {op.broker}")
        if session.app.name not in self._options.replication.promoters:
            raise Forbidden(f"broker: replication.promoters does not name {session.app.name}")
        task = self._loop.create_task(self._promote(session, op))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _promote(self, session: Session, op: Promote) -> None:
        try:
            await self.replication.promote(op.broker, force=op.force)
        except RequestError as error:
            self._hub.refuse(session, op.id, error)
        except (ClusterError, StorageError, OSError) as error:
            self._hub.refuse(session, op.id, Overload(f"broker {op.broker}: {error}"))
        else:
            if op.id is not None and not session.closed:
                self._hub.answer(session, Reply(id=op.id, ok=True))
        self._hub.ensure_tick()

    async def stop(self) -> None:
        """Write what was accepted, and let go of the files."""
        for task in self._tasks:
            task.cancel()
        error = Overload("this node is going away")
        for name, broker in self._application.queues.durable.items():
            log.debug("queues.close", broker=name)
            broker.close(error)
        self.copying.let_queues_go()
        await self.replication.stop()
        for broker_name in list(self._disks):
            self._close_disks(broker_name)
        if self._redis is not None:
            await self._redis.close()
