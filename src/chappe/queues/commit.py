"""A commit: what one turn of the loop brought to a queue, and what follows once it is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from chappe.errors import Overload, RequestError
from chappe.queues.record import DELAY_LANE, Done, Record, Stored, Tried

if TYPE_CHECKING:
    from chappe.queues.group import Group
    from chappe.queues.queue import Queue

# What a record has besides its payload, unless it says unusually much.
RECORD_BYTES = 512

Told = Callable[[], None]
Refused = Callable[[RequestError], None]


class Commit:
    """Records that become durable together, and who is told of it."""

    __slots__ = ("_adding", "_finished", "_marks", "_queue", "records", "stored", "told")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.records: list[Record] = []
        # About how many bytes messages add.
        self._adding = 0
        self.stored: list[Stored] = []
        self.told: list[tuple[Told, Refused | None]] = []
        self._marks: list[Tried] = []
        self._finished: list[Done] = []

    def gather(self, groups: Iterable[Group]) -> bool:
        """Take what groups have to say; whether there is anything to commit."""
        state, limits = self._queue.state, self._queue.limits
        for group in groups:
            if group.closed:
                continue
            for record in group.report.records():
                state.apply(record, limits)
                self.records.append(record)
                if isinstance(record, Tried):
                    self._marks.append(record)
                else:
                    self._finished.append(record)
        return bool(self.records or self.told)

    def begin(self) -> None:
        """Hand it to the storage."""
        queue = self._queue
        self.let_go()
        try:
            queue.storage.commit(queue.state, self.records, self._done)
        except Overload as error:
            self._fail(error)

    def add(self, messages: Sequence[Stored], size: int) -> None:
        """Take messages that have their places, of so many bytes together."""
        size += len(messages) * RECORD_BYTES
        self._adding += size
        self._queue.keeper.adding += size
        self.records += messages
        self.stored += messages

    def let_go(self) -> None:
        """What it adds is the storage's to count now, or nobody's."""
        self._queue.keeper.adding -= self._adding
        self._adding = 0

    def _done(self, error: RequestError | None) -> None:
        if error is None:
            self._succeed()
        else:
            self._fail(error)

    def _succeed(self) -> None:
        queue = self._queue
        committed, groups = queue.committed, queue.groups
        for message in self.stored:
            committed[message.lane] = message.seq
        # What was stored is durable even if this queue lives elsewhere by now.
        for tell, _ in self.told:
            tell()
        if queue.closed:
            return
        self._offer()
        for mark in self._marks:
            if mark.group in groups:
                groups[mark.group].intake.grant(mark.lane, mark.seq)
        if self._finished:
            self._discard()
        now = queue.keeper.now
        for group in list(groups.values()):
            if group.waiting:
                group.lending.hand_out(now)
        queue.keeper.arm()

    def _offer(self) -> None:
        """Let those who wait know of messages that are durable."""
        queue = self._queue
        lanes: dict[int, list[Stored]] = {}
        for message in self.stored:
            if message.lane > 0:
                lanes.setdefault(message.lane, []).append(message)
            elif message.lane == DELAY_LANE:
                queue.delays.add(message)
        for group in list(queue.groups.values()):
            for lane, messages in lanes.items():
                group.intake.offer(lane, messages)

    def _discard(self) -> None:
        """Let the storage forget what every group is done with."""
        queue = self._queue
        readers = list(queue.state.readers())
        for record in self._finished:
            ranges, lane = record.ranges, record.lane
            seqs = [
                seq
                for at in range(0, len(ranges), 2)
                for seq in range(ranges[at], ranges[at + 1] + 1)
            ]
            if len(readers) != 1 or readers[0].name != record.group:
                seqs = [s for s in seqs if all(one.at(lane).is_done(s) for one in readers)]
            if not readers:
                continue  # whoever comes first begins where this one ended
            if seqs:
                queue.storage.discard(queue.state, lane, seqs)

    def _fail(self, error: RequestError) -> None:
        self.refuse(error)
        if not self._queue.closed:
            self._queue.keeper.failed(self._queue, error)

    def refuse(self, error: RequestError) -> None:
        """Tell those who wait that it is not to be."""
        for _, refuse in self.told:
            if refuse is not None:
                refuse(error)
