"""What a log costs that nobody reads: no more than what is in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import uvloop

from chappe.client import connect
from chappe.log.options import JournalOptions
from chappe.queues.local import LocalStorage
from tests.node.running import running

QUEUE = "queue:jobs"
SIZE = 10_000
COUNT = 60


def test_a_backlog_of_large_messages_is_not_written_again_and_again(tmp_path: Path) -> None:  # Q11
    journal = JournalOptions(segment_bytes=32 * 1024, batch_bytes_max=1024 * 1024)

    async def run() -> None:
        async with (
            running(tmp_path, journal=journal) as node,
            connect(node.addresses()["tcp"], as_="user:a") as client,
        ):
            await client.create(QUEUE)
            for n in range(COUNT):
                await client.send(QUEUE, f"{n:{SIZE}}")
            # Whatever feeds itself goes on while nobody sends.
            await asyncio.sleep(0.2)
            (broker,) = node._queueing._application.queues.durable.values()
            assert isinstance(broker.storage, LocalStorage)
            assert COUNT * SIZE < broker.storage.journal.end < 1.5 * COUNT * SIZE

    uvloop.run(asyncio.wait_for(run(), 60))
