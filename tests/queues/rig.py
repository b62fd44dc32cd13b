"""A queue on a bench: time, turns of the loop and commits happen when a test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chappe.errors import Overload, RequestError, StorageError
from chappe.events.counting import CountingRecorder
from chappe.hub.deadline import Alarm
from chappe.queues.broker import Broker
from chappe.queues.consumer import Item, Loans
from chappe.queues.group import Group
from chappe.queues.memory import MemoryStorage
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.queue import Queue
from chappe.queues.record import (
    AnyRecord,
    Made,
    Record,
    Stored,
    encode_record,
)
from chappe.queues.state import QueueState
from chappe.queues.storage import Committed, Found, Key
from tests.endpoints.timer import ManualTimer

APP = "default"
JOBS = "queue:jobs"
KEY = (APP, JOBS)
WALL_MS = 1_700_000_000_000

_decode = msgspec.msgpack.Decoder(AnyRecord).decode


class ManualLoop(ManualTimer):
    """A loop whose turns tests take."""

    def __init__(self) -> None:
        super().__init__()
        self.soon: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> Any:
        self.soon.append(callback)

    def turn(self) -> None:
        """Take one turn: what is called for in it comes in the next."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def settle(self) -> None:
        """Take turns until nothing is left to do."""
        for _ in range(1_000):
            if not self.soon:
                return
            self.turn()
        raise AssertionError("a queue that never rests")


class WallClock:
    """The time of day: goes with the loop's time, and may step."""

    def __init__(self, loop: ManualLoop) -> None:
        self.loop = loop
        self.stepped_ms = 0

    def wall_ms(self) -> int:
        return WALL_MS + self.stepped_ms + round(self.loop.now * 1000)

    def wall_us(self) -> int:
        return self.wall_ms() * 1000

    def monotonic(self) -> float:
        raise AssertionError("queues take their time from the loop")


class Someone:
    """Stands for a session: a queue only tells one from another."""

    def __init__(self, name: str) -> None:
        self.name = self.id = name
        self.closed = False
        self.room = True
        self.got: list[int] = []
        self.attempts: list[int] = []
        self.fetched: list[tuple[int | None, int]] = []
        self.refused: list[tuple[int | None, RequestError]] = []

    def __repr__(self) -> str:
        return self.name


def people(names: str) -> list[Any]:
    return [Someone(name) for name in names]


class KeptOutlet:
    """Keeps what queues decide."""

    def __init__(self) -> None:
        self.drops: list[tuple[str, int]] = []
        self.letters: list[Stored] = []
        self.recorder = CountingRecorder()

    def deliver(self, session: Any, items: Sequence[Item]) -> bool:
        if session.room:
            session.got += [item.record.id for item in items]
            session.attempts += [item.attempts + 1 for item in items]
        return bool(session.room)

    def fetched(self, session: Any, request: int | None, n: int) -> None:
        session.fetched.append((request, n))

    def refused(self, session: Any, request: int | None, error: RequestError) -> None:
        session.refused.append((request, error))

    def dropped(self, reason: str, messages: int) -> None:
        self.drops.append((reason, messages))

    def died(self, queue: str, letter: Stored) -> None:
        self.letters.append(letter)


