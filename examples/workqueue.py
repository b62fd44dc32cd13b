"""A work queue: jobs go to whoever is free, and to another when one fails at it.

python examples/workqueue.py [ws://127.0.0.1:7400/ws]
"""

import asyncio
import sys

from chappe import Client, connect

QUEUE = "queue:thumbnails"
PICTURES = [f"picture-{n}.png" for n in range(6)]


async def work(worker: Client, done: list[str], finished: asyncio.Event) -> None:
    failed = False
    async with worker.consume(QUEUE, credit=2) as items:
        async for item in items:
            if item.data == PICTURES[0] and not failed:
                failed = True
                await item.nack()  # it comes again, to this worker or to the other
                continue
            # Acknowledged at the end of the block; handed back if the block raises.
            async with item:
                done.append(item.data)
            if len(done) == len(PICTURES):
                finished.set()


async def main(url: str) -> None:
    done: list[str] = []
    finished = asyncio.Event()
    async with (
        connect(url, as_="user:alice") as alice,
        connect(url, as_="user:worker-1") as first,
        connect(url, as_="user:worker-2") as second,
    ):
        await alice.create(QUEUE, volatile=True)
        for picture in PICTURES:
            await alice.send(QUEUE, picture)
        working = [asyncio.create_task(work(worker, done, finished)) for worker in (first, second)]
        await finished.wait()
        for task in working:
            task.cancel()
        await asyncio.wait(working)
        print(f"left over: {len(await alice.fetch(QUEUE, 10))}")
        await alice.delete(QUEUE)
    for picture in sorted(done):
        print(f"done: {picture}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:7400/ws"))
