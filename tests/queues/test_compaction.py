"""A broker on a real journal: what it may let go of, and how much it takes at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import uvloop

from chappe.clock import SystemClock
from chappe.errors import Overload
from chappe.hub.deadline import Alarm
from chappe.queues.broker import Broker
from chappe.queues.compaction import oldest
from chappe.queues.consumer import Loans
from chappe.queues.index import LaneIndex
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.queue import Queue
from chappe.queues.record import Done, Made, Registered, Stored
from chappe.queues.state import QueueState
from chappe.queues.storage import Key
from tests.contract.storages import InJournal
from tests.queues.rig import KeptOutlet, Someone

LIMITS = QueueLimits()
QUIET: Key = ("app", "queue:quiet")
BUSY: Key = ("app", "queue:busy")


def a_state(head: int) -> QueueState:
    """A queue with a group that is done with 2 to 9."""
    state = QueueState(1, *QUIET, QueueOptions())
    state.apply(Made(1, *QUIET, QueueOptions(), [1]), LIMITS)
    register(state, "g")
    for seq in range(1, head + 1):
        state.apply(Stored(1, 1, seq, seq, 0, "user:a", b"1"), LIMITS)
    state.apply(Done(1, 1, "g", [2, 9], 8), LIMITS)
    return state


def register(state: QueueState, name: str) -> None:
    state.apply(Registered(1, name, name), LIMITS)


def an_index(firsts: list[tuple[int, int]], moved: dict[int, int]) -> LaneIndex:
    index = LaneIndex()
    for seq, lsn in firsts:
        index.add(seq, lsn)
    for seq, lsn in moved.items():
        index.move(seq, lsn)
    return index


def test_what_a_late_group_wants_and_is_gone_hides_nothing_that_is_there() -> None:
    state = a_state(20)
    index = an_index([(11, 5_000)], {1: 9_000, 10: 9_000})
    assert oldest(state, 1, index) == 5_000
    register(state, "late")
    assert oldest(state, 1, index) == 5_000
    assert oldest(state, 1, an_index([(11, 5_000)], {})) == 5_000


def test_what_was_moved_is_kept_where_it_lies_now() -> None:
    state = a_state(20)
    index = an_index([(11, 5_000)], {1: 9_000, 10: 9_000})
    state.apply(Done(1, 1, "g", [11, 20], 10), LIMITS)
    assert oldest(state, 1, index) == 9_000
    state.apply(Done(1, 1, "g", [1, 1, 10, 10], 2), LIMITS)
    assert oldest(state, 1, index) is None


class Works:
    """A broker on a journal with small segments: two queues, one of them busy."""

    def __init__(self, engine: InJournal) -> None:
        self._engine = engine
        self.stored: list[int] = []
        self._ids = iter(range(1, 1 << 30))

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.loans, self._outlet = Loans(), KeptOutlet()
        self.storage: Any = await self._engine.start()
        self.broker = Broker(
            self.storage,
            limits=LIMITS,
            loans=self.loans,
            alarm=Alarm(loop, self.loans.deadlines),
            loop=loop,
            clock=SystemClock(),
            outlet=lambda app: self._outlet,
        )
        self.broker.start()

    async def stop(self) -> None:
        self.broker.close(Overload("it is over"))
        await self._engine.stop(self.storage)

    async def make(self, key: Key) -> Queue:
        made = asyncio.get_running_loop().create_future()
        self.broker.make(key, QueueOptions(), made.set_result)
        assert await made is None
        return self.broker.queues[key]

    def send(self, queue: Queue, size: int) -> None:
        message = Stored(0, 0, 0, next(self._ids), 0, "user:a", b"x" * size)
        queue.send(message, self.stored.append, lambda error: None)

    async def wait(self, holds: Any) -> None:
        async with asyncio.timeout(30):
            while not holds():
                await asyncio.sleep(0.001)

    def consume(self, queue: Queue, name: str, who: Any, credit: int) -> None:
        queue.members.group(name).consume(who, credit, asyncio.get_running_loop().time())

    def ack(self, keys: list[tuple[Any, int]]) -> None:
        items = [self.loans.lent.pop(key) for key in keys]
        items[0].group.ack_all(items, asyncio.get_running_loop().time())

    async def roll(self, busy: Queue, eater: Any, bytes_more: int) -> None:
        """Let others write so much, and be done with it."""
        end = self.storage.journal.end + bytes_more
        while self.storage.journal.end < end:
            before = len(self.stored)
            self.send(busy, 4_000)
            await self.wait(lambda before=before: len(self.stored) > before)
            lent = [key for key in self.loans.lent if key[0] is eater]
            if lent:
                self.ack(lent)


def test_queues_that_together_bring_more_than_there_is_room_for_refuse_the_rest(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        works = Works(InJournal(tmp_path))
        await works.start()
        queues = [await works.make(QUIET), await works.make(BUSY)]
        sent = refused = 0
        for n in range(12):
            try:
                works.send(queues[n % 2], 1_000_000)
                sent += 1
            except Overload:
                refused += 1
        assert sent > 4
        assert refused > 0
        await works.wait(lambda: len(works.stored) == sent)
        # Neither had to be read anew.
        assert [works.broker.queues[key] for key in (QUIET, BUSY)] == queues
        assert works.broker.adding == 0
        works.send(queues[0], 1_000_000)
        await works.wait(lambda: len(works.stored) == sent + 1)
        await works.stop()

    uvloop.run(story())


def test_a_group_that_comes_late_lets_nothing_go_that_others_wait_for(tmp_path: Path) -> None:
    async def story() -> None:
        works = Works(InJournal(tmp_path))
        await works.start()
        quiet, busy = await works.make(QUIET), await works.make(BUSY)
        worker, eater, again = Someone("worker"), Someone("eater"), Someone("again")
        works.consume(busy, "", eater, 1_000)
        for _ in range(10):
            works.send(quiet, 100)
        works.consume(quiet, "g", worker, 10)
        await works.wait(lambda: len(worker.got) == 10)
        works.ack([key for key in works.loans.lent if key[0] is worker][1:9])
        # The first and the tenth are moved, and what lay between them goes.
        await works.roll(busy, eater, 1_000_000)
        assert works.storage.journal.start > 0
        works.consume(quiet, "g", worker, 0)
        before = len(works.stored)
        for _ in range(10):
            works.send(quiet, 100)
        await works.wait(lambda: len(works.stored) >= before + 10)
        quiet.members.register("late", "late", None, None)
        await works.roll(busy, eater, 2_000_000)
        await works.stop()
        await works.start()
        works.consume(works.broker.queues[QUIET], "g", again, 1_000)
        await works.wait(lambda: len(again.got) == 12)
        late = Someone("late")
        works.consume(works.broker.queues[QUIET], "late", late, 1_000)
        await works.wait(lambda: len(late.got) == 12)
        await works.stop()

    uvloop.run(story())
