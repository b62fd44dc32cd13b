"""The lives of a node, as far as they are known from the end of its log.

A life that ends in order says so. One that was killed does not: whoever finds its log, and nobody
who writes it, says it instead, once.

What it had on its slate, and the log has not, is brought there by whoever comes next: all of it in
one batch, of which the last record says that it is all. So it comes once, though whoever brings it
is killed before the slate is gone. Each life begins a segment, and with what is known of those
before it that something is still to be told of: of others nothing is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from chappe.events.record import (
    AT,
    Chunk,
    Life,
    Run,
    count_events,
    decode_chunks,
    encode_chunk,
)
from chappe.events.schema import VERSION
from chappe.events.slate import read_slate

GONE = "node_gone"
_LAST = frozenset({"node_stopped", GONE})


class Left(NamedTuple):
    """What a slate has and the log has not."""

    # For the log: all in one batch.
    records: list[bytes]
    # What is known of that life as soon as they are there.
    life: Life


class Lives:
    """What a log says of each life."""

    def __init__(self) -> None:
        self._known: dict[int, Life] = {}
        self._over: set[int] = set()

    def take(self, array: bytes | memoryview) -> None:
        """Take chunks of a log; what cannot be read says nothing."""
        try:
            chunks = decode_chunks(array)
        except msgspec.MsgspecError:
            return
        for chunk in chunks:
            self._take(chunk)

    def _take(self, chunk: Chunk) -> None:
        life = self._known.get(chunk.boot)
        if life is None:
            life = self._known[chunk.boot] = self.of(chunk.boot)
        life.serial = max(life.serial, chunk.serial + count_events(chunk))
        for kind, _count, shared, _each in chunk.runs:
            if kind in _LAST:
                self._over.add(chunk.boot)
            elif kind == "node_alive":
                life.alive_at = max(life.alive_at, shared[AT])
        if chunk.marks is not None and not chunk.lives:
            life.alive_at = max(life.alive_at, chunk.marks[0])
        for one in chunk.lives:
            self.add(one)

    def add(self, life: Life) -> None:
        """Know so much more of a life."""
        known = self._known.setdefault(life.boot, life)
        known.serial = max(known.serial, life.serial)
        known.alive_at = max(known.alive_at, life.alive_at)
        known.home = known.home or life.home

    def of(self, boot: int) -> Life:
        """What is known of a life."""
        # Those that came later name the ones that lack something: this one is not among them.
        return self._known.get(boot) or Life(boot, 1, boot, home=boot < self.newest)

    @property
    def newest(self) -> int:
        """The last one, whether it told anything or not; 0 if there was none."""
        return max(self._known, default=0)

    @property
    def last(self) -> Life | None:
        """The last one that told anything."""
        told = (one for one in self._known.values() if one.serial > 1)
        return max(told, key=lambda one: one.boot, default=None)

    def unfinished(self, boots: Iterable[int]) -> list[Life]:
        """Those that somebody may ask for: these, which have something on their slates, and the
        last one unless it is over."""
        last = self.last
        found = {boot: self.of(boot) for boot in boots}
        if last is not None and last.boot not in self._over:
            found[last.boot] = last
        return list(found.values())

    def left(self, memory: bytes) -> Left | None:
        """What a slate has and the log has not; None if that is nothing."""
        chunks = read_slate(memory)
        if not chunks:
            return None
        life = self.of(chunks[0].boot)
        missing = [chunk for chunk in chunks if chunk.serial >= life.serial]
        if not missing or life.home or life.boot in self._over:
            return None
        found, serial = [], life.serial
        for chunk in missing:
            found.append(msgspec.structs.replace(chunk, serial=serial))
            serial += count_events(chunk)
        after = msgspec.structs.replace(life, serial=serial, home=True)
        found[-1] = msgspec.structs.replace(found[-1], lives=[after])
        return Left([encode_chunk(chunk) for chunk in found], after)

    def word(self, node: str) -> bytes | None:
        """A record that says that the last life is gone, for the log of that node; None if one
        does, or if none ever told anything."""
        last = self.last
        if last is None or last.boot in self._over:
            return None
        run: Run = (GONE, 1, {AT: last.alive_at}, {})
        return encode_chunk((VERSION, node, last.boot, last.serial, [run]))
