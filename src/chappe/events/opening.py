"""The opening of a segment: what a start asks for, so that it need not read more than the last one.

That is up to where the journals of queues were told of, by this life or by one before it, what was
told since, and what is known of lives that something is still to be told of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from chappe.events.record import Life, Marks, Run, Telling, encode_chunk
from chappe.events.schema import VERSION
from chappe.events.tail import KINDS, Tail, tellings

log = structlog.get_logger()

# So much of what was told since is kept: more than one turn can bring to the log, as what waits to
# be written is bounded, and far more than an interval does. What is not kept may be told again.
TOLD_MAX = 65_536
# What earlier lives told since is said once more among events if it is no more than that.
_AGAIN_MAX = 4_096
# Half of what a batch of the log may have: however long names are, a life can begin a segment.
BYTES_MAX = 2 * 1024 * 1024


class Word(NamedTuple):
    """What a chunk says beside its events."""

    marks: Marks | None
    told: Collection[Telling] = ()
    lives: Sequence[Life] = ()
    epochs: Mapping[str, int] = {}


def encode_opening(node: str, life: Life, word: Word) -> bytes:
    """What a segment begins with that this life writes, or somebody in its place."""
    told, lives = list(word.told), [life, *word.lives]
    head = (VERSION, node, life.boot, life.serial)
    while True:
        record = encode_chunk((*head, (), word.marks, told, lives, word.epochs))
        if len(record) <= BYTES_MAX or not told:
            break
        told = told[: len(told) * BYTES_MAX // len(record)]
    if len(told) < len(word.told):
        log.warning("events.told_much", told=len(word.told), kept=len(told))
    return record


class Said:
    """What was said last of the journals of queues, and what was told since."""

    def __init__(self) -> None:
        self.marks: Marks | None = None
        self.epochs: Mapping[str, int] = {}
        # What earlier lives told since.
        self.before: Collection[Telling] = ()
        self._since: list[Run] = []
        self._count = 0

    def resume(self, tail: Tail) -> None:
        """Until this life says more, what the one before said holds."""
        self.marks, self.epochs, self.before = tail.marks, tail.epochs, tail.heard

    def mark(self, word: Word) -> None:
        """The log has that word."""
        self.marks, self.epochs, self.before = word.marks, word.epochs, word.told
        self._since, self._count = [], 0

    def add(self, runs: Iterable[Run]) -> None:
        """The log has these, and no word with them."""
        if self.marks is None:
            # The first word will be of all that was before.
            return
        for run in runs:
            if run[0] in KINDS and self._count + run[1] <= TOLD_MAX:
                self._since.append(run)
                self._count += run[1]

    def further(self, word: Word, life: Life) -> Word | None:
        """What this life has to say when all is told up to what a word marks; None if that is
        nothing, or too much."""
        if self.marks is None or word.marks is None:
            return None
        (time, before), (_now, positions) = self.marks, word.marks
        if before.keys() <= positions.keys():
            return word
        if len(self.before) > _AGAIN_MAX:
            return None
        # Of the other brokers nothing is known but what a life before said, and when that was.
        epochs = {**self.epochs, **word.epochs}
        return Word((time, {**before, **positions}), self.before, [life], epochs)

    def word(self, lives: Sequence[Life]) -> Word:
        """All of it."""
        told = [*self.before, *tellings(self._since)]
        return Word(self.marks, told, lives, self.epochs)
