"""What a journal of queues tells of itself is what a node told of it, and what it did not come to
tell its next life does."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from chappe.client import Client, Consumer, connect
from chappe.log.disk import ThreadDisk
from chappe.log.fs import OsFs
from chappe.log.journal import Journal
from chappe.log.options import JournalOptions
from chappe.node import sequel
from chappe.node.options import EventsOptions
from chappe.node.sealing import seal
from chappe.queues.local import LocalStorage
from chappe.queues.options import QueueLimits
from chappe.queues.record import Stored
from chappe.queues.untold import Retelling, Untold
from tests.contract.storages import InJournal, committed, made, started
from tests.events.tables import Row, check_serials, of, rows, until_told
from tests.faults.process import NodeProcess
from tests.node.running import running

QUEUE = "queue:jobs"
KINDS = ("stored", "acked", "died", "cancelled", "replayed", "purged")
LATE_MS = 2**62
WAIT_S = 30.0


async def until_dead(client: Client, count: int) -> list[Any]:
    async with asyncio.timeout(WAIT_S):
        while len(found := [one async for one in client.dead_letters(QUEUE)]) != count:
            await asyncio.sleep(0.02)
    return found


async def work(address: str) -> None:
    """Let everything happen that a journal knows of: two groups of which one wants only some,
    delays that pass and one that is taken back, deaths, one sent again and one purged."""
    async with (
        connect(address, as_="user:ann") as ann,
        connect(address, as_="user:bob") as bob,
        connect(address, as_="user:cid") as cid,
    ):
        await ann.create(QUEUE, attempts_max=1)
        red = await bob.consumer(QUEUE, name="red", tags=["red"]).open()
        every = await cid.consumer(QUEUE, name="all").open()
        producer = await ann.producer(QUEUE).open()
        delayed = await ann.delayed_producer(QUEUE).open()
        for n in range(8):
            await producer.send(n, tags=["red"] if n % 2 else ["blue"])
        await delayed.send("soon", delay_ms=50)
        await delayed.cancel(await delayed.send("never", delay_ms=3_600_000))
        reds = await take(red, 4)
        for item in reds[:3]:
            await item.ack()
        await reds[3].nack()
        for item in await take(every, 9):
            await (item.nack() if item.data in (0, 1) else item.ack())
        letters = await until_dead(ann, 3)
        await ann.purge(QUEUE, [letters[0].message])
        await ann.replay(QUEUE, [letters[1].message])
        (again,) = await take({"red": red, "all": every}[letters[1].death.group], 1)
        await again.ack()


async def take(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += await consumer.pull(count - len(found), wait_s=WAIT_S)
    return found


def told(table: list[Row]) -> Counter[tuple[str, int, str]]:
    return Counter(
        (row["kind"], row["message"], row.get("group_name", "")) for row in of(table, *KINDS)
    )


async def read_journal(folder: Path) -> Counter[tuple[str, int, str]]:
    loop = asyncio.get_running_loop()
    storage = LocalStorage(QueueLimits(), loop)
    disks = [ThreadDisk(loop, "write"), ThreadDisk(loop, "read")]
    options = JournalOptions(batch_bytes_max=1024 * 1024)
    journal = Journal(OsFs(), *disks, str(folder), options, lambda: 0, loop, storage.snapshot)
    storage.recover(journal)
    found = Counter((one.kind, one.message.id, one.group) for one in storage.untold(0, LATE_MS))
    await journal.close()
    for disk in disks:
        disk.close()
    return found


def test_a_journal_tells_what_its_node_told(tmp_path: Path) -> None:
    async def run() -> Counter[tuple[str, int, str]]:
        events = EventsOptions(enabled=True, share=0.0)
        async with running(tmp_path, events=events) as node:
            await work(node.addresses()["tcp"])
        return await read_journal(tmp_path / "data/journals/node")

    read = uvloop.run(asyncio.wait_for(run(), 120))
    found = told(rows(tmp_path / "data/events"))
    assert read == found
    assert Counter(kind for kind, _, _ in found.elements()) == {
        "stored": 10,
        "acked": 3 + 7 + 1,
        "died": 3,
        "cancelled": 1,
        "purged": 1,
        "replayed": 1,
    }


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeProcess]:
    monkeypatch.delenv("CHAPPE_EVENTS_ENABLED")
    node = NodeProcess(tmp_path, "[events]\nenabled = true\nshare = 0.0\nseal_s = 3600\n")
    yield node
    node.kill()


def test_what_was_durable_and_told_to_nobody_is_told_by_the_next_life(
    node: NodeProcess, tmp_path: Path
) -> None:
    events = node.data / "events"
    # It has said up to where its journal is told.
    until_told(events / "_log/node")
    shutil.copytree(events, tmp_path / "before")
    uvloop.run(asyncio.wait_for(work(node.addresses["tcp"]), 120))
    node.kill()
    shutil.copytree(events, tmp_path / "after")
    # As if it had been killed when all was in the journal, and before it said a word of it.
    shutil.rmtree(events)
    shutil.copytree(tmp_path / "before", events)
    node.start()
    node.kill()
    seal(events)
    seal(tmp_path / "after")
    table = rows(events)
    check_serials(table)
    assert told(table) == told(rows(tmp_path / "after"))
    assert {row["reason"] for row in of(table, *KINDS)} <= {"recovered", "attempts", "handed back"}
    assert {row["boot"] for row in of(table, *KINDS)} == {max(row["boot"] for row in table)}
    (recovered,) = of(table, "recovered")
    # What a group does not want counts until it has seen it.
    assert recovered["target"] == QUEUE
    assert recovered["n"] <= 2


def test_what_was_told_is_not_told_again(node: NodeProcess) -> None:
    events = node.data / "events"
    uvloop.run(asyncio.wait_for(work(node.addresses["tcp"]), 120))
    node.kill()
    for _ in range(2):
        node.start()
        node.kill()
    node.start()
    node.stop()
    table = rows(events)
    check_serials(table)
    assert max(told(table).values()) == 1
    assert len({row["boot"] for row in of(table, "recovered")}) == 3


def test_what_a_later_master_wrote_is_not_to_be_told_wherever_its_epoch_began(
    tmp_path: Path,
) -> None:
    def stored(seq: int) -> Stored:
        return Stored(0, 1, seq, 70 + seq, 5, "user:ann", b"null")

    async def run() -> None:
        async with started(InJournal(tmp_path)) as storage:
            journal = storage.journal
            journal.begin_epoch(1)
            state = await made(storage)
            positions = []
            for epoch in (2, 3, 4):
                journal.begin_epoch(epoch)
                positions.append(journal.end)
                await committed(storage, state, stored(2 * epoch - 3))
                await committed(storage, state, stored(2 * epoch - 2))

            def ids(lsn: int, epoch: int | None) -> list[int]:
                return [one.message.id for one in storage.untold(lsn, LATE_MS, epoch)]

            # Who said its last word at such a place began there, or ended there.
            assert ids(positions[1], 3) == [73, 74]
            assert ids(positions[1], 2) == []
            assert ids(positions[0], 3) == [71, 72, 73, 74]
            assert ids(positions[0], None) == [71, 72, 73, 74, 75, 76]

    uvloop.run(asyncio.wait_for(run(), 60))


def retold_in(folder: Path) -> Counter[str]:
    """What a node tells that was killed before it said a word of all its work, when it is back."""
    events = folder / "data/events"

    async def run() -> None:
        options = EventsOptions(enabled=True, share=0.0)
        async with running(folder, events=options) as node:
            await asyncio.to_thread(until_told, events / "_log/node")
            shutil.copytree(events, folder / "before")
            await work(node.addresses()["tcp"])
        shutil.rmtree(events)
        shutil.copytree(folder / "before", events)
        async with running(folder, events=options):
            pass

    uvloop.run(asyncio.wait_for(run(), 120))
    return Counter(kind for kind, _, _ in told(rows(events)).elements())


def test_a_journal_is_read_for_what_is_untold_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    since = Retelling.since

    def noted(self: Retelling, *where: Any) -> Iterator[Untold]:
        threads.append(threading.current_thread())
        yield from since(self, *where)

    monkeypatch.setattr(Retelling, "since", noted)
    assert retold_in(tmp_path)["stored"] == 10
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_no_more_is_told_for_a_life_before_than_a_node_may_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequel, "RETOLD_MAX", 3)
    assert retold_in(tmp_path) == {"stored": 3}
