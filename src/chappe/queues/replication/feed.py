"""A feed: one replica, as its master sees it.

What is under way to a replica is bounded, by what it has told to have received. What it has on its
disk is another number, and the one that commits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from chappe.errors import Overload
from chappe.log.journal import Journal
from chappe.log.segment import Damage
from chappe.wire.replica import Batches

log = structlog.get_logger()

# What may be under way to one replica: enough for a link of 1 Gbit/s with 8 ms between its ends.
WINDOW_BYTES = 1024 * 1024
# What is read at once; and said in one op, so that others on the link have their turn.
RUN_BYTES = 512 * 1024
PIECE_BYTES = 128 * 1024


class Feed:
    """Sends a log to one replica, from the position that it asked for.

    `tell` says an op to it, and whether there was room on the link.
    """

    def __init__(
        self,
        broker: str,
        epoch: int,
        journal: Journal,
        tell: Callable[[Batches, int], bool],
        now: float,
    ) -> None:
        self._broker = broker
        self._epoch = epoch
        self._journal = journal
        self._tell = tell
        # Whether it copies now, and all that it has flushed since it began to.
        self.active = False
        self.acked = 0
        # Whether this node's own log cannot be read where the replica needs it.
        self.damaged = False
        # Since when something that it was sent, or should have been, has not been flushed.
        self.late_since: float | None = now
        self._late_lsn = 0
        self.goal = 0
        # When it was last given a goal, in rounds.
        self.round_at = float("-inf")
        # The last time that it was there, or was asked to be.
        self.seen_at = now
        self._sent = 0
        self._received = 0
        # What was read and not sent yet.
        self._run = b""
        self._reading = False
        self._pumping = False
        # Tells what was read for an earlier beginning from what was read for this.
        self._beginning = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is under way to it."""
        return self._sent == self._received

    def begin(self, lsn: int, now: float) -> None:
        """It has everything up to there, and copies from now on."""
        self.stop()
        self.active = True
        self._sent = lsn
        self.appended(lsn, lsn, now)

    def stop(self) -> None:
        """It does not copy now."""
        self.active = False
        self.acked = self._sent = self._received = 0
        self._run = b""
        self._reading = False
        self._beginning += 1

    def lose(self, now: float) -> None:
        """Its link is gone: it is late from now on, whether it owes anything or not."""
        self.stop()
        self.seen_at = now
        if self.late_since is None:
            self.late_since = now

    def aim(self, goal: int, now: float) -> None:
        """Let it have everything up to there."""
        self.goal = max(self.goal, goal)
        if self.late_since is None and self.acked < self.goal:
            self.late_since, self._late_lsn = now, self.goal
        self.pump()

    def appended(self, lsn: int, received: int, now: float) -> None:
        """It has flushed everything up to `lsn`."""
        self.seen_at = now
        self._received = max(self._received, min(received, self._sent))
        self.acked = max(self.acked, min(lsn, self._sent))
        if self.acked >= self.goal:
            self.late_since = None
        elif self.acked >= self._late_lsn:
            # It moves: whatever it owes now is younger than this.
            self.late_since, self._late_lsn = now, self.goal
        self.pump()

    def pump(self) -> None:
        """Send as much as there is room for."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self.active and not self._reading and self._send_some():
                pass
        finally:
            self._pumping = False

    def _send_some(self) -> bool:
        """Send a piece, or begin to read more; whether to go on."""
        if self._sent - self._received >= WINDOW_BYTES:
            return False
        if self._run:
            return self._send_piece()
        return self._sent < self.goal and self._read()

    def _send_piece(self) -> bool:
        piece, rest = self._run[:PIECE_BYTES], self._run[PIECE_BYTES:]
        op = Batches(self._broker, self._epoch, self._sent, piece, bool(rest), self._journal.start)
        if not self._tell(op, len(piece)):
            return False
        self._run = rest
        self._sent += len(piece)
        return True

    def _read(self) -> bool:
        self._reading = True
        try:
            self._journal.raw(self._sent, RUN_BYTES, partial(self._got, self._beginning))
        except Overload:
            # Too many read; it is tried again with the next tick.
            self._reading = False
            return False
        return True

    def _got(self, beginning: int, found: bytes | Damage) -> None:
        if beginning != self._beginning:
            return
        self._reading = False
        if isinstance(found, Damage):
            # Never sent on: the replica stays where it is, and is not in sync. What is no longer
            # kept is no damage: it begins anew when it is invited again.
            self.damaged = self._sent >= self._journal.start
            log.error("replica cannot be fed", broker=self._broker, damage=str(found))
            self.stop()
            return
        self._run = found
        self.pump()
