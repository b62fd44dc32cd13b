"""Time, passed in: a wall clock that may step, and a monotonic one that does not."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The two clocks a node lives by."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump either way."""
        ...

    def wall_us(self) -> int:
        """The same in microseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never runs backwards."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wall_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()
