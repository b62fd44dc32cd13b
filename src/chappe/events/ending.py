"""The ending of a log: whether the last life in it ended in order, and when it was last heard of.

A life that ends in order says so. One that was killed does not: whoever finds its log, and nobody
who writes it, says it instead, once.
"""

from __future__ import annotations

import msgspec

from chappe.events.record import AT, Run, count_events, decode_chunks, encode_chunk
from chappe.events.schema import VERSION

GONE = "node_gone"
_LAST = frozenset({"node_stopped", GONE})


class Ending:
    """What is known of the last life from the end of a log."""

    def __init__(self) -> None:
        self._boot = 0
        self._serial = 1
        # When it last said that all before is written down; when it began, if it never did.
        self._alive_at = 0
        self._over = False

    def take(self, array: bytes | memoryview) -> None:
        """Take chunks of a log; what cannot be read says nothing."""
        try:
            chunks = decode_chunks(array)
        except msgspec.MsgspecError:
            return
        for chunk in chunks:
            if chunk.boot < self._boot:
                continue  # told for a life before, by the one after it
            if chunk.boot > self._boot:
                self._boot = self._alive_at = chunk.boot
                self._serial, self._over = 1, False
            self._serial = max(self._serial, chunk.serial + count_events(chunk))
            if chunk.marks is not None:
                # It begins a segment with what it said last, or with what the one before it did.
                self._alive_at = max(self._alive_at, chunk.marks[0])
            for kind, _count, shared, _each in chunk.runs:
                self._over = self._over or kind in _LAST
                if kind == "node_alive":
                    self._alive_at = max(self._alive_at, shared[AT])

    def word(self, node: str) -> bytes | None:
        """A record that says that this life is gone, for the log of that node; None if one does,
        or if it never told anything."""
        if self._over or self._serial == 1:
            return None
        run: Run = (GONE, 1, {AT: self._alive_at}, {})
        return encode_chunk((VERSION, node, self._boot, self._serial, [run]))
