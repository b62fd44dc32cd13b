"""Two users: one says hello, the other hears it.

python examples/hello.py [ws://127.0.0.1:7400/ws]
"""

import asyncio
import sys

from chappe import connect


async def main(url: str) -> None:
    async with connect(url, as_="user:alice") as alice, connect(url, as_="user:bob") as bob:
        await alice.send("user:bob", {"text": "hello, Bob"})
        message = await bob.receive()
        print(f"{message.sender} says: {message.data['text']}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:7400/ws"))
