"""A node's mesh in a process of its own, to be stopped in its sleep; it tells what it sees."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from chappe.registry.membership import Member
from tests.cluster.meshes import DROWSY, Board, make_peer


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(name: str, peer: str) -> None:
    """Be a node of that name that knows one other, until the standard input ends."""
    board = Board()
    me = make_peer(name, board, link=DROWSY)
    board.put(msgspec.json.decode(peer, type=Member))
    await me.mesh.start()
    say(msgspec.json.encode(me.mesh.me).decode())
    loop = asyncio.get_running_loop()
    told = 0
    ending = asyncio.Event()
    loop.add_reader(sys.stdin, ending.set)
    while not ending.is_set():
        # Polled: a witness wakes one waiter, and this process does nothing else.
        await asyncio.sleep(0.01)
        for _, reason in me.witness.downs[told:]:
            say(f"down {reason}")
        told = len(me.witness.downs)
    await me.mesh.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
