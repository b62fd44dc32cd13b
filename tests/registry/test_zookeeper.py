"""A registry on a ZooKeeper that fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chappe.errors import ClusterError, ConfigError
from chappe.registry.coordination import Coordination, Lease
from chappe.registry.membership import Member
from chappe.registry.options import RegistryOptions
from chappe.registry.registry import Registry
from chappe.registry.url import open_registry
from tests.registry.grounds import WAIT_S, seen
from tests.servers import ZooKeeperServer

OPTIONS = RegistryOptions(lease_s=1.5, poll_s=60, timeout_s=1.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    running = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    yield running
    running.kill()


@pytest.fixture
def url(server: ZooKeeperServer, tmp_path: Path) -> str:
    return f"{server.url}/{tmp_path.name}"


def member(name: str) -> Member:
    return Member(name=name, incarnation=1, url=f"ws://{name}")


def agreeing(registry: Registry) -> Coordination:
    assert registry.coordination is not None
    return registry.coordination


async def _acquired(coordination: Coordination, path: str) -> Lease:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await coordination.acquire(path, b"again")
            except ClusterError:
                await asyncio.sleep(0.02)


def test_across_a_restart_nobody_is_missed_and_no_lease_is_had_twice(
    server: ZooKeeperServer, url: str
):
    async def story() -> None:
        first, second = open_registry(url, OPTIONS), open_registry(url, OPTIONS)
        await first.membership.join(member("n1"))
        await second.membership.join(member("n2"))
        values = agreeing(second).watch("/a")
        assert await anext(values) is None
        lease = await agreeing(first).acquire("/lease", b"n1")
        await asyncio.to_thread(server.restart)
        await _never_both(lease, agreeing(second))
        # What changes after the restart is told.
        writing = asyncio.create_task(_put(agreeing(first), "/a", b"after"))
        await seen(values, lambda value: value is not None and value.value == b"after")
        await writing
        stranger = open_registry(url, OPTIONS)
        await seen(stranger.membership.watch(), lambda view: set(view) == {"n1", "n2"})
        for registry in (first, second, stranger):
            await registry.close()

    asyncio.run(story())


async def _never_both(lease: Lease, contender: Coordination) -> None:
    """Contend for twice the lease's time; whoever has it, has it alone."""
    loop = asyncio.get_running_loop()
    end = loop.time() + 2 * OPTIONS.lease_s
    while loop.time() < end:
        try:
            await contender.acquire("/lease", b"n2")
        except ClusterError:
            await asyncio.sleep(0.02)
        else:
            assert lease.until <= loop.time()
            return


async def _put(coordination: Coordination, path: str, value: bytes) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await coordination.put(path, value, None)
                return
            except ClusterError:
                await asyncio.sleep(0.02)


def test_while_zookeeper_hangs_requests_fail_in_time_and_leases_run_out(
    server: ZooKeeperServer, url: str
):
    async def story() -> None:
        first, second = open_registry(url, OPTIONS), open_registry(url, OPTIONS)
        await first.membership.join(member("n1"))
        lease = await agreeing(first).acquire("/a", b"n1")
        server.hold()
        try:
            with pytest.raises(ClusterError, match=r"zookeeper://127\.0\.0\.1"):
                await agreeing(first).acquire("/b", b"n1")
            async with asyncio.timeout(WAIT_S):
                await lease.lost()
        finally:
            server.resume()
        # Given up by its holder, it is given back, although ZooKeeper's session may have lived.
        for path in ("/a", "/b"):
            await _acquired(agreeing(second), path)
        await seen(second.membership.watch(), lambda view: set(view) == {"n1"})
        await first.close()
        await second.close()

    asyncio.run(story())


def test_the_time_that_the_server_grants_is_the_one_that_counts(server: ZooKeeperServer, url: str):
    async def story() -> None:
        # The server allows no more than a minute.
        registry = open_registry(url, RegistryOptions(lease_s=3600, timeout_s=5))
        lease = await agreeing(registry).acquire("/a", b"")
        left_s = lease.until - asyncio.get_running_loop().time()
        assert left_s <= 40
        await registry.close()

    asyncio.run(story())


def test_a_closed_registry_leaves_no_thread_behind(url: str):
    async def story() -> None:
        registry = open_registry(url, OPTIONS)
        await registry.membership.join(member("n1"))
        await registry.close()

    before = set(threading.enumerate())
    asyncio.run(story())
    assert set(threading.enumerate()) <= before


def test_a_registry_that_is_not_there_is_named_and_the_loop_goes_on(tmp_path: Path):
    async def story() -> None:
        registry = open_registry("zookeeper://127.0.0.1:1", OPTIONS)
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        turning = asyncio.create_task(turn())
        with pytest.raises(ClusterError, match=r"zookeeper://127\.0\.0\.1:1: no answer"):
            await registry.membership.join(member("n1"))
        await registry.close()
        assert turns > 20
        turning.cancel()

    asyncio.run(story())


def test_a_password_is_used_and_told_nobody(url: str, caplog: pytest.LogCaptureFixture):
    async def story() -> None:
        address, _, path = url.removeprefix("zookeeper://").partition("/")
        right = open_registry(f"zookeeper://chappe:canary@{address}/{path}", OPTIONS)
        await right.membership.join(member("n1"))
        stranger = open_registry(url, OPTIONS)
        with pytest.raises(ClusterError, match="NoAuth"):
            await stranger.membership.join(member("n2"))
        await stranger.close()
        await right.close()

    asyncio.run(story())
    assert "canary" not in caplog.text
    with pytest.raises(ConfigError, match="both a user and a password"):
        open_registry("zookeeper://chappe@127.0.0.1")
