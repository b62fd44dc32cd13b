"""State: what the records of one queue say, taken one after the other.

To take a record twice is to take it once: a snapshot may have what follows it in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from chappe.errors import StorageError
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.producers import Producers
from chappe.queues.progress import GroupState, Progress
from chappe.queues.record import (
    DEAD_GROUP,
    DEAD_LANE,
    DELAY_GROUP,
    DELAY_LANE,
    Done,
    Made,
    Record,
    Registered,
    Stored,
    Tried,
    Unregistered,
)


class QueueState:
    """All that is known of one queue."""

    def __init__(self, number: int, app: str, address: str, options: QueueOptions) -> None:
        self.number = number
        self.app = app
        self.address = address
        self.options = options
        # The last seq of each lane; the queue's own lanes in the order they were given to it.
        self.heads: dict[int, int] = {DEAD_LANE: 0, DELAY_LANE: 0}
        self.lanes: list[int] = []
        # Over how many of them keyed messages are spread: not over more while some wait, or two of
        # one key would be in two lanes.
        self.key_lanes = 1
        self.groups: dict[str, GroupState] = {
            name: GroupState(name) for name in (DEAD_GROUP, DELAY_GROUP)
        }
        # Who reads, remembered: it is asked for with each message.
        self._readers: list[GroupState] = []
        self._readers_of = self.groups
        # While no group is there: all of a lane up to here is done with, and the bytes that wait.
        self.floors: dict[int, int] = {}
        # While only groups are there that did not want it: what waits above the floors ends here.
        self.ceilings: dict[int, int] = {}
        self.bytes = 0
        # Delayed messages by their seq in the delay lane: when they are due, and their id.
        self.delayed: dict[int, tuple[int, int]] = {}
        self.delayed_seqs: dict[int, int] = {}
        self.producers = Producers()

    def readers(self) -> list[GroupState]:
        """The groups that take messages, those named and not yet there among them."""
        if len(self._readers) != len(self.groups) - 2 or self._readers_of is not self.groups:
            self._readers_of = self.groups
            self._readers = [one for name, one in self.groups.items() if name[:1] != "!"]
        return self._readers

    def depth(self) -> int:
        """How many messages wait or are in hand, as the slowest group sees it."""
        heads, lanes, most, anybody = self.heads, self.lanes, 0, False
        for group in self.readers():
            anybody = anybody or not group.expected
            most = max(most, sum(group.at(lane).lag(heads[lane]) for lane in lanes))
        if anybody:
            return max(most, sum(map(self._unclaimed, lanes))) if self.ceilings else most
        return sum(heads[lane] - self.floors.get(lane, 0) for lane in lanes)

    def _unclaimed(self, lane: int) -> int:
        """How many messages of a lane wait for a group that begins with all there is."""
        return max(0, self.ceilings.get(lane, 0) - self.floors.get(lane, 0))

    def load(self, lane: int) -> int:
        """How many messages of a lane wait or are in hand, as the slowest group sees it."""
        head, most, anybody = self.heads[lane], 0, False
        for group in self.readers():
            anybody = anybody or not group.expected
            most = max(most, group.at(lane).lag(head))
        if anybody:
            return max(most, self._unclaimed(lane))
        return head - self.floors.get(lane, 0)

    def waiting_bytes(self) -> int:
        """The bytes of what waits or is in hand, as the slowest group sees it."""
        most, anybody = 0, False
        for group in self.readers():
            anybody = anybody or not group.expected
            most = max(most, group.bytes)
        return most if anybody else self.bytes

    def low(self, lane: int) -> int:
        """Every group is done with all of a lane up to here."""
        if lane in (DEAD_LANE, DELAY_LANE):
            return self.groups[DEAD_GROUP if lane == DEAD_LANE else DELAY_GROUP].at(lane).low
        low = min((group.at(lane).low for group in self.readers()), default=self.heads[lane])
        if self._there() and not self._unclaimed(lane):
            return low
        return min(low, self.floors.get(lane, 0))

    def begun(self, lane: int) -> int:
        """What is beyond is still to be begun, by one of the groups or by whoever comes first."""
        marks = [group.at(lane).mark for group in self._there()]
        if self._unclaimed(lane):
            marks.append(self.floors.get(lane, 0))
        return min(marks, default=self.floors.get(lane, 0))

    def _there(self) -> list[GroupState]:
        """The groups that take messages and are not only expected."""
        return [group for group in self.readers() if not group.expected]

    def apply(self, record: Record, limits: QueueLimits) -> None:
        """Take one record more."""
        kind = type(record)
        if kind is Stored:
            self.stored(record, limits)  # type: ignore[arg-type]
        elif kind is Done:
            self.done(record)  # type: ignore[arg-type]
        elif kind is Tried:
            self._tried(record)  # type: ignore[arg-type]
        elif isinstance(record, Registered):
            self._registered(record)
        elif isinstance(record, Unregistered):
            self._unregistered(record)
        elif isinstance(record, Made):
            self.options = record.options
            for lane in record.lanes:
                if lane not in self.heads:
                    self.heads[lane] = 0
                    self.lanes.append(lane)
            if self.depth() == 0:
                self.key_lanes = len(self.lanes)
        else:
            raise StorageError(f"{type(record).__name__}: not a record of a queue's life")

    def stored(self, record: Stored, limits: QueueLimits) -> None:
        """A message has its place."""
        lane, seq = record.lane, record.seq
        if seq <= self.heads[lane]:
            return  # a snapshot that was taken between this and its commit has it already
        self.heads[lane] = seq
        if record.producer is not None and record.producer_seq is not None:
            self.producers.remember(record.producer, record.producer_seq, record.id, limits)
        if lane > 0:
            size = len(record.payload) + record.extra
            self.bytes += size
            for group in self.readers():
                if group.expected:
                    self._await(group, record, size)
                else:
                    group.bytes += size
        elif lane == DELAY_LANE:
            self.groups[DELAY_GROUP].at(lane).advance(seq)
            self.delay(seq, record.due_ms or 0, record.id)
        else:
            self.groups[DEAD_GROUP].at(lane).advance(seq)

    def place(self, messages: Sequence[Stored], lane: int, limits: QueueLimits) -> None:
        """Give messages the next places of a lane, and take them."""
        seq = self.heads[lane]
        for message in messages:
            seq += 1
            message.queue, message.lane, message.seq = self.number, lane, seq
        self.take(messages, lane, limits)

    def take(self, messages: Sequence[Stored], lane: int, limits: QueueLimits) -> None:
        """Messages have their places in a lane, one after the other."""
        if len(messages) == 1 or lane <= 0 or any(group.expected for group in self.readers()):
            for message in messages:
                self.stored(message, limits)
            return
        head, size = self.heads[lane], 0
        for message in messages:
            if message.seq <= head:
                continue  # a snapshot has it already
            size += len(message.payload) + message.extra
            if message.producer is not None and message.producer_seq is not None:
                self.producers.remember(message.producer, message.producer_seq, message.id, limits)
        self.heads[lane] = max(head, messages[-1].seq)
        self.bytes += size
        for group in self.readers():
            group.bytes += size

    @staticmethod
    def _await(group: GroupState, record: Stored, size: int) -> None:
        """Keep for a group that has not come what names it; it passes over the rest."""
        progress = group.at(record.lane)
        if group.name in (record.consumers or ()):
            progress.advance(record.seq)
            progress.attempts[record.seq] = 0
            group.bytes += size
        else:
            progress.mark = record.seq

    def done(self, record: Done) -> None:
        """A group is done with some."""
        group = self.groups.get(record.group)
        if group is None:
            return
        ranges, progress = record.ranges, group.at(record.lane)
        known = progress.is_done(ranges[0]) if ranges else True
        for at in range(0, len(ranges), 2):
            progress.finish(ranges[at], ranges[at + 1])
        if not known:
            group.bytes = max(0, group.bytes - record.bytes)
        if group.bytes and not any(group.at(lane).lag(self.heads[lane]) for lane in self.lanes):
            group.bytes = 0  # what was lost had bytes that nobody knows
        if group.expected and not self._there():
            self._pass_over(record)
        if record.group == DELAY_GROUP:
            for at in range(0, len(ranges), 2):
                for seq in range(ranges[at], ranges[at + 1] + 1):
                    _, message = self.delayed.pop(seq, (0, 0))
                    self.delayed_seqs.pop(message, None)

    def _pass_over(self, record: Done) -> None:
        """Nobody came for these: they wait no longer for whoever may come."""
        lane, (first, last) = record.lane, record.ranges[:2]
        others = list(self.readers())
        if first == self.floors.get(lane, 0) + 1 and all(
            group.at(lane).is_done(seq) for group in others for seq in range(first, last + 1)
        ):
            self.floors[lane] = last
            self.bytes = max(0, self.bytes - record.bytes)

    def delay(self, seq: int, due_ms: int, message: int) -> None:
        """Hold a message until it is due."""
        self.delayed[seq] = (due_ms, message)
        self.delayed_seqs[message] = seq

    def _tried(self, record: Tried) -> None:
        group = self.groups.get(record.group)
        if group is None:
            return
        progress = group.at(record.lane)
        if record.attempts == 0:
            progress.advance(record.seq)
        elif record.seq in progress.open:
            progress.attempts[record.seq] = record.attempts

    def _registered(self, record: Registered) -> None:
        group = self.groups.get(record.group)
        if group is None:
            group = self.groups[record.group] = GroupState(record.group)
            self._readers = []
            group.since_ms = record.since_ms
            group.expected = record.expected
            others = [one for one in self._there() if one is not group]
            fresh = record.new or record.expected
            for lane in self.lanes:
                low = self.heads[lane] if fresh else self._oldest(lane, others)
                group.progress[lane] = Progress(low)
            if not fresh:
                group.bytes = max((one.bytes for one in others), default=self.bytes)
                self.ceilings.clear()
            elif record.new and not others:
                self.ceilings = {lane: self.heads[lane] for lane in self.lanes}
        if not record.expected:
            group.expected = False
            group.tags = record.tags
            group.headers = record.headers
            if record.consumer:
                group.consumers[record.consumer] = None

    def _oldest(self, lane: int, others: list[GroupState]) -> int:
        floor = self.floors.get(lane, 0)
        low = min((group.at(lane).low for group in others), default=floor)
        return min(low, floor) if self._unclaimed(lane) else low

    def _unregistered(self, record: Unregistered) -> None:
        group = self.groups.get(record.group)
        if group is not None and record.consumer:
            group.consumers.pop(record.consumer, None)
        elif group is not None:
            if self._there() == [group]:
                self.floors = {
                    lane: self.floors.get(lane, 0) if self._unclaimed(lane) else group.at(lane).low
                    for lane in self.lanes
                }
                self.ceilings.clear()
                self.bytes = group.bytes
            del self.groups[record.group]
            self._readers = []
