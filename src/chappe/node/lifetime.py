"""A node's life as whoever runs it sees it: started, until told to stop, then drained."""

from __future__ import annotations

import asyncio
import gc
from abc import ABC, abstractmethod
from collections.abc import Iterable

from prometheus_client.core import Metric

from chappe.errors import ClusterError


class Lifetime(ABC):
    """Something that is started, runs, and is drained at its end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Why this node cannot go on, should that happen.
        self.failed: asyncio.Future[ClusterError] = self._loop.create_future()

    def fail(self, reason: str) -> None:
        """Let whoever runs this node end it: it cannot go on. The first reason counts."""
        if not self.failed.done():
            self.failed.set_result(ClusterError(reason))

    @abstractmethod
    async def start(self) -> None:
        """Remember, join, and listen; raises ConfigError, ClusterError or StorageError."""

    @abstractmethod
    async def drain(self) -> None:
        """Take nobody new, finish, and stop."""

    @abstractmethod
    async def _stop(self) -> None:
        """Let go of everything, however far the start came."""

    @abstractmethod
    def addresses(self) -> dict[str, str]:
        """Where each edge is reached."""

    @abstractmethod
    def counts(self) -> Iterable[Metric]:
        """What the node has counted, as `/metrics` tells it."""

    async def start_unless(self, stop: asyncio.Event) -> bool:
        """Start, or give it up when told to stop meanwhile; whether the node runs. Raises as
        `start` does."""
        starting = self._loop.create_task(self.start())
        stopping = self._loop.create_task(stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            await starting
            return True
        starting.cancel()
        await asyncio.wait((starting,))
        await self._stop()
        return False

    async def run_until(self, stop: asyncio.Event) -> None:
        """Serve until told to stop, or until this node cannot go on; then drain. Raises
        ClusterError that says why it could not."""
        stopping = self._loop.create_task(stop.wait())
        await asyncio.wait((stopping, self.failed), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await self.drain()
        if self.failed.done():
            raise self.failed.result()


def settle_collector() -> None:
    """What lives now lives for ever: the collector need not look at it again, and with it out of
    the way, collections are rare enough not to show in the latency of messages."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
