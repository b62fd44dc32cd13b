"""A durable queue: orders stay in order for each customer, a group shares them, none is lost.

python examples/orders.py [ws://127.0.0.1:7400/ws]
"""

import asyncio
import sys

from chappe import Client, DeadLetter, Item, connect

QUEUE = "queue:orders"
ORDERS = [(customer, n) for n in range(1, 4) for customer in ("ada", "bob")]


class Packers:
    """A group of two: what one packs, the other does not."""

    def __init__(self) -> None:
        self.packed: list[tuple[str, int]] = []
        self.acknowledged = 0
        self.stock = False
        self.done = asyncio.Event()

    async def work(self, client: Client) -> None:
        async with client.consumer(QUEUE, group="packers", credit=4) as consumer:
            async for item in consumer:
                await self.pack(item)

    async def pack(self, item: Item) -> None:
        order = (item.data["customer"], item.data["n"])
        if order == ("bob", 2) and not self.stock:
            await item.nack()  # tried again, then a dead letter; bob's next order waits for that
            return
        # Acknowledged at the end of the block; handed back if the block raises.
        async with item:
            self.packed.append(order)
        self.acknowledged += 1
        if self.acknowledged == len(ORDERS):
            self.done.set()


async def main(url: str) -> None:
    packers = Packers()
    dead: asyncio.Queue[DeadLetter] = asyncio.Queue()
    async with (
        connect(url, as_="user:shop") as shop,
        connect(url, as_="user:packer-1") as first,
        connect(url, as_="user:packer-2") as second,
    ):
        await shop.create(QUEUE, attempts_max=3, retry_s=0.01)
        # Asks for two lanes: messages with the same key are always in the same one.
        async with shop.producer(QUEUE, lanes=2) as producer:
            producer.on_dead(dead.put_nowait)
            for number, (customer, n) in enumerate(ORDERS, 1):
                order = {"customer": customer, "n": n}
                receipt = await producer.send(order, key=customer, num=number)
                print(receipt.text)  # stored: it would survive a crash from here on
            working = [asyncio.create_task(packers.work(client)) for client in (first, second)]
            letter = await dead.get()
            print(f"dead: order {letter.num} after {letter.attempts} attempts")
        packers.stock = True
        async for found in shop.dead_letters(QUEUE):
            print(f"found: {found.data['customer']} {found.data['n']}")
        print(f"replayed: {await shop.replay(QUEUE)}")
        await packers.done.wait()
        for task in working:
            task.cancel()
        await asyncio.wait(working)
        print(f"left over: {(await shop.inspect(QUEUE))['depth']}")
        await shop.delete(QUEUE)
    for customer in ("ada", "bob"):
        print(customer, *(n for who, n in packers.packed if who == customer))


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:7400/ws"))
