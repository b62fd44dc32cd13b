"""Deadlines: what must happen at a time unless something else happens first.

Nearly all of them are cancelled: an item is acknowledged, a request answered. A cancelled entry
stays in the heap until it comes up or until half of the heap is such; so each costs O(log n), and
the heap is never twice as large as what it is for. One alarm on the loop serves them all.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Protocol

# Below this many entries a sweep is not worth its while.
_SWEEP_MIN = 64
# As many as lapse in one turn of the loop, so that nobody else waits for thousands of them.
LAPSES_MAX = 1_000


class Lapsing(Protocol):
    """Whatever has a deadline."""

    def lapse(self, now: float) -> None:
        """Its time is over."""
        ...


class Deadlines:
    """Things by the time at which they lapse."""

    __slots__ = ("_cancelled", "_heap", "_serial")

    def __init__(self) -> None:
        # Lists, not tuples: to cancel is to take the thing out of its entry.
        self._heap: list[list[Any]] = []
        self._serial = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def add(self, when: float, thing: Lapsing) -> list[Any]:
        """Let a thing lapse at that time; returns what cancels it."""
        self._serial += 1
        entry = [when, self._serial, thing]
        heappush(self._heap, entry)
        return entry

    def cancel(self, entry: list[Any]) -> None:
        """Let it not lapse; nothing happens if it has."""
        if entry[2] is None:
            return
        entry[2] = None
        self._cancelled += 1
        if self._cancelled > _SWEEP_MIN and self._cancelled * 2 > len(self._heap):
            self._heap = [kept for kept in self._heap if kept[2] is not None]
            heapify(self._heap)
            self._cancelled = 0

    def next(self) -> float | None:
        """The earliest time at which something lapses."""
        heap = self._heap
        while heap and heap[0][2] is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def lapse(self, now: float) -> None:
        """Let things lapse whose time has come, in the order of their times, a number at once."""
        for _ in range(LAPSES_MAX):
            when = self.next()
            if when is None or when > now:
                return
            entry = heappop(self._heap)
            thing, entry[2] = entry[2], None
            thing.lapse(now)


class Handle(Protocol):
    """A call that a timer has been asked for."""

    def cancel(self) -> None:
        """Do not make the call."""
        ...


class Timer(Protocol):
    """What an alarm needs of an event loop."""

    def time(self) -> float:
        """The loop's own time, in seconds."""
        ...

    def call_at(self, when: float, callback: Any, *args: Any) -> Handle:
        """Call back at that time."""
        ...


class Alarm:
    """Wakes the loop for the earliest deadline."""

    __slots__ = ("_deadlines", "_handle", "_timer", "_when")

    def __init__(self, timer: Timer, deadlines: Deadlines) -> None:
        self._timer = timer
        self._deadlines = deadlines
        self._handle: Handle | None = None
        self._when = 0.0

    def set(self) -> None:
        """See to it that it rings in time, after deadlines were added."""
        when = self._deadlines.next()
        # One that rings too early for what is left finds out then, once, and is set anew.
        if when is None or (self._handle is not None and self._when <= when):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._when = when
        self._handle = self._timer.call_at(when, self._ring)

    def stop(self) -> None:
        """Ring no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        # The loop rings up to its clock's resolution early: by its own time it is due.
        try:
            self._deadlines.lapse(max(self._timer.time(), self._when))
        finally:
            self.set()
