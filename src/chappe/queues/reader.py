"""A reader: brings the messages of one lane to one group, in order.

    lane   ... 41 42 43 44 45 46 47 48 49 50 ...
                  |        |           |
             position    ahead       head          position < ahead: read, not yet handed out

What comes in while the reader is at the end of its lane goes straight into its window; a reader
that has fallen behind reads from the storage, some at a time. What was open when the queue was
opened comes first. Nothing is given beyond the mark that is committed: that is how attempts are
counted across a crash.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from chappe.queues.filter import wants
from chappe.queues.record import Stored
from chappe.queues.storage import Found

if TYPE_CHECKING:
    from chappe.queues.group import Group


class Reader:
    """One group's way through one lane."""

    __slots__ = (
        "_backlog",
        "_begun",
        "_group",
        "_reading",
        "_window",
        "_window_bytes",
        "ahead",
        "granted",
        "in_hand",
        "in_hand_bytes",
        "lane",
        "progress",
        "ready_at",
    )

    def __init__(self, group: Group, lane: int) -> None:
        self._group = group
        self.lane = lane
        self.progress = group.state.at(lane)
        head = group.queue.state.heads[lane]
        self._backlog = deque(sorted(seq for seq in self.progress.open if seq <= head))
        self._window: deque[Stored] = deque()
        self._window_bytes = 0
        self._reading = False
        # The last message that was read, beyond what was open at first.
        self.ahead = self._begun = min(self.progress.mark, head)
        self.granted = self.progress.mark
        # Messages that are lent, wait for another try, or wait behind their key.
        self.in_hand = 0
        self.in_hand_bytes = 0
        # With a push interval: when the next message may be pushed.
        self.ready_at = 0.0

    def offer(self, messages: list[Stored]) -> None:
        """Messages were stored in the lane; those that this reader is not up to it reads later."""
        if messages[0].seq != self.ahead + 1 or self._backlog or self._reading:
            return
        limits, window = self._group.queue.limits, self._window
        room, size = limits.ahead_messages - len(window), self._window_bytes
        for message in messages[:room] if room < len(messages) else messages:
            if size >= limits.ahead_bytes:
                break
            size += len(message.payload) + message.extra
            window.append(message)
            self.ahead = message.seq
        self._window_bytes = size

    def take(self) -> Stored | None:
        """The next message that the group wants; None when there is none, or not yet."""
        window, group = self._window, self._group
        if self._full:
            return None
        while True:
            if not window:
                self.fill()  # a storage in memory has brought some when this returns
            if not window:
                return None
            message = window[0]
            if message.seq > self.granted:
                group.report.want_mark(self.lane, self.ahead)
                return None
            window.popleft()
            self._window_bytes -= len(message.payload) + message.extra
            if wants(group.state, message):
                return message
            group.pass_over(message)

    def take_plain(self, n: int, bytes_max: int) -> list[Stored]:
        """The next messages, as long as they can be handed out as they are: to anybody, whatever
        else is in hand, for the first time."""
        window, limits, granted = self._window, self._group.queue.limits, self.granted
        taken: list[Stored] = []
        n = min(n, limits.open_max - self.in_hand)
        room = min(bytes_max, limits.open_bytes - self.in_hand_bytes)
        size = 0
        while window and len(taken) < n and size < room:
            message = window[0]
            if (
                message.seq > granted
                or message.seq <= self._begun
                or message.key is not None
                or message.consumers is not None
            ):
                break
            taken.append(window.popleft())
            size += len(message.payload) + message.extra
        self._window_bytes -= size
        self.in_hand += len(taken)
        self.in_hand_bytes += size
        return taken

    @property
    def _full(self) -> bool:
        """Whether the group has as much in hand as it may."""
        limits = self._group.queue.limits
        return self.in_hand >= limits.open_max or self.in_hand_bytes >= limits.open_bytes

    @property
    def more(self) -> bool:
        """Whether there may be something to take."""
        return bool(
            self._window
            or self._backlog
            or self.ahead < self._group.queue.committed.get(self.lane, 0)
        )

    @property
    def coming(self) -> bool:
        """Whether messages are there that could not be taken yet."""
        if self._full:
            return False
        return bool(self._window or self._backlog or self._reading)

    def attempts_of(self, seq: int) -> int:
        """How often a message may have been handed out before."""
        return self.progress.attempts.get(seq, 1) if seq <= self._begun else 0

    @property
    def noted_next(self) -> bool:
        """Whether the next message, if it is there, can be handed out as it is."""
        return not self._window or self.is_noted(self._window[0].seq)

    def is_noted(self, seq: int) -> bool:
        """Whether the mark tells of the next attempt; else it is to be written down first."""
        return seq > self._begun

    def fill(self) -> None:
        """Read more, if there is more and nothing is being read."""
        if self._reading:
            return
        queue = self._group.queue
        count = queue.limits.ahead_messages
        committed = queue.committed.get(self.lane, 0)
        if self._backlog:
            first = last = self._backlog[0]
            if first > committed:
                return
            for seq in self._backlog:
                if seq > min(last + 1, committed) or seq - first >= count:
                    break
                last = seq
            self._reading = True
            queue.storage.read(queue.state, self.lane, first, last - first + 1, self._got_open)
        elif self.ahead < committed:
            self._reading = True
            queue.storage.read(queue.state, self.lane, self.ahead + 1, count, self._got)

    def _got_open(self, found: Found) -> None:
        """What was open at first has been read."""
        self._reading = False
        if not self._usable(found):
            return
        there = {message.seq: message for message in found.messages}
        gone: list[int] = []
        while self._backlog and self._backlog[0] <= found.upto:
            seq = self._backlog.popleft()
            if seq not in self.progress.open:
                continue
            if seq in there:
                self._push(there[seq])
            else:
                gone.append(seq)
        self._group.report.lose(self.lane, gone)
        self._group.hand_out_soon()

    def _got(self, found: Found) -> None:
        """Messages that follow those before have been read."""
        self._reading = False
        if not self._usable(found):
            return
        upto = min(found.upto, self._group.queue.committed.get(self.lane, 0))
        expected = self.ahead + 1
        gone: list[int] = []
        for message in found.messages:
            if message.seq > upto:
                break
            gone += range(expected, message.seq)
            expected = message.seq + 1
            self._push(message)
        gone += range(expected, upto + 1)
        self.ahead = max(self.ahead, upto)
        self._group.report.lose(self.lane, gone)
        self._group.hand_out_soon()

    def _usable(self, found: Found) -> bool:
        """Whether a read brought something to go on with, for a group that is still there."""
        if self._group.closed:
            return False
        if found.error is not None:
            self._group.queue.unreadable(found.error)
            self._group.read_later()
            return False
        return True

    def _push(self, message: Stored) -> None:
        self._window.append(message)
        self._window_bytes += len(message.payload) + message.extra