class HeldStorage:
    """A storage whose commits, and reads if need be, take as long as a test wants.

    What is committed survives: a queue that is opened again finds that and nothing else.
    """

    kind = "held"
    immediate = False

    def __init__(self, limits: QueueLimits, *, marks_ahead: bool = True) -> None:
        self.marks_ahead = marks_ahead
        self._limits = limits
        self._numbers: dict[Key, int] = {}
        self.journal: list[bytes] = []
        self.pending: list[tuple[list[bytes], Committed]] = []
        self.reads: list[Callable[[], None]] = []
        self.hold_reads = False
        self.read_error: StorageError | None = None
        self.open_error: RequestError | None = None
        # Whether nothing can be stored, or only what lets others go.
        self.full = self.short = False
        self.discarded: list[tuple[int, int]] = []

    def open(
        self,
        key: Key,
        options: QueueOptions,
        opened: Callable[[QueueState | None, RequestError | None], None],
    ) -> None:
        if self.open_error is not None:
            opened(None, self.open_error)
            return
        number = self._numbers.setdefault(key, len(self._numbers) + 1)
        state = QueueState(number, *key, options)
        for record in self.records():
            if record.queue == number:
                state.apply(record, self._limits)
        opened(state, None)

    def records(self) -> list[Any]:
        """All that is durable."""
        return [_decode(record) for record in self.journal]

    def known(self) -> list[QueueState]:
        found: list[QueueState] = []
        for record in self.records():
            if isinstance(record, Made) and all(one.number != record.queue for one in found):
                self.open(
                    (record.app, record.address),
                    record.options,
                    lambda state, error: found.append(state) if state is not None else None,
                )
        return found

    def check(self, size: int = 0, *, freeing: bool = False) -> None:
        if self.full or (self.short and not freeing):
            raise Overload("the disk is full")

    def commit(self, state: QueueState, records: Sequence[Record], done: Committed) -> None:
        self.check(freeing=not any(isinstance(record, Stored) for record in records))
        self.pending.append(([encode_record(record) for record in records], done))

    def flush(self, count: int | None = None) -> int:
        """Let commits be done: the first ones, or all there are; how many."""
        ready, self.pending = self.pending[:count], self.pending[len(self.pending[:count]) :]
        for records, done in ready:
            self.journal += records
            done(None)
        return len(ready)

    def fail(self, error: RequestError, *, stored: bool = False) -> None:
        """Let all that is under way fail; it may have been stored all the same."""
        failing, self.pending = self.pending, []
        for records, done in failing:
            if stored:
                self.journal += records
            done(error)

    def read(
        self, state: QueueState, lane: int, seq: int, n: int, got: Callable[[Found], None]
    ) -> None:
        def find() -> None:
            if self.read_error is not None:
                got(Found([], seq - 1, self.read_error))
                return
            there = self._stored(state.number, lane)
            found = [one for one in there if one.seq >= seq]
            head = there[-1].seq if there else 0
            upto = found[n - 1].seq if len(found) > n else max(head, seq - 1)
            got(Found(found[:n], upto))

        if self.hold_reads:
            self.reads.append(find)
        else:
            find()

    def _stored(self, number: int, lane: int) -> list[Stored]:
        return [
            record
            for record in self.records()
            if isinstance(record, Stored) and (record.queue, record.lane) == (number, lane)
        ]

    def finish_reads(self) -> None:
        """Let all reads that are under way come back."""
        reads, self.reads = self.reads, []
        for find in reads:
            find()

    def discard(self, state: QueueState, lane: int, seqs: list[int]) -> None:
        self.discarded += [(lane, seq) for seq in seqs]

    def remove(self, state: QueueState, done: Committed) -> None:
        self.journal = [one for one in self.journal if _decode(one).queue != state.number]
        done(None)

    def forget(self, state: QueueState) -> None:
        """It is read anew."""


