"""A clock of one simulated machine: monotonic with the loop, a wall clock that may be wrong."""

from __future__ import annotations

import asyncio

# 2026-01-01T00:00:00Z: any fixed moment after the epoch of message ids.
START_MS = 1_767_225_600_000


class SimulatedClock:
    """Implements `chappe.clock.Clock` on virtual time."""

    __slots__ = ("_loop", "_rate", "_since", "_wall_ms")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, offset_ms: float = 0.0) -> None:
        self._loop = loop
        self._rate = 1.0
        self._since = loop.time()
        self._wall_ms = START_MS + self._since * 1000 + offset_ms

    def wall_ms(self) -> int:
        return int(self._wall_now())

    def wall_us(self) -> int:
        return int(self._wall_now() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def step(self, ms: float) -> None:
        """Set the wall clock forward, or back when negative, at once."""
        self._wall_ms += ms

    def skew(self, rate: float) -> None:
        """Let the wall clock run at `rate` times true time from now on; it does not jump."""
        self._wall_ms, self._since = self._wall_now(), self._loop.time()
        self._rate = rate

    def _wall_now(self) -> float:
        return self._wall_ms + (self._loop.time() - self._since) * 1000 * self._rate
