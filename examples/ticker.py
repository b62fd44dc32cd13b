"""A ticker: prices published to a topic, several subscribers that each get all of them.

python examples/ticker.py [ws://127.0.0.1:7400/ws]
"""

import asyncio
import sys

from chappe import Client, connect

TOPIC = "topic:prices"
PRICES = [101.5, 102.25, 99.75]


async def watch(name: str, client: Client) -> None:
    async for message in client:
        if message.data is None:
            break
        print(f"{name} sees {message.data['price']}")


async def main(url: str) -> None:
    readers = [await connect(url, as_=f"user:reader-{n}") for n in range(3)]
    for reader in readers:
        await reader.subscribe(TOPIC)
    watching = [asyncio.create_task(watch(reader.address, reader)) for reader in readers]
    async with connect(url, as_="user:exchange") as exchange:
        for price in PRICES:
            await exchange.publish(TOPIC, {"price": price})
        await exchange.publish(TOPIC, None)  # the day is over
    await asyncio.gather(*watching)
    for reader in readers:
        await reader.close()


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:7400/ws"))
