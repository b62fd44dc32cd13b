"""The durable queues of a node: which engine keeps them, opened and closed with the node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from chappe.clock import Clock
from chappe.endpoints.application import Application
from chappe.errors import ConfigError, Overload, StorageError
from chappe.log.disk import ThreadDisk
from chappe.log.fs import OsFs
from chappe.log.journal import Journal
from chappe.node.options import NodeOptions
from chappe.queues.broker import Broker
from chappe.queues.local import LocalStorage
from chappe.queues.ops import REDIS

if TYPE_CHECKING:
    from chappe.queues.redis import RedisStorage

log = structlog.get_logger()

JOURNALS = "journals"
# What a node is called that is alone.
_ALONE = "node"


class Queueing:
    """Opens the journal of a node, or Redis, and gives its queues to the application layer."""

    def __init__(
        self, options: NodeOptions, application: Application, data: Path, name: str, clock: Clock
    ) -> None:
        self._options = options
        self._application = application
        self._folder = data / JOURNALS
        self._name = name
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._disks: list[ThreadDisk] = []
        self.journals: dict[str, Journal] = {}
        self._redis: RedisStorage | None = None

    async def start(self) -> None:
        """Go on with the queues that are stored; raises StorageError or ConfigError."""
        if self._options.queues == "local":
            self._application.definitions.engine = self._name
            self._take_along()
            await self._open(self._name)
        else:
            await self._open_redis(self._options.queues)

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

    def _take_along(self) -> None:
        """A node that was alone, and has a name now, keeps its queues."""
        mine, alone = self._folder / self._name, self._folder / _ALONE
        try:
            if not mine.exists() and alone.exists():
                alone.rename(mine)
        except OSError as error:
            raise ConfigError(f"data: {error}") from None

    async def _open(self, name: str) -> None:
        storage = LocalStorage(self._application.queues.limits, self._loop)
        journal = Journal(
            OsFs(),
            self._disk(f"{name} writes"),
            self._disk(f"{name} reads"),
            str(self._folder / name),
            self._options.journal,
            self._clock.wall_ms,
            self._loop,
            storage.snapshot,
        )
        try:
            await asyncio.to_thread(storage.recover, journal)
        except OSError as error:
            raise StorageError(f"{journal.folder}: {error}") from None
        self.journals[name] = journal
        self._lead(name, storage)

    def _lead(self, name: str, storage: LocalStorage) -> None:
        queues = self._application.queues
        broker = queues.broker(storage, name)
        queues.durable[name] = broker
        broker.start()
        self._application.definitions.announce(broker)
        self._report(broker)

    @staticmethod
    def _report(broker: Broker) -> None:
        if broker.queues:
            held = sum(queue.state.depth() for queue in broker.queues.values())
            log.info("queues.open", broker=broker.name, queues=len(broker.queues), messages=held)

    def _disk(self, name: str) -> ThreadDisk:
        disk = ThreadDisk(self._loop, name)
        self._disks.append(disk)
        return disk

    async def stop(self) -> None:
        """Write what was accepted, and let go of the files."""
        error = Overload("this node is going away")
        for broker in self._application.queues.durable.values():
            broker.close(error)
        for journal in self.journals.values():
            await journal.close()
        for disk in self._disks:
            disk.close()
        if self._redis is not None:
            await self._redis.close()
