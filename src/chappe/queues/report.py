"""The report of a group: what the next commit says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chappe.queues.progress import ranges_of
from chappe.queues.record import Done, Tried

if TYPE_CHECKING:
    from chappe.queues.group import Group

# Marks move ahead in blocks of so many.
_MARK_BLOCK = 1_000


class Report:
    """What a group is done with since the last commit, and how far its marks have to be."""

    __slots__ = ("_group", "_marks", "bytes", "done")

    def __init__(self, group: Group) -> None:
        self._group = group
        # By lane; and the bytes of them all.
        self.done: dict[int, list[int]] = {}
        self.bytes = 0
        self._marks: dict[int, int] = {}

    def add(self, lane: int, seq: int, size: int) -> None:
        """The group is done with a message, or it was never for it."""
        self.done.setdefault(lane, []).append(seq)
        self.bytes += size
        self._group.queue.touch(self._group)

    def lose(self, lane: int, seqs: list[int]) -> None:
        """Messages are not there any more: done with by the others, or damaged."""
        if seqs:
            self.done.setdefault(lane, []).extend(seqs)
            self._group.queue.touch(self._group)

    def want_mark(self, lane: int, seq: int) -> None:
        """A lane must not be read on before its mark is so far."""
        self._marks[lane] = seq
        self._group.queue.touch(self._group)

    def records(self) -> list[Done | Tried]:
        """What the next commit has to say of this group."""
        queue = self._group.queue
        number, name = queue.state.number, self._group.state.name
        said: list[Done | Tried] = []
        ahead = _MARK_BLOCK if queue.storage.marks_ahead else 0
        for lane, mark in self._marks.items():
            said.append(Tried(number, lane, name, mark + ahead))
        self._marks.clear()
        size, self.bytes = self.bytes, 0
        for lane, seqs in self.done.items():
            seqs.sort()
            said.append(Done(number, lane, name, ranges_of(seqs), size))
            size = 0
        self.done = {}
        return said
