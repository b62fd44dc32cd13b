"""Disks that fail, are slow or are full, under real nodes (Q11)."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from chappe.client import Client, connect
from chappe.errors import Overload
from tests.servers import missing

from .figures import FULL, tell
from .mounts import Memory
from .process import Api
from .trio import OPTIONS, ClusterNode, story, until
from .work import QUEUE, Work

pytestmark = pytest.mark.timeout(3_600 if FULL else 200)

# One segment: it is the file whose syncs fail.
CONFIG = """
[journal]
batch_bytes_max = 1048576
allocate_bytes = 65536
"""
# A reserve of half a megabyte.
SMALL = """
[journal]
segment_bytes = 131072
batch_bytes_max = 262144
allocate_bytes = 65536
"""
SEGMENT = "journals/node/0000000000000000.log"


class Traced(ClusterNode):
    """A node whose syncs of the journal strace meddles with, once it is told to."""

    def __init__(self, folder: Path, injected: str) -> None:
        if shutil.which("strace") is None:
            raise missing("strace")
        self._injected = injected
        self._trace = folder / "strace"
        self._strace: list[str] = []
        super().__init__(folder, CONFIG)
        self.kill()
        # The tracer is a child of its own: this process has the node itself for a child.
        self._strace = ["strace", "-D", "-f", "-qq", "--seccomp-bpf", "-o", str(self._trace)]
        self._strace += ["-P", str(self.data / SEGMENT), "-e", "trace=fdatasync"]
        self._strace += ["-e", f"inject=fdatasync:{injected}"]
        self.start()

    def start(self) -> None:
        plain = self._command
        self._command = [*self._strace, *plain]
        try:
            super().start()
        finally:
            self._command = [*plain[:0], *self._command[len(self._strace) :]]

    def start_plain(self) -> None:
        """Start it without the tracer."""
        self._strace = []
        self.start()

    def syncs(self) -> int:
        """How many syncs the tracer has seen."""
        return self._trace.read_text().count("fdatasync(")


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Callable[[str], Traced]]:
    nodes: list[Traced] = []

    def start(injected: str) -> Traced:
        nodes.append(Traced(tmp_path, injected))
        return nodes[-1]

    yield start
    for node in nodes:
        node.stop()


async def person(node: ClusterNode, stack: AsyncExitStack, name: str) -> Client:
    return await stack.enter_async_context(connect(node.url, as_=f"user:{name}", options=OPTIONS))


def metric(node: ClusterNode, name: str) -> float:
    with closing(Api(node)) as api:
        return api.metric(name, broker="node")


def test_after_a_failed_sync_nothing_is_acknowledged(
    traced: Callable[[str], Traced],
) -> None:  # Q11
    # The first ones are those of the start.
    node = traced("error=EIO:when=40")
    acknowledged: list[int] = []
    errors: list[Overload] = []

    async def send() -> None:
        async with AsyncExitStack() as stack:
            client = await person(node, stack, "sender")
            await client.create(QUEUE)

            async def post(n: int) -> None:
                try:
                    await client.send(QUEUE, n)
                    acknowledged.append(n)
                except Overload as error:
                    errors.append(error)

            n = 0
            while not errors:
                # Several at a time: all of a group wait for one sync.
                await asyncio.gather(*(post(n + more) for more in range(4)))
                n += 4
                assert n < 400, "no sync failed"
            assert all(error.outcome_unknown for error in errors), errors
            assert "disk failed" in str(errors[0])
            known = len(acknowledged)
            # In full for longer than anything that would try it again waits.
            began = time.monotonic()
            while time.monotonic() < began + (7 if FULL else 2):
                errors.clear()
                await post(n)
                assert len(acknowledged) == known, "acknowledged after a sync had failed"
                assert not errors[0].outcome_unknown, errors
                assert "disk failed" in str(errors[0])
                await asyncio.sleep(0.25)
            assert await asyncio.to_thread(metric, node, "journal_failed") == 1
            assert "journal failed" in node.log()

    async def look() -> None:
        async with AsyncExitStack() as stack:
            client = await person(node, stack, "reader")
            found = [letter.data async for letter in client.browse(QUEUE)]
            assert set(acknowledged) <= set(found)
            assert len(found) == len(set(found))
            await client.send(QUEUE, "after")

    story(send)
    node.kill()
    node.start_plain()
    story(look)
    assert metric(node, "journal_failed") == 0


def test_a_slow_disk_only_slows(traced: Callable[[str], Traced]) -> None:  # Q11
    delay_s = 0.2
    node = traced(f"delay_exit={round(delay_s * 1e6)}")

    async def run() -> None:
        async with AsyncExitStack() as stack:
            people = [await person(node, stack, name) for name in ("admin", *"abcde")]
            admin, *others = people
            await admin.create(QUEUE)
            before = node.syncs()
            began = time.monotonic()
            await admin.send(QUEUE, "p-0")
            assert time.monotonic() - began >= delay_s
            # Others, who want nothing of the disk, do not wait for it.
            began = time.monotonic()
            for _ in range(20):
                await admin.presence("user:a")
            assert time.monotonic() - began < 20 * delay_s
            (item,) = await admin.fetch(QUEUE, group="workers")
            assert await item.ack()
            work = Work(others[:3], others[3:])
            await work.start()
            await work.goes_on(20 if FULL else 8)
            await work.drained(admin)
            await work.holds(admin)
            await work.close()
            figures = work.figures()
            assert figures["unknown"] + figures["refused"] <= 3  # those that the end cut short
            assert node.syncs() > before
            tell("slow disk", delay_ms=delay_s * 1000, syncs=node.syncs(), **figures)

    story(run)


class Small(ClusterNode):
    """A node whose data folder is full after a few hundred kilobytes."""

    def __init__(self, folder: Path) -> None:
        self.memory = Memory(folder / "data", 2048)
        with ExitStack() as failed:
            failed.callback(self.memory.unmount)
            super().__init__(folder, SMALL)
            failed.pop_all()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    node = Small(tmp_path)
    with ExitStack() as after:
        after.callback(node.memory.unmount)
        after.callback(node.kill)
        yield node
        node.stop()


async def fill(client: Client, first: int = 0) -> tuple[list[int], Overload]:
    """Send until it is refused: what was taken, and the refusal."""
    taken: list[int] = []
    filling = "x" * 10_000
    for n in range(first, first + 500):
        try:
            await client.send(QUEUE, [n, filling])
            taken.append(n)
        except Overload as error:
            return taken, error
    raise AssertionError("it never was full")


async def numbers(client: Client) -> list[int]:
    return [letter.data[0] async for letter in client.browse(QUEUE)]


async def takes(client: Client, what: Any) -> bool:
    try:
        await client.send(QUEUE, what)
    except Overload:
        return False
    return True


def test_a_full_disk_refuses_serves_and_goes_on(small: Small) -> None:  # Q11
    taken: list[int] = []

    async def run() -> None:
        async with AsyncExitStack() as stack:
            client = await person(small, stack, "a")
            other = await person(small, stack, "b")
            await client.create(QUEUE)
            found, error = await fill(client)
            taken.extend(found)
            assert len(taken) > 20
            assert not error.outcome_unknown
            assert "disk full" in str(error)
            assert str(small.data) not in str(error)
            # Nothing is lost, reads are served, and acknowledgements are taken and hold.
            assert await numbers(client) == taken
            items = await other.fetch(QUEUE, 5)
            assert [item.data[0] for item in items] == taken[:5]
            for item in items:
                assert await item.ack()
            del taken[:5]
            assert await numbers(client) == taken
            assert not await takes(client, [-1, ""])
            # Room again, and it goes on by itself.
            await asyncio.to_thread(small.memory.resize, 8192)
            await until(lambda: takes(client, [1_000, ""]), "it goes on when there is room")
            taken.append(1_000)
            assert await numbers(client) == taken

    async def again() -> None:
        async with AsyncExitStack() as stack:
            client = await person(small, stack, "a")
            assert await numbers(client) == taken
            assert await takes(client, [1_001, ""])
            items = []
            while len(items) < len(taken) + 1:
                items += await client.fetch(QUEUE, 100, wait_s=5)
            # What may have been tried before the crash waits a while.
            assert sorted(item.data[0] for item in items) == [*taken, 1_001]

    story(run)
    small.kill()
    small.start()
    story(again)


def test_a_disk_that_is_full_at_the_start_serves_what_is_there(small: Small) -> None:  # Q11
    taken: list[int] = []

    async def fill_up() -> None:
        async with AsyncExitStack() as stack:
            client = await person(small, stack, "a")
            await client.create(QUEUE)
            taken.extend((await fill(client))[0])

    async def look() -> None:
        async with AsyncExitStack() as stack:
            client = await person(small, stack, "a")
            assert await numbers(client) == taken
            # A start gives back room that was taken ahead: it may be enough for some more.
            taken.extend((await fill(client, 500))[0])
            assert await numbers(client) == taken
            await asyncio.to_thread(small.memory.resize, 8192)
            await until(lambda: takes(client, [1_000, ""]), "it goes on when there is room")
            items = []
            while len(items) < len(taken) + 1:
                items += await client.fetch(QUEUE, 100, wait_s=5)
            for item in items:
                assert await item.ack()
            assert sorted(item.data[0] for item in items) == [*taken, 1_000]

    story(fill_up)
    small.kill()
    small.start()
    story(look)


def test_consuming_makes_room_on_a_full_disk(small: Small) -> None:  # Q11
    """Segments that nobody needs any more are removed: that alone is enough to go on."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            client = await person(small, stack, "a")
            await client.create(QUEUE)
            taken, _ = await fill(client)
            async with client.consumer(QUEUE, group="g") as consumer:
                for _ in taken:
                    item = await anext(consumer)
                    assert await item.ack()
            await until(lambda: takes(client, [1_000, ""]), "consuming makes room")

    story(run)
