"""Upkeep: a stream keeps its tables small by itself, as no other command may work on them.

It makes the hours that it takes something of anew with every batch, and what was replaced stays for
whoever reads it: a stream of days would fill any disk. So between two batches, now and then, small
files are merged and what was replaced a while ago goes. It takes a small part of the time, however
much there is to look at.
"""

from __future__ import annotations

from pathlib import Path

from chappe.clock import Clock, SystemClock
from chappe.pipeline.keeping import Kept, compact

# Often enough that a stream's own copies are most of what there is, seldom enough to cost little.
EVERY_S = 600.0
# Readers may use what was replaced this long ago: a day of it would be thousands of copies.
READERS_H = 1
# It is at rest for so many times as long as it took.
_REST = 19


class Upkeep:
    """Sees to the tables of a stream between its batches; can be sent to a server of Connect."""

    def __init__(
        self,
        tables: Path,
        *,
        every_s: float = EVERY_S,
        readers_h: int = READERS_H,
        clock: Clock | None = None,
    ) -> None:
        self._tables = tables
        self._every_s = every_s
        self._readers_h = readers_h
        self._clock = clock or SystemClock()
        # Not known before the first batch: that may be in another process than this.
        self._due: float | None = None

    def maybe_keep(self) -> Kept | None:
        """Keep the tables small if it is time for that; no run may be unfinished."""
        begun = self._clock.monotonic()
        if self._due is None:
            self._due = begun + self._every_s
        if begun < self._due:
            return None
        kept = compact(self._tables, readers_h=self._readers_h)
        ended = self._clock.monotonic()
        self._due = ended + max(self._every_s, _REST * (ended - begun))
        return kept
