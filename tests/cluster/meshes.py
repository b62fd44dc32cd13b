"""Meshes in one process, on real sockets or a simulated network, and what they were told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from chappe.clock import SystemClock
from chappe.cluster.link import Link
from chappe.cluster.mesh import Mesh, open_stream
from chappe.cluster.options import ClusterOptions, LinkOptions
from chappe.cluster.tls import LinkTls
from chappe.edge.acceptor import AcceptCounters, Acceptor
from chappe.registry.membership import Member, Members

SECRET = b"a secret that only nodes of this cluster know"
# Short waits before a redial; beats that a busy machine does not miss.
QUICK = LinkOptions(heartbeat_s=2.0, backoff_first_s=0.02, backoff_max_s=0.2)
# For tests that wait for a silence.
DROWSY = LinkOptions(heartbeat_s=0.4, backoff_first_s=0.02, backoff_max_s=0.2)


class Board:
    """Who is there: a registry of one process, whose news can be held back."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._changed: list[asyncio.Event] = []

    def put(self, member: Member) -> None:
        self.members[member.name] = member
        self._tell()

    def drop(self, name: str) -> None:
        self.members.pop(name, None)
        self._tell()

    def _tell(self) -> None:
        for event in self._changed:
            event.set()

    async def views(self) -> AsyncIterator[Members]:
        event = asyncio.Event()
        self._changed.append(event)
        try:
            while True:
                event.clear()
                yield dict(self.members)
                await event.wait()
        finally:
            self._changed.remove(event)


class BoardMembership:
    """One node's membership on a board."""

    def __init__(self, board: Board, *, joins: bool = True) -> None:
        self._board = board
        self._joins = joins
        self._name: str | None = None

    async def join(self, member: Member) -> None:
        self._name = member.name
        if self._joins:
            self._board.put(member)

    async def leave(self) -> None:
        if self._name is not None:
            self._board.drop(self._name)

    def watch(self) -> AsyncIterator[Members]:
        return self._board.views()

    async def close(self) -> None:
        await self.leave()


class Witness:
    """An owner that keeps what it is told, checks its order, and lets a test wait for it."""

    def __init__(self) -> None:
        self.up: dict[str, Link] = {}
        self.downs: list[tuple[str, str]] = []
        self.bodies: dict[str, list[bytes]] = {}
        self.reads: list[int] = []
        self.ups = 0
        self.writables = 0
        self.on_up: Callable[[Link], None] = lambda link: None
        self._changed = asyncio.Event()

    def link_up(self, link: Link) -> None:
        assert link.name not in self.up, "a second link came up before the first went down"
        self.up[link.name] = link
        self.ups += 1
        self.on_up(link)
        self._changed.set()

    def link_down(self, link: Link, reason: str) -> None:
        assert self.up.pop(link.name) is link
        self.downs.append((link.name, reason))
        self._changed.set()

    def received(self, link: Link, bodies: list[bytes]) -> None:
        assert self.up[link.name] is link
        self.bodies.setdefault(link.name, []).extend(bodies)
        self.reads.append(len(bodies))
        self._changed.set()

    def writable(self, link: Link) -> None:
        self.writables += 1
        self._changed.set()

    async def until(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """Wait until something that this owner is told makes the condition true."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Peer:
    """A mesh with its witness."""

    def __init__(self, mesh: Mesh, witness: Witness) -> None:
        self.mesh = mesh
        self.witness = witness
        self.name = mesh.me.name

    @property
    def links(self) -> Mapping[str, Link]:
        return self.mesh.links

    @property
    def port(self) -> int:
        return int(self.mesh.me.url.rsplit(":", 1)[1])

    async def linked_to(self, *names: str, timeout_s: float = 10.0) -> None:
        wanted = set(names) - {self.name}
        await self.witness.until(lambda: set(self.links) == wanted, timeout_s)


def make_peer(
    name: str,
    board: Board,
    *,
    incarnation: int = 1,
    secret: bytes = SECRET,
    cluster: str = "chappe",
    link: LinkOptions = QUICK,
    tls: LinkTls | None = None,
    port: int = 0,
    joins: bool = True,
    **other: Any,
) -> Peer:
    """A mesh on the running loop and real sockets, unless `other` says otherwise."""
    loop = asyncio.get_running_loop()
    witness = Witness()
    settings: dict[str, Any] = {
        "clock": SystemClock(),
        "dial": open_stream(loop),
        "listen": lambda factory, host, port, tls: Acceptor(
            loop, factory, host, port, tls, AcceptCounters()
        ),
        "entropy": os.urandom,
        "rng": Random(),
        "membership": BoardMembership(board, joins=joins),
        "me": Member(name=name, incarnation=incarnation, url=""),
        "options": ClusterOptions(cluster=cluster, port=port, link=link),
    }
    mesh = Mesh(loop=loop, secret=secret, owner=witness, tls=tls, **(settings | other))
    return Peer(mesh, witness)


@asynccontextmanager
async def started(*peers: Peer) -> AsyncIterator[None]:
    """The peers, started together and stopped at the end."""
    await asyncio.gather(*(peer.mesh.start() for peer in peers))
    try:
        yield
    finally:
        for peer in peers:
            await peer.mesh.stop()


async def all_linked(*peers: Peer, timeout_s: float = 10.0) -> None:
    """Wait until each has exactly one link to each other."""
    names = [peer.name for peer in peers]
    for peer in peers:
        await peer.linked_to(*names, timeout_s=timeout_s)
