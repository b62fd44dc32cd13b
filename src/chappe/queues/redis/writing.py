"""Turns the records of one queue into commands for Redis, in the order in which they happened.

Redis does not tell how far a group is without being asked, so that is remembered here as well: as
it was after the last record that was written, which need not be what the queue's state says by now.

A group's mark may be beyond the last message of a lane. Redis is told of it only as far as there
are messages: those that come later are entered in the pending list as they are stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec

from chappe.errors import StorageError
from chappe.queues.options import QueueLimits
from chappe.queues.record import (
    DEAD_GROUP,
    DELAY_GROUP,
    DELAY_LANE,
    Done,
    Made,
    Record,
    Registered,
    Removed,
    Stored,
    Tried,
    Unregistered,
    encode_record,
)
from chappe.queues.redis.keys import Keys, entry_id
from chappe.queues.redis.unit import Unit, raw
from chappe.queues.state import QueueState


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Wants(msgspec.Struct, frozen=True):
    """What is written down of a group."""

    tags: list[str] | None = None
    headers: dict[str, str] | None = None
    since_ms: int = 0
    expected: bool = False


class Writing:
    """How far the records of a queue have been written."""

    def __init__(self, state: QueueState, keys: Keys, limits: QueueLimits, home: str) -> None:
        self.keys = keys
        self._limits = limits
        # Under this name messages are in the pending lists.
        self._home = home
        self.heads = dict(state.heads)
        self.total = 0
        # Whether what waits while there is no group is another from now on.
        self._freed = False
        self._lanes = list(state.lanes)
        self._marks = {
            group.name: {lane: group.at(lane).mark for lane in state.lanes}
            for group in state.readers()
        }
        self._expected = {group.name for group in state.readers() if group.expected}
        # Per lane, the groups whose mark is beyond its last message.
        self._beyond: dict[int, dict[str, int]] = {}
        # When each producer was last heard of, the one longest silent first.
        self.producers: OrderedDict[str, int] = OrderedDict()
        self._heard = 0

    def write(self, state: QueueState, records: Sequence[Record]) -> Unit:
        """The commands that make records durable; the state has them already.

        Raises StorageError for what is no record of a queue's life.
        """
        unit = Unit(self.keys, self._home)
        touched: set[str] = set()
        total = self.total
        for record in records:
            kind = type(record)
            if kind is Stored:
                self._store(unit, record, touched)  # type: ignore[arg-type]
            elif kind is Done:
                self._finish(unit, record)  # type: ignore[arg-type]
                touched.add(record.group)  # type: ignore[attr-defined]
            elif kind is Tried:
                self._try(unit, record)  # type: ignore[arg-type]
            elif isinstance(record, Registered):
                # What waits may be claimed with this, or left to somebody else.
                self._freed = True
                self._register(unit, state, record)
                touched.add(record.group)
            elif isinstance(record, Unregistered):
                self._unregister(unit, record)
            elif isinstance(record, Made):
                self._make(unit, state, record)
            elif isinstance(record, Removed):
                unit.add("UNLINK", *self.names())
                unit.removes = True
            else:
                raise StorageError(f"{type(record).__name__}: not a record of a queue's life")
        self._count(unit, state, touched, grown=self.total != total)
        unit.settle()
        unit.settle_producers(self.producers, self._limits.producer_window)
        return unit

    def discard(self, lane: int, seqs: Iterable[int]) -> Unit:
        """The commands that let go of messages that nobody will read."""
        unit = Unit(self.keys, self._home)
        unit.delete(lane, seqs)
        return unit

    def names(self) -> list[str]:
        """All that Redis keeps of the queue."""
        keys = self.keys
        return [
            keys.meta,
            keys.groups,
            keys.bytes,
            keys.producers,
            *(keys.lane(lane) for lane in self.heads),
            *(keys.consumers(group) for group in self._marks),
            *(keys.producer(name) for name in self.producers),
        ]

    def _store(self, unit: Unit, record: Stored, touched: set[str]) -> None:
        lane, seq = record.lane, record.seq
        unit.grows(lane, self.heads[lane])
        self.heads[lane] = seq
        body = encode_record(record)
        key, entry = self.keys.lane(lane), entry_id(seq)
        if lane == DELAY_LANE:
            due = str(record.due_ms or 0)
            unit.add("XADD", key, entry, "r", raw(body), "due", due, "id", str(record.id))
        else:
            unit.add("XADD", key, entry, "r", raw(body))
        unit.size += len(body)
        if lane > 0:
            self.total += len(record.payload) + record.extra
            self._enter(unit, record, touched)
        if record.producer is not None and record.producer_seq is not None:
            self._remember(unit, record.producer, record.producer_seq, record.id)

    def _enter(self, unit: Unit, record: Stored, touched: set[str]) -> None:
        """Let those groups have begun with a new message that are said to."""
        lane, seq = record.lane, record.seq
        for group in self._expected:
            touched.add(group)
            self._marks[group][lane] = seq
            if group in (record.consumers or ()):
                unit.open(lane, group, (seq,), attempts=0)
            else:
                unit.mark(lane, group, seq)
        beyond = self._beyond.get(lane)
        if beyond:
            for group, mark in list(beyond.items()):
                unit.open(lane, group, (seq,))
                if mark <= seq:
                    del beyond[group]

    def _advance(self, unit: Unit, group: str, lane: int, mark: int) -> None:
        """All up to a mark is begun with."""
        marks = self._marks[group]
        before, head = marks[lane], self.heads[lane]
        marks[lane] = mark
        upto = min(mark, head)
        if upto > before:
            unit.open(lane, group, range(before + 1, upto + 1))
        if mark > head:
            self._beyond.setdefault(lane, {})[group] = mark

    def _finish(self, unit: Unit, record: Done) -> None:
        lane, group, ranges = record.lane, record.group, record.ranges
        pairs = list(zip(ranges[::2], ranges[1::2], strict=True))
        if group in (DEAD_GROUP, DELAY_GROUP):
            # What is open there is what is there.
            unit.delete(lane, (seq for first, last in pairs for seq in range(first, last + 1)))
            return
        if group not in self._marks:
            return
        self._freed |= group in self._expected
        for first, last in pairs:
            mark = self._marks[group][lane]
            unit.finish(lane, group, range(first, min(last, mark, self.heads[lane]) + 1))
            if last > mark:
                self._advance(unit, group, lane, max(mark, first - 1))
                self._marks[group][lane] = last
                unit.mark(lane, group, min(last, self.heads[lane]))

    def _try(self, unit: Unit, record: Tried) -> None:
        lane, group, seq = record.lane, record.group, record.seq
        if group not in self._marks:
            return
        if record.attempts:
            unit.count(lane, group, seq, record.attempts)
        elif seq > self._marks[group][lane]:
            self._advance(unit, group, lane, seq)

    def _register(self, unit: Unit, state: QueueState, record: Registered) -> None:
        name = record.group
        group = state.groups.get(name)
        if group is None:
            # Given up again before it was written.
            return
        if name not in self._marks:
            marks = self._marks[name] = {}
            fresh = record.new or record.expected
            for lane in self._lanes:
                marks[lane] = self.heads[lane] if fresh else group.at(lane).low
                unit.make_group(lane, name, min(marks[lane], self.heads[lane]))
        if record.expected:
            self._expected.add(name)
        else:
            self._expected.discard(name)
            if record.consumer:
                unit.add("SADD", self.keys.consumers(name), record.consumer)
        wants = Wants(group.tags, group.headers, group.since_ms, group.expected)
        unit.add("HSET", self.keys.groups, name, _json(wants))

    def _unregister(self, unit: Unit, record: Unregistered) -> None:
        name = record.group
        if name not in self._marks:
            return
        if record.consumer:
            unit.add("SREM", self.keys.consumers(name), record.consumer)
            return
        del self._marks[name]
        self._expected.discard(name)
        for lane in self._lanes:
            self._beyond.get(lane, {}).pop(name, None)
            unit.drop_group(lane, name)
        unit.add("HDEL", self.keys.groups, name)
        unit.add("HDEL", self.keys.bytes, f"g:{name}")
        self._freed = True
        unit.add("UNLINK", self.keys.consumers(name))

    def _make(self, unit: Unit, state: QueueState, record: Made) -> None:
        for lane in record.lanes:
            if lane not in self.heads:
                self.heads[lane] = 0
                self._lanes.append(lane)
                for name, marks in self._marks.items():
                    marks[lane] = 0
                    unit.make_group(lane, name, 0)
        unit.add(
            *("HSET", self.keys.meta, "app", record.app, "address", record.address),
            *("options", _json(record.options), "lanes", _json(self._lanes)),
            *("key_lanes", str(state.key_lanes)),
        )
        unit.add("PERSIST", self.keys.meta)

    def restore(self, total: int, producers: Iterable[tuple[str, int]]) -> None:
        """Go on from what is written: bytes, and producers with when they were last heard of."""
        self.total = total
        self.producers.update(producers)
        self._heard = max(self.producers.values(), default=0)

    def _remember(self, unit: Unit, producer: str, seq: int, id: int) -> None:
        self._heard += 1
        self.producers.pop(producer, None)
        self.producers[producer] = self._heard
        unit.remember(producer, seq, id)
        if len(self.producers) > self._limits.producers_max:
            unit.forget(self.producers.popitem(last=False)[0])

    def _count(self, unit: Unit, state: QueueState, touched: set[str], *, grown: bool) -> None:
        """Write down how many bytes wait for whom.

        What waits for a group is the total less what does not: so a message that comes in changes
        one number, however many groups there are.
        """
        fields: list[str] = ["total", str(self.total)] if grown else []
        if self._freed:
            self._freed = False
            floors = _json([list(state.floors.items()), list(state.ceilings.items())])
            fields += ["free", str(self.total - state.bytes), "floors", floors]
        for name in touched:
            group = state.groups.get(name)
            if group is not None:
                fields += [f"g:{name}", str(self.total - group.bytes)]
        if fields:
            unit.add("HSET", self.keys.bytes, *fields)
