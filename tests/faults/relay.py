"""The network between nodes, in a thread of its own: what goes through it can be cut off.

Each node is dialled by others at an address of its own, behind which is a relay, and dials the
registry through another. Cutting a node off holds whatever comes from it or goes to it, as a
network does that is down: no connection breaks. Its clients still reach it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any, cast

Address = tuple[str, int]
_LIMIT_S = 30.0


class _End(asyncio.Protocol):
    """One end of a connection through a relay."""

    def __init__(self, passage: _Passage) -> None:
        self._passage = passage
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._passage.made(self)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        assert self.other.transport is not None
        self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._passage.lost(self)


class _Passage:
    """A connection through a relay."""

    def __init__(self, network: Network, owner: str | None, to: Address) -> None:
        self._network = network
        self._owner = owner
        self._to = to
        self.near = _End(self)
        self.far = _End(self)
        self.near.other, self.far.other = self.far, self.near
        self._port = 0

    def made(self, end: _End) -> None:
        assert end.transport is not None
        if end is self.near:
            end.transport.pause_reading()
            self._port = end.transport.get_extra_info("peername")[1]
            self._network.passages.add(self)
            self._network.soon(self._reach())
        else:
            self.turn()

    async def _reach(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.far, *self._to)
        except OSError:
            assert self.near.transport is not None
            self.near.transport.abort()

    def turn(self) -> None:
        """Let through or hold what comes, as the network is now."""
        off = self._network.off
        held = bool(off) and (self._owner in off or self._network.who(self._port) in off)
        for end in (self.near, self.far):
            if end.transport is None or self.far.transport is None:
                continue
            (end.transport.pause_reading if held else end.transport.resume_reading)()

    def lost(self, end: _End) -> None:
        self._network.passages.discard(self)
        assert end.other is not None
        if end.other.transport is not None:
            end.other.transport.close()


class Network:
    """Relays, and who is cut off."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: a fixture that failed half way must not keep the process from ending.
        self._thread = Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        # The process of each node, to know what it has dialled.
        self.pid_of: dict[str, Callable[[], int]] = {}
        self.passages: set[_Passage] = set()
        self.off: frozenset[str] = frozenset()

    def relay(self, at: Address, to: Address, owner: str | None = None) -> Address:
        """Relay from one address to another, which is that node's if it has an owner."""
        return self._do(self._relay(at, to, owner))

    async def _relay(self, at: Address, to: Address, owner: str | None) -> Address:
        server = await self._loop.create_server(lambda: _Passage(self, owner, to).near, *at)
        self._servers.append(server)
        found: Address = server.sockets[0].getsockname()[:2]
        return found

    def cut(self, *names: str) -> None:
        """Hold what these nodes and all others say to each other, and to the registry."""
        self._do(self._turn(frozenset(names)))

    def heal(self) -> None:
        """Let all through again, what was held first."""
        self._do(self._turn(frozenset()))

    async def _turn(self, off: frozenset[str]) -> None:
        self.off = off
        for passage in list(self.passages):
            passage.turn()

    def who(self, port: int) -> str | None:
        """Which node dials from a port."""
        inode = _inode(port)
        for name, pid_of in self.pid_of.items():
            if inode is not None and inode in _sockets(pid_of()):
                return name
        return None

    def soon(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End all of it."""
        try:
            self._do(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_LIMIT_S)
        assert not self._thread.is_alive(), "the network does not end"
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for passage in list(self.passages):
            for end in (passage.near, passage.far):
                if end.transport is not None:
                    end.transport.abort()
        # Whoever is asleep accepts nobody: they would wait for minutes.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def _do(self, work: Any) -> Any:
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(_LIMIT_S)


def _inode(port: int) -> str | None:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[1].partition(":")[2], 16) == port and words[9] != "0":
            return words[9]
    return None


def _sockets(pid: int) -> set[str]:
    found: set[str] = set()
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            try:
                target = os.readlink(f"{folder}/{name}")
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass  # it has ended
    return found
