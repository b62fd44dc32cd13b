"""The keeper: what the workers of a machine share outlives each of them, and the keeper too."""

from __future__ import annotations

import asyncio
import signal
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from chappe.errors import ClusterError, ConfigError, Held, StorageError
from chappe.node.keeper import desk, frame
from chappe.node.keeper.keeper import SOCKET
from chappe.node.keeper.line import Line
from chappe.node.unix import listen, reachable
from chappe.registry.membership import Member, Members
from chappe.registry.registry import Registry
from tests.loop import on_loop
from tests.node.keeper_process import KeeperProcess

T = TypeVar("T")


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[KeeperProcess]:
    """A keeper over a file, with a lease that runs out within a test."""
    keeper = KeeperProcess(tmp_path, "sqlite:", lease_s=2.0)
    yield keeper
    keeper.stop()


def member(name: str, incarnation: int = 1) -> Member:
    return Member(name=name, incarnation=incarnation, url=f"ws://127.0.0.1/{name}")


@asynccontextmanager
async def joined(keeper: KeeperProcess, *names: str) -> AsyncIterator[list[Registry]]:
    registries = [keeper.registry() for _ in names]
    for registry, name in zip(registries, names, strict=True):
        await registry.membership.join(member(name))
    try:
        yield registries
    finally:
        for registry in registries:
            await registry.close()


async def until(views: AsyncIterator[T], wanted: T) -> list[T]:
    """Read views until the wanted one; give all that came."""
    seen: list[T] = []
    async for view in views:
        seen.append(view)
        if view == wanted:
            return seen
    raise AssertionError("the watch ended")


async def names(views: AsyncIterator[Members]) -> AsyncIterator[set[str]]:
    async for view in views:
        yield set(view)


def test_the_socket_is_its_owners_alone(tmp_path: Path) -> None:
    listening = listen(tmp_path / SOCKET)
    assert stat.S_IMODE((tmp_path / "keeper.sock").stat().st_mode) == 0o600
    # One that was left behind by a crash is in nobody's way.
    listen(tmp_path / SOCKET).close()
    listening.close()
    with pytest.raises(ConfigError, match=r"data: .*keeper\.sock"):
        listen(tmp_path / "missing" / SOCKET)


