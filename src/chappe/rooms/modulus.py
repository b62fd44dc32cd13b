"""The modulus: which rooms a member of a partition keeps, and when it may keep fewer (R8).

Of K it keeps rooms with room % K == partition % K. When the number of partitions doubles, those who
send to it learn of that one by one: until the last has said that it goes by the new number, or has
been silent for too long, the old modulus stands, by which it has the rooms of both halves.

Who starts cannot know how long ago the number doubled, so it begins with half of it; all who send
to it say what they go by within a beat or so.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from chappe.rooms.partition import keeps

# Of senders that are not registered, or no longer.
SENDERS_MAX = 4096


class _Said(NamedTuple):
    number: int
    heard: float


class Modulus:
    """What one member of a partition goes by."""

    def __init__(self, partition: int, *, confirm_s: float, grace_s: float) -> None:
        self.partition = partition
        self._confirm_s = confirm_s
        # What was sent by the old number may still be on its way when all have said the new one.
        self._grace_s = grace_s
        self.number = 1
        # How many partitions there are; 0: not known yet.
        self.partitions = 0
        self._since = math.inf
        self._agreed = math.inf
        self._expected: dict[Hashable, float] = {}
        self._said: dict[Hashable, _Said] = {}

    def keeps(self, room: int) -> bool:
        """Whether a room is kept."""
        return keeps(room, self.partition, self.number)

    @property
    def settled(self) -> bool:
        """Whether no other number is waited for."""
        return self.number >= self.partitions

    def see(self, partitions: int, senders: Iterable[Hashable], now: float) -> bool:
        """Take note of how many partitions there are, and of who sends to them.

        Tells whether the modulus is another one now. A number that is less than before is not
        believed: partitions never become fewer.
        """
        self._expected = {sender: self._expected.get(sender, now) for sender in senders}
        if partitions <= self.partitions:
            return False
        first, self.partitions = self.partitions == 0, partitions
        self._since = now
        before = self.number
        if first:
            self.number = partitions // 2 if self._is_old() else partitions
            self.number = max(self.number, 1)
        return self.number != before

    def _is_old(self) -> bool:
        """Whether its partition is among those that there are, so that it may be sent to."""
        return self.partition < self.partitions

    def hear(self, sender: Hashable, number: int, now: float) -> None:
        """Somebody who sends says by what number of partitions it goes."""
        if sender not in self._said and len(self._said) >= SENDERS_MAX:
            del self._said[next(iter(self._said))]
        self._said[sender] = _Said(number, now)

    def settle(self, now: float) -> bool:
        """Go by the present number if all do; tells whether the modulus has changed by that."""
        if self.settled:
            return False
        if not self._all_agree(now):
            self._agreed = math.inf
            return False
        self._agreed = min(self._agreed, now)
        if now - self._agreed < self._grace_s:
            return False
        self.number, self._agreed = self.partitions, math.inf
        self._forget(now)
        return True

    def _all_agree(self, now: float) -> bool:
        before = now - self._confirm_s
        for sender, seen in self._expected.items():
            said = self._said.get(sender)
            if said is None and max(seen, self._since) > before:
                return False
        return all(
            said.number >= self.partitions or self._last(sender, said) <= before
            for sender, said in self._said.items()
        )

    def _last(self, sender: Hashable, said: _Said) -> float:
        """When one that goes by an old number was heard, or expected, last."""
        return max(said.heard, self._since) if sender in self._expected else said.heard

    def _forget(self, now: float) -> None:
        """Keep only who was heard of late."""
        before = now - self._confirm_s
        self._said = {
            sender: said
            for sender, said in self._said.items()
            if sender in self._expected or said.heard > before
        }
