"""Ids: 64-bit snowflakes for messages, and the prefixed ids of push (P5).

A snowflake, from the top bit down:

    +---+-----------------------------+-----------+--------------+
    | 0 | milliseconds since EPOCH_MS | node      | sequence     |
    | 1 | 41 bits (until 2094)        | 10 bits   | 12 bits      |
    +---+-----------------------------+-----------+--------------+

Two things must hold whatever the clock does: an id is never given twice, and each is larger than
the one before. Within a process a generator never goes below the last time it used. Across restarts
a *floor* carries that promise: the time up to which ids were reserved is written down before any
id of that time is given, and the next process starts above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from chappe.errors import Overload

EPOCH_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
TIME_BITS = 41
NODE_BITS = 10
SEQUENCE_BITS = 12
NODE_MAX = (1 << NODE_BITS) - 1
TIME_MAX = (1 << TIME_BITS) - 1
RESERVE_MS = 60_000

_TIME_SHIFT = NODE_BITS + SEQUENCE_BITS
_SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_PREFIXED = re.compile("[cpmj][0-9a-z]{2}[0-9a-f]{5}([0-9a-f]{8})")


class Floor(Protocol):
    """Where a generator writes down how far it has reserved time."""

    def load(self) -> int:
        """The time reserved by the last process, or 0."""
        ...

    def store(self, reserved_until: int) -> None:
        """Make a reservation durable before returning."""
        ...


class VolatileFloor:
    """A floor that is forgotten with the process: for hubs inside another program."""

    __slots__ = ()

    def load(self) -> int:
        return 0

    def store(self, reserved_until: int) -> None:
        return None


class _Reservation:
    """A logical time that only grows, in units of its caller, above what was ever reserved."""

    __slots__ = ("_ahead", "_floor", "_renew_at", "_until", "now")

    def __init__(self, floor: Floor, ahead: int) -> None:
        self._floor = floor
        self._ahead = ahead
        self._renew_at = self._until = self.now = floor.load()

    def advance(self, to: int) -> int:
        """Move on to a later time; raises Overload, and stays, when that is not written down."""
        if to > self.now:
            if to >= self._renew_at:
                self._renew(to)
            if to >= self._until:
                raise Overload("ids: how far they go cannot be written down now")
            self.now = to
        return self.now

    def _renew(self, to: int) -> None:
        """Write down a later end; when that fails, try again a sixtieth of the time later."""
        try:
            self._floor.store(to + self._ahead)
        except OSError:
            self._renew_at = to + max(1, self._ahead // 60)
            return
        self._until = to + self._ahead
        # Half the time is left to go on with should the next writing fail for a while.
        self._renew_at = to + self._ahead // 2

    def borrow(self) -> bool:
        """Move on by one within what is written down already; False when nothing is left of it."""
        if self.now + 1 < self._until:
            self.now += 1
            return True
        return False


class Snowflake:
    """Gives message ids; not thread-safe, one per node.

    Writing down a reservation blocks for one flush of a small file, twice a minute. While that
    fails, ids come from what is reserved: millions, before giving one raises Overload.
    """

    __slots__ = ("_node", "_reservation", "_wall_ms", "last")

    def __init__(self, node: int, wall_ms: Callable[[], int], floor: Floor | None = None) -> None:
        if not 0 <= node <= NODE_MAX:
            raise ValueError(f"node: {node} is not between 0 and {NODE_MAX}")
        self._node = node << SEQUENCE_BITS
        self._wall_ms = wall_ms
        self._reservation = _Reservation(floor or VolatileFloor(), RESERVE_MS)
        self.last = 0
        # One past the floor: the last process may have given every id of that millisecond.
        self._move_to(max(self._reservation.now + 1, wall_ms() - EPOCH_MS))

    @property
    def node(self) -> int:
        """The node whose ids it gives."""
        return self._node >> SEQUENCE_BITS

    def renumber(self, node: int) -> None:
        """Give ids of another node from now on; larger ones than before all the same."""
        if not 0 <= node <= NODE_MAX:
            raise ValueError(f"node: {node} is not between 0 and {NODE_MAX}")
        self._node = node << SEQUENCE_BITS
        self._move_to(max(self._wall_ms() - EPOCH_MS, self._reservation.now + 1))

    def next(self) -> int:
        """Give the next id; when a millisecond's ids are used up, borrow from the one after."""
        value = self.last + 1
        if not value & _SEQUENCE_MASK:
            self._move_on()
            value = self.last + 1
        self.last = value
        return value

    def tick(self) -> int:
        """Look at the clock once for all ids given until the next tick.

        Returns the wall time in milliseconds, as the clock tells it.
        """
        return self.tick_at(self._wall_ms())

    def tick_at(self, now_ms: int) -> int:
        """Give ids of that time until the next tick: somebody has looked at the clock."""
        if now_ms - EPOCH_MS > self._reservation.now:
            # Without a disk or a descriptor to write with, ids go on from where they are.
            with suppress(Overload):
                self._move_to(now_ms - EPOCH_MS)
        return now_ms

    def _move_on(self) -> None:
        """Leave a millisecond whose ids are used up; raises Overload when no time is left that
        was written down."""
        try:
            self._move_to(max(self._wall_ms() - EPOCH_MS, self._reservation.now + 1))
        except Overload:
            if not self._reservation.borrow():
                raise
            self._move_to(self._reservation.now)

    def _move_to(self, time_ms: int) -> None:
        self.last = (self._reservation.advance(time_ms) << _TIME_SHIFT) | self._node


def snowflake_ms(value: int) -> int:
    """The wall time at which a snowflake was given, in milliseconds since 1970."""
    return (value >> _TIME_SHIFT) + EPOCH_MS


class PrefixedIds:
    """Gives ids such as `m0a0000165f2c3d4`: prefix, server, sequence, seconds (P5)."""

    __slots__ = ("_reservation", "_sequence", "_server", "_wall_ms")

    PREFIXES = "cpmj"
    SERVER_MAX = 36 * 36 - 1
    SEQUENCE_MAX = 0xFFFFF

    def __init__(self, server: int, wall_ms: Callable[[], int], floor: Floor | None = None) -> None:
        if not 0 <= server <= self.SERVER_MAX:
            raise ValueError(f"server: {server} is not between 0 and {self.SERVER_MAX}")
        self._server = _BASE36[server // 36] + _BASE36[server % 36]
        self._wall_ms = wall_ms
        self._reservation = _Reservation(floor or VolatileFloor(), RESERVE_MS // 1000)
        self._reservation.advance(self._reservation.now + 1)
        self._sequence = 0

    def next(self, prefix: str) -> str:
        """Give an id with one of the prefixes c(lient), p(rivate), m(essage), j(ob)."""
        if len(prefix) != 1 or prefix not in self.PREFIXES:
            raise ValueError(f"prefix: {prefix!r} is not one of {', '.join(self.PREFIXES)}")
        before = self._reservation.now
        second = self._reservation.advance(self._wall_ms() // 1000)
        self._sequence = 0 if second != before else self._sequence + 1
        if self._sequence > self.SEQUENCE_MAX:
            second = self._reservation.advance(second + 1)
            self._sequence = 0
        return f"{prefix}{self._server}{self._sequence:05x}{second:08x}"


def prefixed_ms(value: str) -> int | None:
    """The wall time, to the second, at which a prefixed id was given; None if it is none."""
    whole = _PREFIXED.fullmatch(value)
    return None if whole is None else int(whole[1], 16) * 1000
