"""Registries of every kind, empty, for the same tests to be run on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from chappe.node.keeper.kept import kept_registry
from chappe.registry.coordination import Coordination
from chappe.registry.membership import Member
from chappe.registry.memory import MemoryRegistry
from chappe.registry.options import RegistryOptions
from chappe.registry.registry import Registry
from chappe.registry.url import open_registry
from tests.node.keeper_process import KeeperProcess
from tests.registry.elsewhere import Elsewhere
from tests.servers import DnsServer

T = TypeVar("T")
# Longer than anything here may take on a busy machine; nothing waits so long when all is well.
WAIT_S = 20.0
_numbers = itertools.count()


async def seen(views: AsyncIterator[T], wanted: Callable[[T], bool]) -> T:
    """Read views until one is as wanted."""
    view: object = "nothing"
    try:
        async with asyncio.timeout(WAIT_S):
            async for view in views:
                if wanted(view):
                    return view
    except TimeoutError:
        pass
    raise AssertionError(f"never seen; the last view was {view!r}")


class Ground:
    """A registry that several nodes open; whatever they leave open is closed at the end."""

    # Polls are so seldom that a test which needs one would not end: changes must be told.
    options = RegistryOptions(lease_s=1.2, poll_s=60, timeout_s=1.0)

    def __init__(self, url: str) -> None:
        self.url = url
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Ground:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    def open(self, name: str) -> Registry:
        """Open it as a node does."""
        registry = self._opened(name)
        self._open.push_async_callback(registry.close)
        return registry

    def member(self, number: int, run: int = 1) -> Member:
        """How a node describes itself."""
        return Member(name=f"n{number}", incarnation=run, url=f"ws://127.0.0.{number}:7403")

    async def tell(self, *members: Member) -> None:
        """Let the world know who runs, if that is not what joining does."""

    async def holder(self, name: str) -> Holder:
        """Start a node elsewhere, which joins, holds /lease and sits in /row."""
        holder = ProcessHolder(await asyncio.to_thread(Elsewhere, self.url, name, self.options))
        self._open.callback(holder.die)
        return holder

    def coordination(self, name: str) -> Coordination:
        """Open it as a node does that only agrees with others."""
        coordination = self.open(name).coordination
        assert coordination is not None
        return coordination

    def _opened(self, name: str) -> Registry:
        return open_registry(self.url, self.options)


class Holder:
    """A node that can be paused and killed."""

    def pause(self) -> None:
        """Let it not hear, nor be heard."""
        raise NotImplementedError

    def resume(self) -> None:
        """Let it go on."""
        raise NotImplementedError

    async def until(self) -> tuple[float, float]:
        """Until when it trusts its lease, and what time it is when it says so."""
        raise NotImplementedError

    def die(self) -> None:
        """Let it be gone without a word."""
        raise NotImplementedError


class ProcessHolder(Holder):
    """One in a process of its own."""

    def __init__(self, process: Elsewhere) -> None:
        self._process: Elsewhere | None = process

    def pause(self) -> None:
        assert self._process is not None
        self._process.stop()

    def resume(self) -> None:
        assert self._process is not None
        self._process.resume()

    async def until(self) -> tuple[float, float]:
        assert self._process is not None
        known = await self._process.knows()
        return known["until"], known["now"]

    def die(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


class MemoryGround(Ground):
    """A registry in this process."""

    options = RegistryOptions(lease_s=0.6, poll_s=60, timeout_s=0.2)

    def __init__(self) -> None:
        super().__init__("memory")
        self.registry = MemoryRegistry(self.options)

    async def holder(self, name: str) -> Holder:
        registry = self.open(name)
        assert registry.coordination is not None
        await registry.membership.join(Member(name=name, incarnation=1, url=f"ws://{name}"))
        lease = await registry.coordination.acquire("/lease", name.encode())
        await registry.coordination.sit("/row", name.encode())
        memory = self.registry

        class MemoryHolder(Holder):
            def pause(self) -> None:
                memory.cut(name)

            def resume(self) -> None:
                memory.heal(name)

            async def until(self) -> tuple[float, float]:
                return lease.until, asyncio.get_running_loop().time()

            def die(self) -> None:
                memory.cut(name)

        return MemoryHolder()

    def _opened(self, name: str) -> Registry:
        return self.registry.open(name)


class KeeperGround(Ground):
    """A registry in a keeper's process."""

    def __init__(self, folder: Path) -> None:
        self._keeper = KeeperProcess(folder, lease_s=self.options.lease_s)
        super().__init__(f"keeper:{self._keeper.path}")
        self._open.callback(self._keeper.stop)

    def _opened(self, name: str) -> Registry:
        return kept_registry(self._keeper.path, self.options)


class DnsGround(Ground):
    """A service's addresses; nothing tells of changes but the next look."""

    options = RegistryOptions(lease_s=1.2, poll_s=0.05, timeout_s=1.0)

    def __init__(self, server: DnsServer, service: str) -> None:
        super().__init__(f"kubernetes://{service}:7403?dns=127.0.0.1:{server.port}")
        self._server = server
        self._service = service

    def member(self, number: int, run: int = 1) -> Member:
        return Member(name=f"127-0-0-{number}", incarnation=run, url=f"ws://127.0.0.{number}:7403")

    async def tell(self, *members: Member) -> None:
        addresses = [member.name.replace("-", ".") for member in members]
        self._server.tell(self._service, addresses)


Story = Callable[[Ground], Awaitable[None]]
Run = Callable[[Story], None]


def runner(request: pytest.FixtureRequest) -> Run:
    """Let a fixture run stories on a ground of the kind that is its parameter."""

    def run(story: Story) -> None:
        async def within() -> None:
            async with make_ground(request.param, request) as ground:
                await story(ground)

        asyncio.run(within())

    return run


def make_ground(kind: str, request: pytest.FixtureRequest) -> Ground:
    """Prepare a registry that nothing else uses."""
    number = next(_numbers)
    if kind == "memory":
        return MemoryGround()
    if kind == "keeper":
        return KeeperGround(request.getfixturevalue("tmp_path"))
    if kind == "redis":
        return Ground(f"{request.getfixturevalue('redis_server').url}/0?prefix=test{number}")
    if kind == "zookeeper":
        return Ground(f"{request.getfixturevalue('zookeeper_server').url}/test{number}")
    return DnsGround(request.getfixturevalue("dns_server"), f"chappe{number}.test.svc")
