"""A room: whoever is in it hears what anybody says to it, until it leaves.

python examples/room.py [ws://127.0.0.1:7400/ws]
"""

import asyncio
import sys

from chappe import Client, connect

ROOM = "room:42"


async def hear(client: Client) -> None:
    message = await client.receive()
    print(f"{client.address} hears {message.sender}: {message.data}")


async def main(url: str) -> None:
    async with (
        connect(url, as_="user:alice") as alice,
        connect(url, as_="user:bob") as bob,
        connect(url, as_="user:carol") as carol,
    ):
        await alice.join(ROOM)
        await bob.join(ROOM)
        there = await carol.members(ROOM, 10)
        print(f"{there.members} are here: {', '.join(sorted(there.names or ()))}")
        await carol.publish(ROOM, "hello, all")  # to say something one need not be there
        await asyncio.gather(hear(alice), hear(bob))
        await bob.leave(ROOM)
        await alice.publish(ROOM, "this must arrive", reliable=True)
        await hear(alice)
        print(f"Bob has {bob.waiting} more")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:7400/ws"))
