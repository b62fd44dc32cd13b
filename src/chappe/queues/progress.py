"""Progress: how far a group is in each lane, told by a mark and what is open below it.

    seq  1  2  3  4  5  6  7  8  9 10 11 12        mark = 9, open = {3, 6, 8, 9}
         .  .  o  .  .  o  .  o  o |                . done, o open, above the mark: not begun

Marks move ahead of what is handed out, in blocks, so that a crash may count one attempt too many
and never one too few. Of what is open the number of attempts is 1, unless it is written down.
"""

from __future__ import annotations


class Progress:
    """How far one group is in one lane."""

    __slots__ = ("attempts", "mark", "open")

    def __init__(self, mark: int = 0) -> None:
        self.mark = mark
        self.open: set[int] = set()
        self.attempts: dict[int, int] = {}

    @property
    def low(self) -> int:
        """All up to here is done."""
        return min(self.open) - 1 if self.open else self.mark

    def lag(self, head: int) -> int:
        """How many messages of a lane it is not done with."""
        return head - self.mark + len(self.open)

    def is_done(self, seq: int) -> bool:
        """Whether it is done with a message."""
        return seq <= self.mark and seq not in self.open

    def advance(self, mark: int) -> None:
        """All up to there may be handed out from now on."""
        if mark > self.mark:
            self.open.update(range(self.mark + 1, mark + 1))
            self.mark = mark

    def finish(self, first: int, last: int) -> None:
        """It is done with these."""
        if last > self.mark:
            self.open.update(range(self.mark + 1, first))
            self.mark = last
        if first == last:
            self.open.discard(first)
            self.attempts.pop(first, None)
            return
        done = range(first, last + 1)
        self.open.difference_update(done)
        for seq in [seq for seq in self.attempts if first <= seq <= last]:
            del self.attempts[seq]


class GroupState:
    """A group: who belongs to it, what it wants, and how far it is in each lane."""

    __slots__ = (
        "bytes",
        "consumers",
        "expected",
        "headers",
        "name",
        "progress",
        "since_ms",
        "tags",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.tags: list[str] | None = None
        self.headers: dict[str, str] | None = None
        self.consumers: dict[str, None] = {}
        self.since_ms = 0
        self.expected = False
        # Of what it is not done with.
        self.bytes = 0
        self.progress: dict[int, Progress] = {}

    def at(self, lane: int) -> Progress:
        """How far it is in a lane."""
        progress = self.progress.get(lane)
        if progress is None:
            progress = self.progress[lane] = Progress()
        return progress


def ranges_of(seqs: list[int]) -> list[int]:
    """Ascending numbers as pairs of first and last."""
    ranges: list[int] = []
    for seq in seqs:
        if ranges and seq == ranges[-1] + 1:
            ranges[-1] = seq
        else:
            ranges += [seq, seq]
    return ranges
