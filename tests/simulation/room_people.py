"""The clients of a simulated gateway: they come, go, and talk."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.room_node import RoomNode

APPS = ("chat", "game")
# Numbers and names; of both apps, so that what is mixed up is noticed.
ROOMS = ("0", "1", "2", "3", "7", "12", "lobby", "tea")
KEYS = tuple((app, room) for app in APPS for room in ROOMS)
CLIENTS = 5
# How often something is done on each gateway, in a second.
_RATE = 6.0
# Most messages are small; some need many datagrams.
_SMALL, _LARGE = 60, 4000
_BURST_S = 0.004


async def live(node: RoomNode, random: Random) -> None:
    """Let people come, and do something now and then, until all is to be quiet."""
    for client in range(CLIENTS):
        for key in random.sample(KEYS, random.randint(1, 3)):
            node.join(client, key)
    while not node.world.quiet:
        await asyncio.sleep(random.expovariate(_RATE))
        if node.world.quiet or not node.up:
            return
        await act(node, random)


async def act(node: RoomNode, random: Random) -> None:
    """Do one thing."""
    rooms = node.crowd.rooms
    kind = random.random()
    if kind < 0.25:
        client, key = random.randrange(CLIENTS), random.choice(KEYS)
        if client not in rooms.get(key, ()):
            node.join(client, key)
    elif kind < 0.45 and rooms:
        key = random.choice(sorted(rooms))
        node.leave(random.choice(sorted(rooms[key])), key)
    else:
        await talk(node, random)


async def talk(node: RoomNode, random: Random) -> None:
    """Say something to a room, or several things one after the other."""
    key = random.choice(KEYS)
    reliable = random.random() < 0.3
    for _ in range(random.choice([1, 1, 2, 4])):
        size = _LARGE if random.random() < 0.05 else random.randrange(_SMALL)
        node.publish(key, reliable=reliable, size=size)
        await asyncio.sleep(random.uniform(0, _BURST_S))
        if not node.up:
            return
