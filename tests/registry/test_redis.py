"""A registry on a Redis that fails in every way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from chappe.errors import ClusterError, Held
from chappe.registry.coordination import Coordination
from chappe.registry.ledger import SessionOver
from chappe.registry.membership import Member, Members
from chappe.registry.options import RegistryOptions
from chappe.registry.redis import RedisLedger, redis_client
from chappe.registry.registry import Registry
from chappe.registry.url import open_registry
from tests.registry.elsewhere import Elsewhere
from tests.registry.grounds import WAIT_S, seen
from tests.servers import RedisServer

OPTIONS = RegistryOptions(lease_s=1.2, poll_s=60, timeout_s=0.4)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    running = RedisServer(tmp_path)
    yield running
    running.kill()


def member(name: str) -> Member:
    return Member(name=name, incarnation=1, url=f"ws://{name}")


@asynccontextmanager
async def nodes(
    url: str, *names: str, options: RegistryOptions = OPTIONS
) -> AsyncIterator[list[Registry]]:
    """Nodes that have joined and see each other."""
    registries = [open_registry(url, options) for _ in names]
    for name, registry in zip(names, registries, strict=True):
        await registry.membership.join(member(name))
    for registry in registries:
        async with aclosing(registry.membership.watch()) as views:
            await seen(views, lambda view: len(view) == len(names))
    try:
        yield registries
    finally:
        for registry in registries:
            await registry.close()


def agreeing(registry: Registry) -> Coordination:
    assert registry.coordination is not None
    return registry.coordination


async def joined(redis: RedisServer, *names: str) -> None:
    """Wait until a node that comes only now sees exactly these."""
    stranger = open_registry(redis.url, OPTIONS)
    async with aclosing(stranger.membership.watch()) as views:
        await seen(views, lambda view: set(view) == set(names))
    await stranger.close()


@pytest.mark.parametrize("fault", ["restart", "restart empty", "flush", "cut"])
def test_after_a_fault_all_are_members_again_and_nobody_was_missed(server: RedisServer, fault: str):
    async def story() -> None:
        async with nodes(server.url, "n1", "n2", "n3") as (first, second, _):
            shown: list[Members] = []

            async def watch() -> None:
                async for view in first.membership.watch():
                    shown.append(view)  # noqa: PERF401, to be read while it goes on

            watching = asyncio.create_task(watch())
            values = agreeing(second).watch("/a")
            assert await anext(values) is None
            await _break(server, fault)
            await joined(server, "n1", "n2", "n3")
            # What changes after the fault is told.
            put = await agreeing(first).put("/a", b"after", None)
            assert await seen(values, lambda value: value is not None) == put
            # While the others had not joined again yet, nobody was given up.
            assert all(set(view) == {"n1", "n2", "n3"} for view in shown), shown
            watching.cancel()

    asyncio.run(story())


async def _break(server: RedisServer, fault: str) -> None:
    if fault == "flush":
        server.flush()
    elif fault == "cut":
        server.cut_connections()
    else:
        await asyncio.to_thread(server.restart, empty=fault == "restart empty")


def test_a_node_that_dies_together_with_what_redis_knew_is_given_up(server: RedisServer):
    async def story() -> None:
        async with nodes(server.url, "n1") as (first,):
            views = first.membership.watch()
            other = await asyncio.to_thread(Elsewhere, server.url, "n2", OPTIONS)
            await seen(views, lambda view: len(view) == 2)
            other.kill()
            await asyncio.to_thread(server.restart, empty=True)
            await seen(views, lambda view: set(view) == {"n1"})

    asyncio.run(story())


def test_a_lease_survives_broken_connections_and_a_restart_with_data(server: RedisServer):
    async def story() -> None:
        async with nodes(server.url, "n1", "n2") as (first, second):
            lease = await agreeing(first).acquire("/a", b"n1")
            server.cut_connections()
            await asyncio.to_thread(server.restart)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2 * OPTIONS.lease_s):
                    await lease.lost()
            with pytest.raises(Held):
                await agreeing(second).acquire("/a", b"n2")

    asyncio.run(story())


def test_a_lease_that_redis_has_forgotten_is_lost_and_its_next_epoch_is_larger(
    server: RedisServer,
):
    async def story() -> None:
        async with nodes(server.url, "n1") as (first,):
            lease = await agreeing(first).acquire("/a", b"n1")
            value = await agreeing(first).put("/v", b"", None)
            await asyncio.to_thread(server.restart, empty=True)
            async with asyncio.timeout(WAIT_S):
                await lease.lost()
            assert lease.until <= asyncio.get_running_loop().time()
            assert (await agreeing(first).acquire("/a", b"n1")).epoch > lease.epoch
            assert (await agreeing(first).put("/v", b"", None)).version > value.version

    asyncio.run(story())


def test_while_redis_hangs_requests_fail_in_time_and_leases_run_out(server: RedisServer):
    async def story() -> None:
        async with nodes(server.url, "n1", "n2") as (first, second):
            lease = await agreeing(first).acquire("/a", b"n1")
            views = second.membership.watch()
            await seen(views, lambda view: len(view) == 2)
            server.hold()
            try:
                with pytest.raises(ClusterError, match=r"redis://127\.0\.0\.1"):
                    await agreeing(first).acquire("/b", b"n1")
                async with asyncio.timeout(WAIT_S):
                    await lease.lost()
            finally:
                server.resume()
            # Both can be had: what nobody was told of is held by nobody.
            async with asyncio.timeout(WAIT_S):
                for path in ("/a", "/b"):
                    await _acquired(agreeing(second), path)
            await joined(server, "n1", "n2")

    asyncio.run(story())


async def _acquired(coordination: Coordination, path: str) -> None:
    while True:
        try:
            await coordination.acquire(path, b"n2")
            return
        except ClusterError:
            await asyncio.sleep(0.02)


def test_what_is_asked_for_without_an_answer_is_taken_back(server: RedisServer):
    async def story() -> None:
        options = RegistryOptions(lease_s=30, poll_s=60, timeout_s=0.2)
        async with nodes(server.url, "n1", "n2", options=options) as (first, second):
            rows = agreeing(second).watch_seats("/row")
            assert await anext(rows) == {}
            server.hold()
            try:
                for asking in (
                    agreeing(first).acquire("/a", b"n1"),
                    agreeing(first).sit("/row", b"n1"),
                ):
                    with pytest.raises(ClusterError):
                        await asking
            finally:
                server.resume()
            async with asyncio.timeout(WAIT_S):
                await _acquired(agreeing(second), "/a")
            seat = await agreeing(second).sit("/row", b"n2")
            await seen(rows, lambda row: row == {seat.number: b"n2"})

    asyncio.run(story())


def test_a_request_that_comes_after_it_was_taken_back_does_nothing(server: RedisServer):
    async def story() -> None:
        client = redis_client(
            ("127.0.0.1", server.port),
            0,
            user=None,
            password=None,
            tls=False,
            ca=None,
            timeout_s=1,
        )
        ledger = RedisLedger(client, "redis", "chappe", OPTIONS)
        session = await ledger.begin()
        await ledger.free(session, "/a", "1")
        await ledger.rise(session, "/row", "2")
        with pytest.raises(SessionOver):
            await ledger.take(session, "/a", "1", b"late")
        with pytest.raises(SessionOver):
            await ledger.sit(session, "/row", "2", b"late")
        assert await ledger.take(session, "/a", "3", b"") > 0
        await ledger.free(session, "/a", "3")
        assert await ledger.take(await ledger.begin(), "/a", "1", b"") > 0
        await ledger.close()

    asyncio.run(story())


def test_a_release_that_redis_did_not_hear_is_made_up_for(server: RedisServer):
    async def story() -> None:
        options = RegistryOptions(lease_s=30, poll_s=60, timeout_s=0.2)
        async with nodes(server.url, "n1", "n2", options=options) as (first, second):
            lease = await agreeing(first).acquire("/a", b"n1")
            server.hold()
            try:
                await lease.release()
            finally:
                server.resume()
            async with asyncio.timeout(WAIT_S):
                await _acquired(agreeing(second), "/a")

    asyncio.run(story())


def test_what_nobody_told_of_is_found_by_polling(server: RedisServer):
    async def story() -> None:
        options = RegistryOptions(lease_s=30, poll_s=0.1, timeout_s=1)
        async with nodes(server.url, "n1", options=options) as (first,):
            values = agreeing(first).watch("/a")
            assert await anext(values) is None
            # Written behind everybody's back: no notification.
            server.tell("HSET", "{chappe}:value:/a", "d", "quiet", "v", "1")
            found = await seen(values, lambda value: value is not None)
            assert found is not None
            assert found.value == b"quiet"

    asyncio.run(story())


def test_a_registry_that_is_not_there_is_named(server: RedisServer):
    async def story() -> None:
        server.kill()
        registry = open_registry(server.url, OPTIONS)
        with pytest.raises(ClusterError, match=rf"redis://127\.0\.0\.1:{server.port}"):
            await registry.membership.join(member("n1"))
        # It may come later: the same registry works then.
        await asyncio.to_thread(server.start)
        await registry.membership.join(member("n1"))
        await registry.close()

    asyncio.run(story())


def test_a_password_is_used_and_told_nobody(
    server: RedisServer, capsys: pytest.CaptureFixture[str]
):
    async def story() -> None:
        server.tell("CONFIG", "SET", "requirepass", "canary-secret")
        wrong = open_registry(f"redis://:canary-wrong@127.0.0.1:{server.port}", OPTIONS)
        with pytest.raises(ClusterError) as refused:
            await wrong.membership.join(member("n1"))
        await wrong.close()
        assert "canary" not in str(refused.value)
        assert "canary" not in repr(refused.value.__cause__)
        right = open_registry(f"redis://:canary-secret@127.0.0.1:{server.port}", OPTIONS)
        await right.membership.join(member("n1"))
        assert "canary" not in repr(right)
        await right.close()

    asyncio.run(story())
    assert "canary" not in "".join(capsys.readouterr())
