"""Knowledge: what a node knows of one broker, from its disk, from others, and from leading it."""

from __future__ import annotations

from chappe.queues.replication.claim import Copy
from chappe.queues.replication.follower import Follower
from chappe.queues.replication.leading import Leading
from chappe.queues.replication.note import Notes
from chappe.queues.replication.record import BrokerRecord
from chappe.wire.replica import Standing

# The version of a record that nobody has looked at.
UNSEEN = -1


class Knowledge:
    """One broker, as one node sees it."""

    def __init__(self, name: str, broker: str, notes: Notes) -> None:
        self.name = name
        self.broker = broker
        self._notes = notes
        self.note: BrokerRecord | None = None
        self.follower: Follower | None = None
        self.leading: Leading | None = None
        # Why it is not served here, for those who ask.
        self.reason = "starting"
        # Whether this run of the node has led it, and nobody else has since.
        self.led = False
        # The epoch in which an administrator wanted it to be this node, come what may.
        self.chosen_epoch = 0
        # The version of the record that was seen last; None: there was none.
        self.seen: int | None = UNSEEN

    @property
    def is_open(self) -> bool:
        """Whether the copy was read: before that nobody is told that there is little of it."""
        return self.leading is not None or self.follower is not None

    @property
    def journal_epoch(self) -> int:
        """The epoch of the last batch in this node's copy."""
        if self.leading is not None:
            return self.leading.journal.epoch
        return self.follower.journal.epoch if self.follower is not None else 0

    @property
    def term(self) -> int:
        """The highest epoch that this node has heard of."""
        return max(self.journal_epoch, self.note.epoch if self.note is not None else 0)

    @property
    def copy(self) -> Copy:
        """How far this node's copy is."""
        return Copy(self.journal_epoch, self.follower.end if self.follower is not None else 0)

    @property
    def record(self) -> BrokerRecord | None:
        """The record, as far as this node knows."""
        master = self.leading.master if self.leading is not None else None
        return master.record if master is not None else self.note

    def recall(self) -> None:
        """Read what was noted before this run of the node. Raises OSError."""
        self.note = self._notes.read(self.broker)

    def learn(self, record: BrokerRecord) -> None:
        """Take note of a record that is agreed on. Raises OSError."""
        if record.owner != self.name:
            self.led = False
        if record != self.note:
            self._notes.write(self.broker, record)
            self.note = record

    def standing(self, number: int) -> Standing:
        """What another node is told that asks."""
        owner = self.note.owner if self.note is not None else ""
        end, whole = 0, False
        if self.leading is not None:
            journal = self.leading.journal
            owner, end, whole = self.name, journal.flushed, not journal.damages
        elif self.follower is not None:
            end, whole = self.follower.end, self.follower.whole
        return Standing(number, self.broker, self.term, owner, self.journal_epoch, end, whole)
