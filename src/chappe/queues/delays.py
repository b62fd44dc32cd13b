"""Delays: messages that the broker holds until they are due (Q2).

They lie in a lane of their own, durable like all others. When one is due it is given its place in
an ordinary lane, and leaves this one, in one commit. Until then it can be taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

import msgspec

from chappe.errors import Overload, RequestError, Unreachable
from chappe.queues.record import DELAY_GROUP, DELAY_LANE, Done, Stored
from chappe.queues.storage import Found

if TYPE_CHECKING:
    from chappe.queues.queue import Queue

# The wall clock may step: nobody sleeps longer than this without looking at it.
_SLEEP_MS = 60_000
# How long one that could not be read is left alone.
_AGAIN_MS = 1_000
# Below this many that were taken back a sweep is not worth its while.
_SWEEP_MIN = 64
# As many as become due in one turn.
_PAGE = 1_000


class Delays:
    """The delayed messages of one queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._heap = [(due_ms, seq) for seq, (due_ms, _) in queue.state.delayed.items()]
        heapify(self._heap)
        # Those that are being read to be delivered, and cannot be taken back any more.
        self._leaving: set[int] = set()
        self._alarm: list[Any] | None = None
        self._set()

    def check_room(self) -> None:
        """Raise Overload when too many are held."""
        held = len(self._queue.state.delayed)
        if held >= self._queue.limits.delayed_max:
            raise Overload(f"{self._queue.address} holds {held} delayed messages already")

    def add(self, message: Stored) -> None:
        """A delayed message is durable: wake in time for it."""
        heappush(self._heap, (message.due_ms or 0, message.seq))
        self._set()

    def cancel(
        self, message: int, told: Callable[[], None], refused: Callable[[RequestError], None]
    ) -> None:
        """Take a message back; raises Unreachable for one that is not held any more."""
        seq = self._queue.state.delayed_seqs.get(message)
        if seq is None or seq in self._leaving:
            raise Unreachable(
                f"message: {message} is not held by {self._queue.address}: it was delivered, taken "
                "back, or never delayed"
            )
        self._queue.storage.check(freeing=True)
        self._done(seq)
        queue = self._queue
        queue.after(lambda: queue.recorder.cancelled(queue.state.app, queue.address, message))
        queue.after(told, refused)
        self._sweep()

    def _sweep(self) -> None:
        """Keep not much more than what is held, however much is taken back."""
        delayed = self._queue.state.delayed
        if len(self._heap) > 2 * len(delayed) + _SWEEP_MIN:
            self._heap = [entry for entry in self._heap if entry[1] in delayed]
            heapify(self._heap)
            self._set()

    def lapse(self, now: float) -> None:
        """Something may be due."""
        self._alarm = None
        now_ms = self._queue.now_ms
        delayed = self._queue.state.delayed
        due: list[int] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) < _PAGE:
            _, seq = heappop(self._heap)
            if seq in delayed:
                due.append(seq)
        self._leaving.update(due)
        for seq in due:
            self._queue.storage.read(self._queue.state, DELAY_LANE, seq, 1, self._release(seq))
        self._set()

    def _release(self, seq: int) -> Callable[[Found], None]:
        def got(found: Found) -> None:
            queue = self._queue
            if queue.closed or seq not in queue.state.delayed:
                return
            self._leaving.discard(seq)
            if found.error is not None or found.upto < seq:
                if found.error is not None:
                    queue.unreadable(found.error)
                self._later(seq)
                return
            try:
                for message in found.messages:
                    if message.seq == seq:
                        queue.check_storage(len(message.payload) + message.extra)
                        self._deliver(message)
            except Overload:  # the disk is full, or too many wait for consumers that never came
                self._later(seq)
                return
            self._done(seq)

        return got

    def _deliver(self, message: Stored) -> None:
        """Let a message be as one that is sent now: that is when others begin to wait for it."""
        queue = self._queue
        queue.deliver(
            msgspec.structs.replace(message, due_ms=None, producer=None, ts_ms=queue.now_ms)
        )

    def _later(self, seq: int) -> None:
        heappush(self._heap, (self._queue.now_ms + _AGAIN_MS, seq))
        self._set()

    def _done(self, seq: int) -> None:
        queue = self._queue
        queue.add(Done(queue.state.number, DELAY_LANE, DELAY_GROUP, [seq, seq]))
        queue.after(lambda: queue.storage.discard(queue.state, DELAY_LANE, [seq]))

    def _set(self) -> None:
        """Wake for the earliest."""
        deadlines = self._queue.loans.deadlines
        if self._alarm is not None:
            deadlines.cancel(self._alarm)
            self._alarm = None
        if self._heap:
            wait_ms = max(0, min(self._heap[0][0] - self._queue.now_ms, _SLEEP_MS))
            self._alarm = deadlines.add(self._queue.keeper.now + wait_ms / 1000, self)

    def close(self) -> None:
        """Wake no more."""
        if self._alarm is not None:
            self._queue.loans.deadlines.cancel(self._alarm)
            self._alarm = None
