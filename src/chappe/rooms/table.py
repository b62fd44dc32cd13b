"""The table of a broker: which gateways have members of a room, and how many.

There may be a million rooms, most of them small. So a room is one string and one piece of bytes:

    app NUL room -> +---------+------+---------+-----+
                    | gateway | seen | members | seq |   and so on, 16 bytes for each gateway
                    | 2       | 2    | 4       | 8   |
                    +---------+------+---------+-----+

`seen` counts steps, a 64th of the time after which what is not refreshed is forgotten. No members:
the gateway has left the room. That is kept for a quarter of that time, since of two entries about a
room the later one counts, in whichever order they come: an older login that was held up on its way
brings nobody back.

Rooms lie in many small dicts instead of a large one. None of them takes long to grow, and one after
the other they are swept, a few at a time: what is not refreshed, whose gateway is gone, and what
another partition keeps is taken out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from struct import Struct

from chappe.rooms.gateways import Gateway, Gateways
from chappe.rooms.partition import room_number
from chappe.wire.rooms import Entry

_ENTRY = Struct("!HHIQ")
_SIZE = _ENTRY.size
_NUMBER = Struct("!H").pack
_MEMBERS_MAX = (1 << 32) - 1
_SEQ_MAX = (1 << 64) - 1
_BUCKETS = 1024
# Any odd number spreads; this one also numbers that follow each other.
_SPREAD = 0x9E3779B97F4A7C15
_STEPS = 64
_STEPS_LEFT = 16
_STEP_MASK = 0xFFFF
# What one slice of a sweep looks at, at the least and in buckets at most.
_SLICE_ROOMS = 512
_SLICE_BUCKETS = 64
# How long after one slice the next comes, when it is urgent.
_URGENT_S = 0.005

Keeps = Callable[[int], bool]


class Verdict(IntEnum):
    """What became of an entry."""

    # There is no space for it.
    REFUSED = 0
    # Nobody gets other messages because of it.
    KNOWN = 1
    # A gateway came to a room, or left it.
    CHANGED = 2


def key_of(app: str, room: str) -> str:
    """What a room is kept under; no name has a NUL."""
    return f"{app}\0{room}"


class Table:
    """Rooms and the gateways that have members of them."""

    def __init__(self, gateways: Gateways, *, entries_max: int, expire_s: float) -> None:
        self._gateways = gateways
        self._buckets: list[dict[str, bytes]] = [{} for _ in range(_BUCKETS)]
        self._most = entries_max
        # Of rooms that were left no more are kept: without them only what is late might err.
        self._left_max = max(entries_max // 8, 1)
        self._step_s = expire_s / _STEPS
        self._round_s = expire_s / 2
        # Entries, and those among them that say a room was left.
        self.entries = 0
        self.left = 0
        self._at = 0
        self._keeps: Keeps | None = None
        self._clean = 0
        self.due = math.inf

    @property
    def rooms(self) -> int:
        """How many rooms there are."""
        return sum(map(len, self._buckets))

    @property
    def members(self) -> int:
        """How many members are in them, once for each room."""
        return sum(gateway.members for gateway in self._gateways.by_number.values())

    @property
    def cleaning(self) -> bool:
        """Whether rooms of other partitions may still be here."""
        return self._clean > 0

    def find(self, app: str, room: str, number: int) -> list[tuple[Gateway, int]]:
        """The gateways that have members of a room, and how many each has."""
        return self._read(self._buckets[_bucket(number)].get(f"{app}\0{room}", b""))

    def find_key(self, key: str) -> list[tuple[Gateway, int]]:
        """The same, by what a room is kept under."""
        number = room_number(key.partition("\0")[2])
        return self._read(self._buckets[_bucket(number)].get(key, b""))

    def _read(self, record: bytes) -> list[tuple[Gateway, int]]:
        known = self._gateways.by_number
        return [
            (known[gateway], members)
            for gateway, _, members, _ in _ENTRY.iter_unpack(record)
            if members and gateway in known
        ]

    def put(self, gateway: Gateway, entry: Entry, now: float) -> Verdict:
        """Take an entry of a gateway that is known, unless a later one was here before."""
        bucket = self._buckets[_bucket(entry.number)]
        key = key_of(entry.app, entry.room)
        record = bucket.get(key, b"")
        members = min(max(entry.members, 0), _MEMBERS_MAX)
        new = _ENTRY.pack(
            gateway.number, self._step(now), members, min(max(entry.seq, 0), _SEQ_MAX)
        )
        at = _place(record, gateway.number)
        if at < 0:
            return self._add(bucket, key, record + new, gateway, members, now)
        _, _, before, seq = _ENTRY.unpack_from(record, at)
        if entry.seq < seq:
            return Verdict.KNOWN
        if not members and before and self.left >= self._left_max:
            self._remove(bucket, key, record[:at] + record[at + _SIZE :])
            self.entries -= 1
            gateway.entries -= 1
        else:
            bucket[key] = record[:at] + new + record[at + _SIZE :]
            self.left += (not members) - (not before)
        gateway.members += members - before
        return Verdict.CHANGED if bool(members) != bool(before) else Verdict.KNOWN

    def _add(
        self,
        bucket: dict[str, bytes],
        key: str,
        record: bytes,
        gateway: Gateway,
        members: int,
        now: float,
    ) -> Verdict:
        """Take the first entry of a gateway about a room."""
        if self.entries >= self._most or (not members and self.left >= self._left_max):
            return Verdict.REFUSED if members else Verdict.KNOWN
        bucket[key] = record
        self.entries += 1
        self.left += not members
        gateway.entries += 1
        gateway.members += members
        if self.due == math.inf:
            self.due = now + self._round_s * _SLICE_BUCKETS / _BUCKETS
        return Verdict.CHANGED if members else Verdict.KNOWN

    @staticmethod
    def _remove(bucket: dict[str, bytes], key: str, record: bytes) -> None:
        if record:
            bucket[key] = record
        else:
            del bucket[key]

    def clean(self, keeps: Keeps, now: float) -> None:
        """Take out the rooms that are not to be kept: soon, but a few at a time."""
        if self.entries:
            self._keeps, self._clean = keeps, _BUCKETS
            self.due = now

    def sweep(self, now: float) -> bool:
        """Look at a few rooms when it is due; tells whether anything was taken out."""
        if now < self.due:
            return False
        looked = swept = taken = 0
        while looked < _SLICE_ROOMS and swept < _SLICE_BUCKETS:
            looked += len(self._buckets[self._at])
            taken += self._sweep(self._buckets[self._at], now)
            swept += 1
            self._next_bucket()
        wait = _URGENT_S if self.cleaning else self._round_s * swept / _BUCKETS
        self.due = now + wait
        return taken > 0

    def _next_bucket(self) -> None:
        self._at += 1
        if self._at == _BUCKETS:
            self._at = 0
            self._gateways.rounds += 1
        if self._clean:
            self._clean -= 1
            if not self._clean:
                self._keeps = None

    def _sweep(self, bucket: dict[str, bytes], now: float) -> int:
        step, before = self._step(now), self.entries
        changed = []
        for key, record in bucket.items():
            kept = self._kept(key, record, step)
            if len(kept) < len(record):
                changed.append((key, kept))
        for key, kept in changed:
            self._remove(bucket, key, kept)
        if len(changed) > len(bucket):
            # A dict never shrinks by itself.
            self._buckets[self._at] = dict(list(bucket.items()))
        return before - self.entries

    def _kept(self, key: str, record: bytes, step: int) -> bytes:
        """What of a room is to stay."""
        wanted = self._keeps is None or self._keeps(room_number(key.partition("\0")[2]))
        kept = record
        for at in range(len(record) - _SIZE, -1, -_SIZE):
            number, seen, members, _ = _ENTRY.unpack_from(record, at)
            gateway = self._gateways.by_number.get(number)
            age = (step - seen) & _STEP_MASK
            if wanted and gateway is not None and age < (_STEPS if members else _STEPS_LEFT):
                continue
            kept = kept[:at] + kept[at + _SIZE :]
            self.entries -= 1
            self.left -= not members
            if gateway is not None:
                gateway.entries -= 1
                gateway.members -= members
        return kept

    def _step(self, now: float) -> int:
        return int(now / self._step_s) & _STEP_MASK


def _bucket(number: int) -> int:
    return (number * _SPREAD >> 20) % _BUCKETS


def _place(record: bytes, number: int) -> int:
    """Where the entry of a gateway begins, or -1."""
    wanted = _NUMBER(number)
    at = record.find(wanted)
    while at >= 0 and at % _SIZE:
        # In the midst of an entry; those before it are of others.
        at = record.find(wanted, at - at % _SIZE + _SIZE)
    return at