class Bench:
    """One queue, or several, of a broker, and all that is told of them."""

    def __init__(
        self, storage: Any = None, limits: QueueLimits | None = None, **options: Any
    ) -> None:
        self.limits = limits or QueueLimits()
        self.loop: Any = ManualLoop()
        self.clock = WallClock(self.loop)
        self.loans = Loans()
        self.storage = storage or MemoryStorage(self.loans)
        self.outlet = KeptOutlet()
        self.ids = 0
        self.acks: list[int] = []
        self.refusals: list[RequestError] = []
        self.made: list[RequestError | None] = []
        self.broker = self.start()
        self.make(**options)

    def start(self) -> Broker:
        """A broker on what is stored."""
        self.alarm = Alarm(self.loop, self.loans.deadlines)
        broker = Broker(
            self.storage,
            limits=self.limits,
            loans=self.loans,
            alarm=self.alarm,
            loop=self.loop,
            clock=self.clock,
            outlet=lambda app: self.outlet,
        )
        broker.start()
        return broker

    def restart(self) -> None:
        """The process ends, and another begins with what is stored."""
        self.loop.soon.clear()
        self.loop.calls.clear()
        self.loans = Loans()
        self.storage.pending.clear()
        self.storage.reads.clear()
        self.outlet = KeptOutlet()
        self.broker = self.start()
        self.settle()

    def make(self, address: str = JOBS, **options: Any) -> None:
        volatile = isinstance(self.storage, MemoryStorage)
        made = QueueOptions.of({"volatile": volatile, **options})
        self.broker.make((APP, address), made, self.made.append)
        self.settle()

    @property
    def queue(self) -> Queue:
        return self.broker.queues[KEY]

    def group(self, name: str = "") -> Group:
        return self.queue.groups[name]

    def settle(self) -> None:
        """Take turns until all rest, and let commits be done on the way."""
        for _ in range(1_000):
            self.loop.settle()
            held = isinstance(self.storage, HeldStorage) and self.storage.flush()
            if not held and not self.loop.soon:
                return
        raise AssertionError("commits without end")

    def _said(self, *, held: bool = False) -> None:
        """A session has said something, and has been heard."""
        self.broker.settle()
        self.alarm.set()
        if not held:
            self.settle()

    def message(self, payload: bytes = b"1", **fields: Any) -> Stored:
        self.ids += 1
        return Stored(0, 0, 0, self.ids, self.clock.wall_ms(), "user:a", payload, **fields)

    def send(
        self, count: int = 1, payload: bytes = b"1", *, held: bool = False, **fields: Any
    ) -> int:
        """Send messages, together if that is possible; the id of the last."""
        if count == 1 or not self._sent_together(count, payload, fields):
            for _ in range(count):
                message = self.message(payload, **fields)
                self.queue.send(message, self.acks.append, self.refusals.append)
        self._said(held=held)
        return self.ids

    def _sent_together(self, count: int, payload: bytes, fields: dict[str, Any]) -> bool:
        if not fields.keys() <= {"key", "headers", "tags"}:
            return False
        before = self.ids
        messages = [self.message(payload, **fields) for _ in range(count)]

        def told() -> None:
            self.acks += [message.id for message in messages]

        def refused(error: RequestError) -> None:
            self.refusals += [error] * count

        size = sum(len(message.payload) for message in messages)
        if self.queue.send_all(messages, size, told, refused):
            return True
        self.ids = before
        return False

    def ack_all(self, who: Any, messages: list[int]) -> None:
        """Acknowledge messages of one group together."""
        items = [self.loans.lent.pop((who, message)) for message in messages]
        items[0].group.ack_all(items, self.loop.time())
        self._said()

    def fetch(
        self,
        who: Any,
        n: int = 1,
        wait_s: float = 0,
        request: int | None = 7,
        group: str = "",
    ) -> None:
        self.queue.members.group(group).fetch(who, request, n, wait_s, self.loop.time())
        self._said()

    def consume(self, who: Any, credit: int = 10, group: str = "", *, held: bool = False) -> None:
        self.queue.members.group(group).consume(who, credit, self.loop.time())
        self._said(held=held)

    def item(self, who: Any, message: int) -> Item:
        return self.loans.lent[who, message]

    def ack(self, who: Any, *messages: int, held: bool = False) -> None:
        for message in messages:
            item = self.item(who, message)
            item.group.ack(item, self.loop.time())
        self._said(held=held)

    def nack(self, who: Any, message: int, delay_s: float = 0.0, *, held: bool = False) -> None:
        item = self.item(who, message)
        item.group.give_back(item, self.loop.time(), delay_s=delay_s)
        self._said(held=held)

    def leave(self, *who: Any, group: str = "") -> None:
        """Let some leave together."""
        for each in who:
            self.group(group).leave(each, self.loop.time())
            self._said(held=True)
        self.later(0)

    def later(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        end = self.loop.now + seconds
        self.settle()
        while due := [when for when in self.loop.pending if when <= end]:
            self.loop.move_to(max(self.loop.now, due[0]))
            self.settle()
        self.loop.move_to(end)
        self.settle()


def held_bench(limits: QueueLimits | None = None, **options: Any) -> tuple[Bench, HeldStorage]:
    """A bench whose commits a test does."""
    limits = limits or QueueLimits()
    storage = HeldStorage(limits)
    return Bench(storage, limits, **options), storage
