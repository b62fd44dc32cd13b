"""Dead letters: messages that could not be delivered, kept to be looked at and sent again (Q9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from chappe.errors import BadRequest, Overload, RequestError
from chappe.queues.filter import GROUP_ONLY
from chappe.queues.progress import ranges_of
from chappe.queues.record import DEAD_GROUP, DEAD_LANE, Death, Done, Stored
from chappe.queues.storage import Found

if TYPE_CHECKING:
    from chappe.queues.queue import Queue

# Read and sent again at a time.
_PAGE = 1_000


class Letters:
    """The dead letters of one queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._open)

    @property
    def _open(self) -> set[int]:
        return self._queue.state.groups[DEAD_GROUP].at(DEAD_LANE).open

    def bury(self, message: Stored, group: str, attempts: int, reason: str) -> None:
        """Keep a message that died; the oldest makes room for it when there are too many."""
        queue = self._queue
        death = Death(reason, group, attempts, queue.now_ms, message.lane, message.seq)
        letter = msgspec.structs.replace(
            message, death=death, producer=None, producer_seq=None, due_ms=None
        )
        queue.place(letter, DEAD_LANE)
        queue.after(lambda: queue.outlet.died(queue.address, letter))
        limits = queue.limits
        room = limits.volatile_dead_max if queue.state.options.volatile else limits.dead_max
        if len(self._open) > room:
            self._done([min(self._open)])
            queue.outlet.dropped("dead_letters", 1)

    def replay(
        self,
        ids: list[int] | None,
        told: Callable[[int], None],
        refused: Callable[[RequestError], None],
    ) -> None:
        """Send dead letters again to the groups they died in, in order; tells how many."""
        self._each(ids, self._again, told, refused)

    def purge(
        self,
        ids: list[int] | None,
        told: Callable[[int], None],
        refused: Callable[[RequestError], None],
    ) -> None:
        """Forget dead letters; tells how many."""
        if ids is None:
            seqs = sorted(self._open)
            self._queue.storage.check(freeing=True)
            self._done(seqs)
            self._record_purged(None, len(seqs))
            self._queue.after(lambda: told(len(seqs)), refused)
        else:
            self._each(ids, lambda letter: self._record_purged(letter.id), told, refused)

    def _record_purged(self, message: int | None, count: int = 1) -> None:
        queue, app = self._queue, self._queue.state.app
        queue.after(lambda: queue.recorder.purged(app, queue.address, message, count))

    def _again(self, letter: Stored) -> None:
        assert letter.death is not None
        group, consumers = letter.death.group, letter.consumers
        known = self._queue.state.groups.get(group)
        # A group that was given up meanwhile must not be waited for, one that was named is.
        if known is not None and not known.expected:
            consumers = [GROUP_ONLY + group]
        elif known is not None or group in (consumers or ()):
            consumers = [group]
        self._queue.make_room(len(letter.payload) + letter.extra)
        self._queue.deliver(
            msgspec.structs.replace(
                letter, death=None, consumers=consumers, ts_ms=self._queue.now_ms
            )
        )
        queue, app = self._queue, self._queue.state.app
        queue.after(lambda: queue.recorder.replayed(app, queue.address, letter.id))

    def _each(
        self,
        ids: list[int] | None,
        do: Callable[[Stored], None],
        told: Callable[[int], None],
        refused: Callable[[RequestError], None],
    ) -> None:
        """Do something with each of the letters, or those with these ids, and let go of them."""
        queue = self._queue
        queue.storage.check()
        wanted = None if ids is None else set(ids)
        last = min(max(self._open, default=0), queue.committed[DEAD_LANE])
        count = 0

        def got(found: Found) -> None:
            nonlocal count
            if queue.closed or found.error is not None:
                refused(Overload("the dead letters cannot be read now"))
                return
            here = [one for one in found.messages if one.seq in self._open and one.seq <= last]
            chosen = [one for one in here if wanted is None or one.id in wanted]
            seqs: list[int] = []
            full: RequestError | None = None
            for letter in chosen:
                try:
                    do(letter)
                except RequestError as raised:
                    full = raised
                    break
                seqs.append(letter.seq)
                if wanted is not None:
                    wanted.discard(letter.id)
            self._done(seqs)
            count += len(seqs)
            if full is not None:
                refusal = full
                queue.after(lambda: refused(refusal), refused)
            elif found.upto < last and (wanted is None or wanted):
                read(found.upto + 1)
            elif wanted:
                some = ", ".join(str(one) for one in sorted(wanted)[:5])
                error = BadRequest(
                    f"message: {some}: not among the dead letters of {queue.address}"
                )
                queue.after(lambda: refused(error), refused)
            else:
                queue.after(lambda: told(count), refused)

        def read(seq: int) -> None:
            queue.storage.read(queue.state, DEAD_LANE, seq, _PAGE, got)

        read(min(self._open, default=1))

    def _done(self, seqs: list[int]) -> None:
        if seqs:
            queue = self._queue
            queue.add(Done(queue.state.number, DEAD_LANE, DEAD_GROUP, ranges_of(seqs)))
            queue.after(lambda: queue.storage.discard(queue.state, DEAD_LANE, seqs))