@on_loop
async def test_a_folder_may_lie_deeper_than_a_sockets_address_reaches(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    keeper = KeeperProcess(deep)
    store = keeper.store()
    assert await store.swap("t", "k", None, b"v")
    await store.close()
    keeper.stop()


@on_loop
async def test_changes_asked_while_no_keeper_lives_are_made_by_the_next_in_order(
    keeper: KeeperProcess,
) -> None:
    store = keeper.store(timeout_s=20.0)
    await store.change("t", {"before": b"1"})
    keeper.kill()
    asked = [asyncio.create_task(store.change("t", {"k": str(i).encode()})) for i in range(100)]
    await asyncio.sleep(0)
    keeper.start()
    await asyncio.gather(*asked)
    assert await store.get("t", ["before", "k"]) == {"before": b"1", "k": b"99"}
    await store.close()


@on_loop
async def test_a_swap_under_a_dying_keeper_is_not_made_twice(keeper: KeeperProcess) -> None:
    store = keeper.store()
    await store.get("t", [])
    keeper.signal(signal.SIGSTOP)
    asked = asyncio.create_task(store.swap("t", "k", None, b"v"))
    await asyncio.sleep(0)
    keeper.kill()
    with pytest.raises(StorageError, match="the keeper went"):
        await asked
    keeper.start()
    assert await store.swap("t", "k", None, b"v")
    await store.close()


@on_loop
async def test_a_keeper_that_does_not_answer_is_an_error_in_time_and_no_end(
    keeper: KeeperProcess,
) -> None:
    store = keeper.store(timeout_s=0.2)
    await store.get("t", [])
    keeper.signal(signal.SIGSTOP)
    with pytest.raises(StorageError, match=r"no answer within 0\.2 s"):
        await store.change("t", {"k": b"v"})
    keeper.signal(signal.SIGCONT)
    # The line was never cut, so the order is kept: what timed out happened before.
    while True:
        try:
            assert await store.get("t", ["k"]) == {"k": b"v"}
            break
        except StorageError:
            continue
    await store.close()


@on_loop
async def test_what_is_too_much_for_a_frame_is_refused_and_harms_nobody(
    keeper: KeeperProcess,
) -> None:
    store = keeper.store()
    with pytest.raises(StorageError, match="bytes at once"):
        await store.change("t", {"k": bytes(frame.FRAME_BYTES_MAX)})
    half = bytes(frame.FRAME_BYTES_MAX // 2 + 1)
    await store.change("t", {"a": half})
    await store.change("t", {"b": half})
    with pytest.raises(StorageError, match="bytes at once"):
        await store.get("t", ["a", "b"])
    # Page by page it can be read all the same.
    assert [[key for key, _ in page] async for page in store.scan("t")] == [["a"], ["b"]]
    await store.close()


@on_loop
async def test_scans_that_were_left_or_cut_short_do_not_pile_up(keeper: KeeperProcess) -> None:
    store = keeper.store()
    await store.change("t", {f"k{i}": b"v" for i in range(2000)})
    for _ in range(2 * desk.SCANS_MAX):
        pages = store.scan("t")
        await anext(pages)
        await pages.aclose()  # type: ignore[attr-defined]
    open_ = [store.scan("t") for _ in range(desk.SCANS_MAX + 1)]
    for pages in open_[:-1]:
        await anext(pages)
    with pytest.raises(StorageError, match="scans are open already"):
        await anext(open_[-1])
    keeper.kill()
    keeper.start()
    with pytest.raises(StorageError, match="the keeper went"):
        await anext(open_[0])
    with pytest.raises(StorageError, match="replaced during the scan"):
        await anext(open_[1])
    await store.close()


@on_loop
async def test_who_hangs_up_is_a_member_no_more_at_once(tmp_path: Path) -> None:
    # A lease of this time would outlast the test: it is the end of the line that tells.
    keeper = KeeperProcess(tmp_path, lease_s=600.0)
    async with joined(keeper, "a") as (a,):
        line = Line(keeper.path)
        session = await line.ask("ledger.begin")
        await line.ask("ledger.enter", session, member("b"))
        views = names(a.membership.watch())
        await until(views, {"a", "b"})
        await line.close()
        await until(views, {"a"})
    keeper.stop()


@on_loop
async def test_who_asks_on_a_line_that_was_just_cut_gets_an_answer_on_the_next(
    keeper: KeeperProcess,
) -> None:
    line = Line(keeper.path)
    await line.ask("ledger.begin")
    assert line._writer is not None
    line._writer.transport.abort()
    # Now it is cut; whoever reads from it hears of that in the loop's next turn.
    await asyncio.sleep(0)
    line.tell("ledger.begin")
    assert await line.ask("ledger.begin", again=True)
    await line.close()


@on_loop
async def test_a_replaced_keeper_is_joined_again_and_nobody_was_seen_to_leave(
    keeper: KeeperProcess,
) -> None:
    async with joined(keeper, "a", "b") as (a, b):
        views = names(a.membership.watch())
        assert await until(views, {"a", "b"})
        keeper.kill()
        keeper.start()
        # Whoever comes next sees all of them there, in the new keeper's own view.
        async with joined(keeper, "c") as (c,):
            await until(names(c.membership.watch()), {"a", "b", "c"})
            seen = await until(views, {"a", "b", "c"})
            assert all(view >= {"a", "b"} for view in seen)
        await until(names(b.membership.watch()), {"a", "b"})


@on_loop
async def test_watches_miss_nothing_when_the_keeper_is_replaced(keeper: KeeperProcess) -> None:
    one, other = keeper.registry(), keeper.registry()
    reading, writing = one.coordinate("a test"), other.coordinate("a test")
    await writing.put("/v", b"1", None)
    watch = reading.watch("/v")
    assert (await anext(watch) or ()).value == b"1"
    keeper.kill()
    keeper.start()
    # The embedded registry is forgotten with its keeper, and the watch says so.
    assert await anext(watch) is None
    written = await writing.put("/v", b"2", None)
    assert await anext(watch) == written
    for registry in (one, other):
        await registry.close()


@on_loop
async def test_numbers_of_a_replaced_keeper_are_above_those_of_the_one_before(
    keeper: KeeperProcess,
) -> None:
    registry = keeper.registry()
    coordination = registry.coordinate("a test")
    before = (
        await coordination.next_id("/n"),
        (await coordination.put("/v", b"", None)).version,
        (await coordination.sit("/row", b"")).number,
    )
    assert before[0] == 1
    keeper.kill()
    keeper.start()
    after = (
        await coordination.next_id("/n"),
        (await coordination.put("/v", b"", None)).version,
        (await coordination.sit("/row", b"")).number,
    )
    assert all(new > old for new, old in zip(after, before, strict=True))
    await registry.close()


@on_loop
async def test_a_replaced_keeper_gives_no_lease_that_may_still_be_held(
    keeper: KeeperProcess,
) -> None:
    one, other = keeper.registry(), keeper.registry()
    lease = await one.coordinate("a test").acquire("/l", b"one")
    with pytest.raises(Held):
        await other.coordinate("a test").acquire("/l", b"other")
    keeper.kill()
    keeper.start()
    loop = asyncio.get_running_loop()
    with pytest.raises(ClusterError, match="was replaced, and gives leases in"):
        await other.coordinate("a test").acquire("/l", b"other")
    await lease.lost()
    while True:
        try:
            later = await other.coordinate("a test").acquire("/l", b"other")
            break
        except ClusterError:
            await asyncio.sleep(0.1)
    assert later.epoch > lease.epoch
    assert loop.time() > lease.until
    for registry in (one, other):
        await registry.close()


@on_loop
async def test_signals_to_the_group_do_not_end_a_keeper(keeper: KeeperProcess) -> None:
    store = keeper.store()
    for number in (signal.SIGTERM, signal.SIGINT):
        keeper.signal(number)
        await store.change("t", {"k": b"v"})
    await store.close()


@pytest.mark.parametrize(
    "garbage", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\3\x92\1\2", b"\0\0\0\2\xa1a", b"\0"]
)
@on_loop
async def test_what_is_no_request_ends_its_line_alone(
    keeper: KeeperProcess, garbage: bytes
) -> None:
    store = keeper.store()
    await store.change("t", {"k": b"v"})
    stranger = socket.socket(socket.AF_UNIX)
    with reachable(keeper.path) as short:
        stranger.connect(short)
    stranger.sendall(garbage)
    stranger.shutdown(socket.SHUT_WR)
    stranger.setblocking(False)
    assert await asyncio.get_running_loop().sock_recv(stranger, 1) == b""
    stranger.close()
    assert await store.get("t", ["k"]) == {"k": b"v"}
    await store.close()


@on_loop
async def test_a_line_that_takes_nothing_costs_the_keeper_little(keeper: KeeperProcess) -> None:
    async with joined(keeper, "a") as (a,):
        stranger = socket.socket(socket.AF_UNIX)
        with reachable(keeper.path) as short:
            stranger.connect(short)
        coordination = a.coordinate("a test")
        path = "/" + "p" * 1000
        version = None
        for _ in range(2000):
            version = (await coordination.put(path, b"", version)).version
        # What was not told one by one is told as a whole: some of it changed.
        stranger.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=stranger)
        rung = 0
        while (heard := await frame.read(reader))[1] is not None:
            assert heard == [0, f"value{path}"]
            rung += 1
        assert rung < 2000
        writer.close()


@on_loop
async def test_too_many_requests_at_once_are_refused_not_piled_up(
    keeper: KeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chappe.node.keeper.line.REQUESTS_MAX", 10)
    store = keeper.store()
    results = await asyncio.gather(*(store.get("t", []) for _ in range(11)), return_exceptions=True)
    assert results[:10] == [{}] * 10
    assert isinstance(results[10], StorageError)
    await store.close()
