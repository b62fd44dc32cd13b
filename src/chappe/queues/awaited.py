"""Messages for consumers that never came: they wait, blocking nobody, and die in time (Q6)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from chappe.errors import Overload
from chappe.queues.filter import GROUP_ONLY
from chappe.queues.progress import GroupState
from chappe.queues.record import Done, Registered, Stored
from chappe.queues.storage import Found

if TYPE_CHECKING:
    from chappe.queues.queue import Queue

# The wall clock may step: nobody sleeps longer than this without looking at it.
_SLEEP_MS = 60_000
# How long one that could not be read is left alone.
_AGAIN_MS = 1_000


class Awaited:
    """What waits for groups that were named and have not registered."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._heap: list[tuple[int, str, int, int]] = []
        self._alarm: list[Any] | None = None
        for group in queue.state.readers():
            if group.expected:
                self._recall(group)

    def _recall(self, group: GroupState) -> None:
        """Look up since when messages wait that were there before."""
        queue = self._queue
        for lane, progress in group.progress.items():
            for seq in sorted(progress.open):
                queue.storage.read(queue.state, lane, seq, 1, self._recalled)

    def _recalled(self, found: Found) -> None:
        if not self._queue.closed:
            for message in found.messages:
                self.stored(message)

    def expect(self, message: Stored) -> None:
        """Let there be a place for consumers that a message names and nobody knows; raises
        Overload when too much waits for such."""
        queue, state, limits = self._queue, self._queue.state, self._queue.limits
        awaited, strangers = self._absent(message.consumers or [])
        if not awaited and not strangers:
            return
        if len(self._heap) >= limits.awaited_max:
            self._sweep()
        if len(self._heap) >= limits.awaited_max:
            raise Overload(
                f"consumers: {len(self._heap)} messages wait for consumers of {queue.address} "
                "that never registered"
            )
        if sum(1 for _ in state.readers()) + len(strangers) > limits.groups_max:
            raise Overload(f"consumers: {queue.address} has as many groups as it may")
        for name in strangers:
            queue.add(Registered(state.number, name, "", None, None, queue.now_ms, expected=True))

    def _absent(self, names: list[str]) -> tuple[list[str], list[str]]:
        """Who of them is waited for already, and whom nobody knows."""
        groups = self._queue.state.groups
        awaited = [name for name in names if name in groups and groups[name].expected]
        strangers = [
            name
            for name in dict.fromkeys(names)
            if name not in groups and not name.startswith(GROUP_ONLY)
        ]
        if strangers:
            known = {name for group in groups.values() for name in group.consumers}
            strangers = [name for name in strangers if name not in known]
        return awaited, strangers

    def _sweep(self) -> None:
        """Let go of those that were taken meanwhile."""
        groups = self._queue.state.groups
        self._heap = [
            (due_ms, name, lane, seq)
            for due_ms, name, lane, seq in self._heap
            if name in groups and groups[name].expected and seq in groups[name].at(lane).open
        ]
        heapify(self._heap)

    def stored(self, message: Stored) -> None:
        """Let a message die in time if those it names do not come."""
        groups = self._queue.state.groups
        due_ms = message.ts_ms + int(self._queue.state.options.await_s * 1000)
        for name in message.consumers or ():
            if name in groups and groups[name].expected:
                heappush(self._heap, (due_ms, name, message.lane, message.seq))
        self._set()

    def lapse(self, now: float) -> None:
        """Something may have waited for long enough."""
        self._alarm = None
        queue = self._queue
        uncommitted: list[tuple[int, str, int, int]] = []
        while self._heap and self._heap[0][0] <= queue.now_ms:
            _, name, lane, seq = heappop(self._heap)
            group = queue.state.groups.get(name)
            if group is None or not group.expected or seq not in group.at(lane).open:
                continue
            if seq > queue.committed.get(lane, 0):
                uncommitted.append((queue.now_ms + _AGAIN_MS, name, lane, seq))
            else:
                queue.storage.read(queue.state, lane, seq, 1, self._bury(name, lane, seq))
        for entry in uncommitted:
            heappush(self._heap, entry)
        self._set()

    def _bury(self, name: str, lane: int, seq: int) -> Callable[[Found], None]:
        def got(found: Found) -> None:
            queue = self._queue
            group = queue.state.groups.get(name)
            if queue.closed or group is None or not group.expected:
                return
            if found.error is not None or found.upto < seq:
                if found.error is not None:
                    queue.unreadable(found.error)
                heappush(self._heap, (queue.now_ms + _AGAIN_MS, name, lane, seq))
                self._set()
                return
            size = 0
            for message in found.messages:
                if message.seq == seq:
                    size = len(message.payload) + message.extra
                    queue.letters.bury(message, name, 0, f"consumer {name!r} never registered")
            queue.add(Done(queue.state.number, lane, name, [seq, seq], size))
            queue.free(lane, [seq])
            if not any(progress.open for progress in group.progress.values()):
                queue.members.drop(name)

        return got

    def _set(self) -> None:
        """Wake for the earliest."""
        if self._heap and self._alarm is None:
            wait_ms = max(0, min(self._heap[0][0] - self._queue.now_ms, _SLEEP_MS))
            deadlines = self._queue.loans.deadlines
            self._alarm = deadlines.add(self._queue.keeper.now + wait_ms / 1000, self)

    def close(self) -> None:
        """Wake no more."""
        if self._alarm is not None:
            self._queue.loans.deadlines.cancel(self._alarm)
            self._alarm = None
