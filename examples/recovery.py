"""A topic with a history: a reader that was away gets what it missed, each message once.

python examples/recovery.py [ws://127.0.0.1:7400/ws]
"""

import asyncio
import sys

from chappe import connect

TOPIC = "topic:scores"


async def main(url: str) -> None:
    async with connect(url, as_="user:stadium") as stadium:
        await stadium.create(TOPIC, history=100, history_s=3600)
        async with connect(url, as_="user:reader") as reader:
            await reader.subscribe(TOPIC)
            await stadium.publish(TOPIC, "1:0")
            print(f"live: {(await reader.receive()).data}")
            position = reader.position(TOPIC)
        # A lost connection does this by itself. Whoever ends keeps the position, and says it later.
        await stadium.publish(TOPIC, "1:1")
        await stadium.publish(TOPIC, "2:1")
        async with connect(url, as_="user:reader") as reader:
            complete = await reader.subscribe(TOPIC, since=position)
            for _ in range(2):
                print(f"missed: {(await reader.receive()).data}")
            print("nothing is lost" if complete else "some is lost")
        await stadium.delete(TOPIC)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:7400/ws"))
