"""The engines that queues are kept in, made for tests, and how to speak to any of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from chappe.errors import ConfigError, RequestError
from chappe.log.disk import ThreadDisk
from chappe.log.fs import OsFs
from chappe.log.journal import Journal
from chappe.log.options import JournalOptions
from chappe.queues.local import LocalStorage
from chappe.queues.memory import MemoryStorage
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.record import Made, Record, Stored
from chappe.queues.redis import RedisStorage, open_redis
from chappe.queues.state import QueueState
from chappe.queues.storage import Found, Key, Storage

LIMITS = QueueLimits(producers_max=3, producer_window=4)
KEY: Key = ("app", "queue:jobs")
_prefixes = count()


class Engine(Protocol):
    """Gives storages that all have the same queues."""

    # Whether a storage that is opened anew knows what another was told.
    durable: bool

    async def start(self) -> Storage:
        """A storage, ready to be used."""
        ...

    async def stop(self, storage: Any) -> None:
        """It is not used any more."""
        ...


class InMemory:
    durable = False

    async def start(self) -> Storage:
        return MemoryStorage()

    async def stop(self, storage: Any) -> None:
        """Nothing is left."""


class InJournal:
    durable = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._disks: list[ThreadDisk] = []

    async def start(self) -> Storage:
        loop = asyncio.get_running_loop()
        storage = LocalStorage(LIMITS, loop)
        self._disks = [ThreadDisk(loop, "write"), ThreadDisk(loop, "read")]
        options = JournalOptions(
            segment_bytes=64 * 1024, batch_bytes_max=8 * 1024 * 1024, allocate_bytes=0
        )
        journal = Journal(
            OsFs(), *self._disks, str(self._folder), options, lambda: 0, loop, storage.snapshot
        )
        storage.recover(journal)
        return storage

    async def stop(self, storage: Any) -> None:
        await storage.journal.close()
        for disk in self._disks:
            disk.close()


class InRedis:
    durable = True

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        self.prefix = f"queues{next(_prefixes)}"
        separator = "&" if "?" in url else "?"
        self.url = f"{url}{separator}prefix={self.prefix}"
        self._timeout_s = timeout_s

    async def start(self) -> RedisStorage:
        storage = open_redis(self.url, LIMITS, home="node-a", timeout_s=self._timeout_s)
        try:
            await storage.start()
        except ConfigError:
            await storage.close()
            raise
        return storage

    async def stop(self, storage: Any) -> None:
        await storage.close()


@asynccontextmanager
async def started(engine: Engine) -> AsyncIterator[Any]:
    storage = await engine.start()
    try:
        yield storage
    finally:
        await engine.stop(storage)


async def opened(storage: Storage, key: Key = KEY) -> QueueState:
    """A queue as the storage knows it; raises what it is refused with."""
    answer: asyncio.Future[QueueState] = asyncio.get_running_loop().create_future()

    def told(state: QueueState | None, error: RequestError | None) -> None:
        if state is not None:
            answer.set_result(state)
        else:
            assert error is not None
            answer.set_exception(error)

    storage.open(key, QueueOptions(), told)
    return await answer


def committing(
    storage: Storage, state: QueueState, records: Sequence[Record]
) -> asyncio.Future[None]:
    """Take records into a state and commit them, as a queue does."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: RequestError | None) -> None:
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)

    for record in records:
        record.queue = state.number
        state.apply(record, LIMITS)
    storage.commit(state, records, done)
    return answer


async def committed(storage: Storage, state: QueueState, *records: Record) -> None:
    await committing(storage, state, records)


async def made(storage: Storage, lanes: Sequence[int] = (1,), key: Key = KEY) -> QueueState:
    """A queue with those lanes."""
    state = await opened(storage, key)
    options = QueueOptions(lanes=len(lanes))
    await committed(storage, state, Made(state.number, *key, options, list(lanes)))
    return state


async def found(storage: Storage, state: QueueState, lane: int, seq: int, n: int) -> Found:
    """What the storage finds of a lane."""
    answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
    storage.read(state, lane, seq, n, answer.set_result)
    return await answer


async def all_of(storage: Storage, state: QueueState, lane: int, n: int = 100) -> list[Stored]:
    """All messages of a lane, some at a time."""
    messages: list[Stored] = []
    seq = 1
    while seq <= state.heads[lane]:
        page = await found(storage, state, lane, seq, n)
        assert page.error is None
        assert page.upto >= seq, "a read that brings nothing would go on for ever"
        assert len(page.messages) <= n
        assert all(seq <= one.seq <= page.upto for one in page.messages)
        messages += page.messages
        seq = page.upto + 1
    assert [one.seq for one in messages] == sorted({one.seq for one in messages})
    return messages


def stored(state: QueueState, lane: int, body: bytes = b"x", ahead: int = 1, **more: Any) -> Stored:
    """The next message of a lane, or the one after it, and so on."""
    seq = state.heads[lane] + ahead
    values = {"id": (1 << 62) + 1_000 * lane + seq, "ts_ms": 1_700_000_000_000 + seq}
    values |= {"sender": "user:ann", "payload": body} | more
    return Stored(state.number, lane, seq, **values)


def seen(state: QueueState) -> dict[str, Any]:
    """What a queue's state says, whatever order it was read in.

    A mark beyond the last message says nothing of any message; one attempt is what every open
    message had that says nothing else.
    """
    groups = {}
    for group in state.groups.values():
        lanes = {}
        for lane in (*state.lanes, 0, -1):
            head, at = state.heads[lane], group.at(lane)
            opened = sorted(seq for seq in at.open if seq <= head)
            tried = {seq: at.attempts.get(seq, 1) for seq in opened}
            if (lane > 0) != group.name.startswith("!") or opened:
                lanes[lane] = (min(at.mark, head), tried)
        wants = (group.tags, group.headers, group.since_ms, group.expected)
        groups[group.name] = (*wants, sorted(group.consumers), group.bytes, lanes)
    return {
        "app": state.app,
        "address": state.address,
        "options": state.options,
        "heads": dict(state.heads),
        "lanes": list(state.lanes),
        "key_lanes": state.key_lanes,
        "bytes": state.bytes,
        "floors": {lane: floor for lane, floor in state.floors.items() if floor},
        "groups": groups,
        "delayed": dict(state.delayed),
        "delayed_seqs": dict(state.delayed_seqs),
        "producers": [(name, list(seqs.items())) for name, seqs in state.producers.items()],
    }
