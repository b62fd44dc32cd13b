"""A hub's end of the packed protocol that does only what a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar, cast

from chappe.wire.ops import Hello, Op, Ping, Pong, Reply
from chappe.wire.packed import Splitter, encode_op, frame, read_client_ops

T = TypeVar("T", bound=Op)


class Peer(asyncio.Protocol):
    """Answers hello, and beats if `beats`; what else comes is kept in `ops`."""

    transport: asyncio.Transport

    def __init__(self, port: Port) -> None:
        self._port = port
        self._splitter = Splitter(1 << 20)
        self.ops: list[Op] = []
        self.pings = 0
        self.more = asyncio.Event()
        self.gone = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._port.peers.append(self)
        self._port.more.set()

    def data_received(self, data: bytes) -> None:
        for array in self._splitter.feed(data):
            for op in read_client_ops(array):
                self._take(op)
        self.more.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)

    def _take(self, op: Op) -> None:
        if isinstance(op, Hello):
            if self._port.greets:
                greeting = Reply(op.id or 0, True, session="s", as_=self._port.as_ or op.as_)
                greeting.heartbeat_s = self._port.heartbeat_s
                self.say(greeting)
        elif isinstance(op, Ping):
            self.pings += 1
            if self._port.beats:
                self.say(Pong())
        elif not isinstance(op, Pong):
            self.ops.append(op)

    def say(self, *ops: Op) -> None:
        """Send ops."""
        self.transport.write(b"".join(frame(encode_op(op)) for op in ops))

    def answer(self, op: Any, **fields: Any) -> None:
        """Reply to an op, ok unless told otherwise."""
        self.say(Reply(op.id, **{"ok": True, **fields}))

    async def heard(self, count: int) -> list[Op]:
        """Wait until that many ops have come."""
        while len(self.ops) < count:
            self.more.clear()
            await self.more.wait()
        return self.ops

    async def pinged(self, count: int) -> None:
        """Wait until that many beats have come."""
        while self.pings < count:
            self.more.clear()
            await self.more.wait()

    async def next(self, kind: type[T]) -> T:
        """Wait for the next op, which is of that kind, and take it off the list."""
        op = (await self.heard(1)).pop(0)
        assert isinstance(op, kind), op
        return op


class Port:
    """Where peers are made, one per connection."""

    def __init__(self, heartbeat_s: float, beats: bool, greets: bool) -> None:
        self.heartbeat_s = heartbeat_s
        self.beats = beats
        self.greets = greets
        self.peers: list[Peer] = []
        self.more = asyncio.Event()
        self.url = ""
        # Who the hub takes clients for, if not for whom they say.
        self.as_ = ""

    @property
    def peer(self) -> Peer:
        """The latest connection's."""
        return self.peers[-1]

    async def connected(self, count: int) -> Peer:
        """Wait until that many connections have come; the latest."""
        while len(self.peers) < count:
            self.more.clear()
            await self.more.wait()
        return self.peer

    async def cut(self) -> Peer:
        """Break the latest connection, and wait for the next."""
        count = len(self.peers)
        self.peer.transport.abort()
        return await self.connected(count + 1)


@contextlib.asynccontextmanager
async def peering(
    *, heartbeat_s: float = 5.0, beats: bool = True, greets: bool = True
) -> AsyncIterator[Port]:
    """Listen for clients for a while."""
    port = Port(heartbeat_s, beats, greets)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Peer(port), "127.0.0.1", 0)
    port.url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield port
    finally:
        server.close()
        for peer in port.peers:
            peer.transport.abort()
        await server.wait_closed()
