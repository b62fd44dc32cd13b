"""The intake of a group: its lanes, read in turn, and what waits behind a message of its key.

A message with a key holds back the others of its key until it is done or dead; nothing else waits
for it.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chappe.queues.consumer import Item
from chappe.queues.reader import Reader
from chappe.queues.record import Stored

if TYPE_CHECKING:
    from chappe.queues.group import Group

# What is handed to a consumer at once, besides one message.
_RUN_BYTES_MAX = 256 * 1024


class Intake:
    """What a group may hand out next."""

    __slots__ = ("_group", "_ring", "keys", "readers")

    def __init__(self, group: Group) -> None:
        self._group = group
        self.readers: dict[int, Reader] = {}
        # Whose turn it is among the lanes.
        self._ring: deque[Reader] = deque()
        # By key of what is in hand: what waits for that.
        self.keys: dict[object, deque[Item]] = {}
        for lane in group.queue.state.lanes:
            self.add_lane(lane)

    def add_lane(self, lane: int) -> None:
        """Read a lane more."""
        if lane not in self.readers:
            reader = self.readers[lane] = Reader(self._group, lane)
            self._ring.append(reader)

    def offer(self, lane: int, messages: list[Stored]) -> None:
        """Messages were stored in a lane."""
        self.readers[lane].offer(messages)

    def grant(self, lane: int, mark: int) -> None:
        """A mark is committed."""
        reader = self.readers.get(lane)
        if reader is not None:
            reader.granted = max(reader.granted, mark)

    @property
    def in_hand(self) -> int:
        """How many messages were taken and are not done with."""
        return sum(reader.in_hand for reader in self.readers.values())

    @property
    def more(self) -> bool:
        """Whether there may be something fresh to hand out."""
        for reader in self._ring:  # noqa: SIM110 - asked with each acknowledgement
            if reader.more:
                return True
        return False

    @property
    def coming(self) -> bool:
        """Whether there is more in the lanes than could be handed out at once."""
        return any(reader.coming for reader in self.readers.values())

    def take_run(self, wanted: int) -> list[Item]:
        """The next messages of the lane whose turn it is, if they can be handed out as they are:
        its share of so many."""
        ring, group = self._ring, self._group
        share = -(-wanted // len(ring))
        for _ in range(len(ring)):
            reader = ring[0]
            taken = reader.take_plain(share, _RUN_BYTES_MAX)
            if not taken and reader.more:
                break  # its turn all the same: it has to be read, or looked at one by one
            ring.rotate(-1)
            if taken:
                return [Item(group, record, 0, None) for record in taken]
        return []

    def next(self, now: float, *, pushed: bool) -> Item | None:
        """The next message to hand out: one that comes again, or else a fresh one."""
        returned = self._group.retries.returned
        if returned:
            return heappop(returned)
        interval_s = self._group.queue.state.options.push_interval_s if pushed else 0.0
        for _ in range(len(self._ring)):
            reader = self._ring[0]
            self._ring.rotate(-1)
            if interval_s and reader.ready_at > now:
                continue
            item = self._fresh(reader)
            if item is not None:
                if interval_s:
                    reader.ready_at = now + interval_s
                return item
        return None

    def next_round(self, now: float) -> float | None:
        """When a lane may push its next message that may not now."""
        return min((one.ready_at for one in self._ring if one.ready_at > now), default=None)

    def _fresh(self, reader: Reader) -> Item | None:
        group, queue = self._group, self._group.queue
        options = queue.state.options
        while not self._sated(reader) and (record := reader.take()) is not None:
            key = self._key(record)
            item = Item(group, record, reader.attempts_of(record.seq), key)
            reader.in_hand += 1
            reader.in_hand_bytes += len(record.payload) + record.extra
            if key is not None:
                waiting = self.keys.get(key)
                if waiting is not None:
                    waiting.append(item)
                    continue
                self.keys[key] = deque()
            if options.expire_s and queue.now_ms - record.ts_ms > options.expire_s * 1000:
                group.bury(item, "expired")
            elif reader.is_noted(record.seq):
                return item
            else:
                group.retries.noting[item] = None
                group.retries.try_again(item)
        return None

    def _sated(self, reader: Reader) -> bool:
        """Whether attempts are being written down for as many messages as are wanted: one that is
        handed to nobody must not have an attempt counted."""
        noting = self._group.retries.noting
        if not noting or reader.noted_next:
            return False
        return len(noting) >= self._group.takers.wanted

    def _key(self, record: Stored) -> object:
        if self._group.queue.state.options.ordered:
            return record.lane
        return record.key

    def settle_all(self, items: list[Item]) -> None:
        """Messages have left the group's hands."""
        for item in items:
            self.settle(item)

    def settle(self, item: Item) -> None:
        """A message has left the group's hands: the next of its key may go."""
        reader = self.readers[item.record.lane]
        reader.in_hand -= 1
        reader.in_hand_bytes -= len(item.record.payload) + item.record.extra
        if item.key is None or self._group.closed:
            return
        waiting = self.keys[item.key]
        if waiting:
            following = waiting.popleft()
            if reader.is_noted(following.record.seq):
                heappush(self._group.retries.returned, following)
            else:
                self._group.retries.try_again(following)
        else:
            del self.keys[item.key]
