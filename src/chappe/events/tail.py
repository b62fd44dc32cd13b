"""The tail of an event log: what a life of a node said last of the journals of its queues.

That is up to where they were told of, and what was told since: so the next life knows what it has
to tell instead of the one before (queues/untold.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from chappe.events.record import (
    FOLLOWING,
    GROUP,
    MESSAGE,
    Marks,
    Run,
    Telling,
    decode_chunks,
)

KINDS = frozenset({"stored", "acked", "died", "cancelled", "replayed", "purged"})
# A life says so a few times a second. What lies further behind its last word was not to be told: a
# node that is alone and does not record writes on in the same epoch.
_LATE_MS = 60_000


class Tail:
    """What is known from the end of a log."""

    def __init__(self) -> None:
        self.marks: Marks | None = None
        # By broker, in which epoch its journal was written then.
        self.epochs: dict[str, int] = {}
        # What was told since.
        self.heard: set[Telling] = set()

    @property
    def until_ms(self) -> int:
        """What happened later was not that life's to tell."""
        return 0 if self.marks is None else self.marks[0] // 1000 + _LATE_MS

    def position(self, broker: str) -> int | None:
        """Up to where a broker's journal was told of; None if nothing was said of it."""
        return None if self.marks is None else self.marks[1].get(broker)

    def take(self, array: bytes | memoryview) -> None:
        """Take chunks of a log; what cannot be read says nothing."""
        try:
            chunks = decode_chunks(array)
        except msgspec.MsgspecError:
            return
        for chunk in chunks:
            if chunk.marks is not None:
                self.marks, self.epochs = chunk.marks, chunk.epochs
                self.heard = set(chunk.told)
            else:
                self.heard.update(tellings(chunk.runs))


def tellings(runs: Iterable[Run]) -> Iterator[Telling]:
    """What these tell of journals of queues."""
    for kind, count, shared, each in runs:
        if kind not in KINDS:
            continue
        group = shared.get(GROUP, "")
        if FOLLOWING in shared:
            first = shared[FOLLOWING]
            ids: Iterable[int] = range(first, first + count)
        else:
            ids = each.get(MESSAGE) or [shared.get(MESSAGE)]
        yield from ((kind, one, group) for one in ids if one is not None)
