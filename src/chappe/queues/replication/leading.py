"""Leading: what a node holds while it is master of a broker."""

from __future__ import annotations

import asyncio

from chappe.log.journal import Journal
from chappe.queues.replication.master import Master
from chappe.registry.coordination import Lease


class Leading:
    """A journal that is written to; with copies elsewhere, also a lease and a version to change."""

    def __init__(self, journal: Journal, epoch: int) -> None:
        self.journal = journal
        self.epoch = epoch
        self.serving = False
        self.master: Master | None = None
        self.lease: Lease | None = None
        # Of the record, for the next compare-and-set; None: nobody knows what became of the last.
        self.version: int | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._lost: asyncio.Task[None] | None = None

    def hold(self, master: Master, lease: Lease, version: int) -> None:
        """Lead with copies elsewhere."""
        self.master, self.lease, self.version = master, lease, version

    def watch(self, tick_s: float, wake: asyncio.Event) -> None:
        """Look after the replicas from now on, and wake the owner when the lease is lost."""
        loop = asyncio.get_running_loop()
        master, lease = self.master, self.lease
        assert master is not None
        assert lease is not None

        def tick() -> None:
            self._ticker = loop.call_later(tick_s, tick)
            master.tick()

        async def lost() -> None:
            await lease.lost()
            wake.set()

        self._ticker = loop.call_later(tick_s, tick)
        self._lost = loop.create_task(lost())

    def trouble(self, now: float) -> str | None:
        """Why it can lead no longer."""
        master, lease = self.master, self.lease
        if master is not None and master.superseded is not None:
            return f"fenced: epoch {master.superseded} is newer than {self.epoch}"
        if lease is not None and lease.until <= now:
            return "fenced: the registry was not heard of for the time of a lease"
        if master is not None and master.stalled is not None:
            return master.stalled
        return self.journal.failed

    async def end(self) -> None:
        """Stop all of it; the lease goes last, when nothing is written any more."""
        if self._ticker is not None:
            self._ticker.cancel()
        if self._lost is not None:
            self._lost.cancel()
            await asyncio.wait([self._lost])
        await self.journal.close()
        if self.lease is not None:
            await self.lease.release()
