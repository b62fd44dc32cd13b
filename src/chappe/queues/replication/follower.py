"""A follower: keeps a copy of a broker's log, byte for byte.

    resting --(Invite)--> asking --(Following: cut back)--> copying --(link gone, damage)--> resting

It follows whoever has the highest epoch, and tells anybody with a lower one. What it has is only
ever cut back by a master of such an epoch, and never while something is under way to the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import structlog

from chappe.errors import Overload, RequestError, StorageError
from chappe.log.batch import Batch, read_batch
from chappe.log.journal import Journal
from chappe.log.segment import base_of
from chappe.queues.replication.peers import Peers
from chappe.wire.replica import Appended, Batches, Follow, Following, Invite, Superseded

log = structlog.get_logger()

# A batch that goes on in so many ops is none.
_PARTS_MAX = 4096


class Follower:
    """Copies one broker's log to a journal that is recovered and has no other writer.

    `term` is the highest epoch that this node has heard of; `heard` is called with a higher one and
    the node that said it, before anything is done for it.
    """

    def __init__(
        self,
        *,
        broker: str,
        journal: Journal,
        peers: Peers,
        term: int,
        heard: Callable[[int, str], None],
    ) -> None:
        self.broker = broker
        self.journal = journal
        self.term = term
        self._peers = peers
        self._heard = heard
        # Whom it follows, or is about to.
        self.master: str | None = None
        self.copying = False
        # What the master had when this began to follow: with less, nobody may lead.
        self._owed = 0
        self._damaged = bool(journal.damages)
        self._mended = False
        # Something to do as soon as nothing is under way to the disk.
        self._next: Callable[[], None] | None = None
        self._appending = 0
        self._parts: list[bytes] = []
        # Whole batches that the journal has no room for yet; bounded by what the master sends.
        self._runs: deque[bytes] = deque()
        self._received = 0

    @property
    def whole(self) -> bool:
        """Whether nothing is known to be missing that it once had."""
        return not self._damaged and self.journal.failed is None

    @property
    def end(self) -> int:
        """Up to where the copy is good."""
        damage = None if self._mended else first_damage(self.journal)
        return self.journal.end if damage is None else min(damage, self.journal.end)

    def invite(self, node: str, op: Invite) -> None:
        """A master wants to be followed."""
        if self._refuses(node, op.epoch):
            return
        self.rest()
        self.master = node
        self._when_idle(self._ask)

    def following(self, node: str, op: Following) -> None:
        """The master says where the logs part."""
        if self._refuses(node, op.epoch) or node != self.master:
            return
        self._when_idle(lambda: self._cut(op))

    def batches(self, node: str, op: Batches) -> None:
        """A part of the log."""
        if self._refuses(node, op.epoch) or node != self.master or not self.copying:
            return
        if op.lsn != self._received or len(self._parts) >= _PARTS_MAX:
            self._stop(f"{op.lsn} came where {self._received} should")
            return
        self._parts.append(op.data)
        self._received += len(op.data)
        self.journal.trim(op.start)
        if op.more:
            self._confirm()
        else:
            self._runs.append(b"".join(self._parts))
            self._parts.clear()
            self._append()

    def link_down(self, node: str) -> None:
        """The master cannot be reached any more."""
        if node == self.master:
            self.rest()

    def rest(self) -> None:
        """Follow nobody."""
        self.master = None
        self.copying = False
        self._next = None
        self._parts.clear()
        self._runs.clear()

    def _refuses(self, node: str, epoch: int) -> bool:
        if epoch < self.term:
            self._peers.tell(node, Superseded(self.broker, self.term))
            return True
        if epoch > self.term:
            self._heard(epoch, node)
            self.term = epoch
        return False

    def _when_idle(self, action: Callable[[], None]) -> None:
        self._next = action
        self._go_on()

    def _go_on(self) -> None:
        if self._next is not None and not self._appending:
            action, self._next = self._next, None
            action()

    def _ask(self) -> None:
        if self.master is None:
            return
        journal = self.journal
        self.copying = False
        if not self._mend():
            return
        follow = Follow(self.broker, self.term, journal.epochs, journal.start, journal.end)
        self._peers.tell(self.master, follow)

    def _mend(self) -> bool:
        """Cut back to before the first damage, for a master to send the rest anew; once."""
        damage = None if self._mended else first_damage(self.journal)
        self._mended = True
        try:
            if damage is not None and damage <= self.journal.start:
                self.journal.reset(0, 0)
            elif damage is not None:
                self.journal.truncate(damage)
        except (StorageError, OSError) as error:
            log.error("replica cannot be mended", broker=self.broker, reason=str(error))
            self.rest()
            return False
        return True

    def _cut(self, op: Following) -> None:
        journal = self.journal
        try:
            if op.anew:
                log.info("replica begins anew", broker=self.broker, at=op.lsn, had=journal.end)
                journal.reset(op.lsn, op.base_epoch)
            elif op.lsn < journal.end:
                log.info("replica is cut back", broker=self.broker, at=op.lsn, had=journal.end)
                journal.truncate(op.lsn)
            else:
                # Epochs that began here and have not a single batch.
                journal.truncate(journal.end)
        except (StorageError, OSError) as error:
            log.error("replica cannot be cut back", broker=self.broker, reason=str(error))
            self.rest()
            return
        self._owed = op.end
        self._received = journal.end
        self.copying = True
        self._confirm()

    def _append(self) -> None:
        """Give the journal what it has room for; the rest has its turn when that is written."""
        while self._runs:
            try:
                self.journal.append_raw(self._runs[0], self._appended)
            except RequestError as error:
                if not isinstance(error, Overload) or not self._make_room():
                    self._stop(error.reason)
                return
            self._runs.popleft()
            self._appending += 1

    def _make_room(self) -> bool:
        """Wait for what is under way, or go on with less at once; whether either is possible."""
        if self._appending:
            return True
        batches = _batches(self._runs.popleft())
        self._runs.extendleft(reversed(batches))
        if len(batches) > 1:
            self._append()
        return len(batches) > 1

    def _appended(self, error: RequestError | None) -> None:
        self._appending -= 1
        if error is not None:
            self._stop(error.reason)
        elif self.copying:
            self._confirm()
            self._append()
        self._go_on()

    def _confirm(self, *, stopped: bool = False) -> None:
        flushed = self.journal.flushed
        if self._damaged and flushed >= self._owed:
            self._damaged = False
        if self.master is not None:
            op = Appended(self.broker, self.term, flushed, self._received, stopped)
            self._peers.tell(self.master, op)

    def _stop(self, reason: str) -> None:
        """Copy no more, until the master calls again."""
        if self.copying:
            log.warning("replica stops copying", broker=self.broker, reason=reason)
            self._confirm(stopped=True)
            self.rest()


def _batches(run: bytes) -> list[bytes]:
    """A run, batch by batch; what cannot be read stays as it is."""
    batches: list[bytes] = []
    at = 0
    while isinstance(batch := read_batch(run, at), Batch):
        batches.append(batch.data)
        at += len(batch.data)
    return [*batches, run[at:]] if at < len(run) else batches


def first_damage(journal: Journal) -> int | None:
    """The position of the first batch that is known to be damaged, a torn tail aside."""
    positions = [
        (base_of(damage.segment.rpartition("/")[2]) or 0) + damage.offset
        for damage in journal.damages
        if not damage.tail
    ]
    return min(positions, default=None)
