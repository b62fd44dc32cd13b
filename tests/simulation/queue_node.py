"""A node with a broker on a simulated disk: one run of it, from its start to its crash."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.edge.tcp import TcpConnection
from chappe.endpoints.application import Application
from chappe.endpoints.directory import Directory
from chappe.events.counting import CountingRecorder
from chappe.hub.hub import Hub
from chappe.hub.options import HubOptions
from chappe.ids import Snowflake
from chappe.log.journal import Journal
from chappe.log.options import JournalOptions
from chappe.queues.local import LocalStorage
from chappe.queues.options import QueueLimits
from chappe.queues.record import encode_record
from chappe.queues.snapshot import snapshot_of
from chappe.simulation import Process, SimDisk
from chappe.store.memory import MemoryStore
from chappe.wire.limits import Limits

if TYPE_CHECKING:
    from tests.simulation.queue_world import QueueWorld

NODE, PORT = "node", 7402
FOLDER = "/data/queues/node"
LIMITS = QueueLimits(ahead_messages=8, ahead_bytes=8_000, producer_window=64)


class QueueNode:
    """A hub with queues, as long as its process lives."""

    def __init__(self, world: QueueWorld, boot: int) -> None:
        self.world = world
        self.process = Process(f"{NODE}/{boot}")
        self.disk = self._make_disk()
        self.reading = self._make_disk()
        self.application: Application | None = None
        self.storage = LocalStorage(LIMITS, world.loop)
        options = JournalOptions(
            flush=world.flush,  # type: ignore[arg-type]
            segment_bytes=world.segment_bytes,
            batch_bytes_max=256 * 1024,
            allocate_bytes=world.allocate_bytes,
            cache_bytes=world.cache_bytes,
        )
        self.journal = Journal(
            world.fs,
            self.disk,
            self.reading,
            FOLDER,
            options,
            world.simulation.clock.wall_ms,
            world.loop,
            self.storage.snapshot,
        )

    def _make_disk(self) -> SimDisk:
        world = self.world
        return SimDisk(
            world.loop, world.disk_random, world.fs, world.power_cut, delay_s=world.disk_s
        )

    def recover(self) -> None:
        """Read what is on the disk."""
        self.storage.recover(self.journal)

    async def start(self) -> None:
        """Serve, as a real node does."""
        world, loop = self.world, asyncio.get_running_loop()
        clock = world.simulation.clock
        ids = Snowflake(0, clock.wall_ms)
        hub = Hub(
            loop=loop,
            clock=clock,
            ids=ids,
            entropy=world.simulation.entropy,
            authenticator=DevAuthenticator(TokenAuthenticator([], clock)),
            recorder=CountingRecorder(),
            options=HubOptions(),
            limits=Limits(),
        )
        directory = Directory(ids=ids, clock=clock, store=MemoryStore())
        application = Application(hub, directory, loop, NODE)
        queues = application.queues
        queues.limits = LIMITS
        broker = queues.broker(self.storage, NODE)
        queues.durable[NODE] = broker
        application.definitions.engine = NODE
        hub.start()
        await directory.load()
        broker.start()
        application.definitions.announce(broker)
        self.application = application
        world.network.listen(lambda: TcpConnection(hub), NODE, PORT, None)

    def crash(self) -> None:
        """Let nothing that is under way on the disk come to its end."""
        self.disk.crash()
        self.reading.crash()

    def snapshots(self) -> dict[str, bytes]:
        """All that is known of each queue."""
        return {state.address: encode_record(snapshot_of(state)) for state in self.storage.known()}

    def left_over(self) -> dict[str, Any]:
        """What the core still has in hand when all is done."""
        assert self.application is not None
        queues = self.application.queues
        broker = queues.durable[NODE]
        found: dict[str, Any] = {"lent": dict(queues._loans.lent)}
        for queue in broker.queues.values():
            for name, group in queue.groups.items():
                where = f"{queue.address}/{name}"
                found[f"{where} keys"] = dict(group.intake.keys)
                found[f"{where} returned"] = list(group.retries.returned)
                found[f"{where} in hand"] = group.in_hand
        return {name: value for name, value in found.items() if value}
