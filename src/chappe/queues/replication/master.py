"""A master: hands its log to replicas, and decides what is committed.

In acknowledged mode a batch is committed when it is on the disk of every member of the in-sync set.
The set is part of the broker's record: it is changed by compare-and-set, which is somebody else's
work (see seat.py), and is larger rather than smaller in between:

    joining   counts from when it is proposed;  leaving   counts until it is agreed on

A member that owes something for longer than the time limit is proposed to leave, unless fewer than
`insync_min` copies would be left. Then, and when nobody agrees, the master has stalled: it cannot
serve, and says so.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chappe.log.journal import Journal
from chappe.queues.options import ReplicationOptions
from chappe.queues.replication.feed import Feed
from chappe.queues.replication.parting import Extent, epoch_at, parting
from chappe.queues.replication.peers import Peers
from chappe.queues.replication.record import BrokerRecord
from chappe.wire.replica import Appended, Batches, Follow, Following, Invite

# How long a replica that is linked may take to answer before it is invited again.
INVITE_S = 2.0
# How long a replica may be gone before another node is to have the copy instead.
REPLACE_S = 600.0


class Master:
    """Leads one epoch of a broker, as its journal's acknowledger.

    `until` says up to when the lease is held; `wake` is called when there is something to see to in
    `proposed`, `stalled`, `superseded` or `ready`.
    """

    def __init__(
        self,
        *,
        name: str,
        broker: str,
        record: BrokerRecord,
        journal: Journal,
        peers: Peers,
        options: ReplicationOptions,
        time: Callable[[], float],
        until: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self.broker = broker
        self.record = record
        self.journal = journal
        self._name = name
        self._peers = peers
        self._options = options
        self._time = time
        self._until = until
        self._wake = wake
        self._acknowledged = options.mode == "acknowledged"
        # Fewer copies than there can be are no reason to refuse.
        self._least = min(options.insync_min, options.replicas + 1) if self._acknowledged else 1
        self._feeds: dict[str, Feed] = {}
        # The record that should be agreed on next, and since when it should.
        self.proposed: BrokerRecord | None = None
        self._proposed_at = 0.0
        # Why it cannot serve; and the epoch that ended this one.
        self.stalled: str | None = None
        self.superseded: int | None = None
        # Whether all that the log had at the beginning is committed, so that it may serve.
        self.ready = not self._acknowledged
        self._barrier = journal.flushed
        for node in record.replicas:
            self._feed(node)

    @property
    def insync(self) -> tuple[str, ...]:
        """Who has to have a batch before it is committed."""
        more = self.proposed.insync if self.proposed is not None else ()
        return tuple(dict.fromkeys((*self.record.insync, *more)))

    def start(self) -> None:
        """Take the journal, and call the replicas."""
        self.journal.acknowledger = self
        self.journal.keep = self.keep
        for node in self._peers.linked():
            self.link_up(node)
        self.tick()
        self._commit()

    def may_flush(self) -> bool:
        """Whether the lease is still held, on a clock that never steps."""
        return self.superseded is None and self._time() < self._until()

    def flushed(self, lsn: int) -> None:
        """All below is on this node's disk."""
        if not self._acknowledged:
            self.journal.acknowledge(lsn)
        now = self._time()
        for feed in self._feeds.values():
            self._aim(feed, now)
        self._commit()

    def keep(self, base: int) -> bool:
        """Whether a segment is still needed by a replica that copies now."""
        end = min((other for other in self.journal.bases if other > base), default=base + 1)
        return any(feed.active and feed.acked < end for feed in self._feeds.values())

    def link_up(self, node: str) -> None:
        """A node can be reached."""
        if node in self._feeds:
            self._invite(node, self._feeds[node])

    def link_down(self, node: str) -> None:
        """A node cannot be reached any more."""
        if node in self._feeds:
            self._feeds[node].lose(self._time())

    def follow(self, node: str, op: Follow) -> None:
        """A replica says what it has: answer up to where that is right."""
        feed = self._feeds.get(node)
        if self._is_over(op.epoch) or feed is None:
            return
        journal = self.journal
        feed.stop()
        mine = Extent(journal.epochs, journal.start, journal.flushed)
        point = parting(mine, Extent(op.epochs, op.start, op.end))
        lsn = journal.start if point is None else point
        self._peers.tell(
            node,
            Following(
                self.broker,
                self.record.epoch,
                lsn,
                journal.flushed,
                point is None,
                epoch_at(journal.epochs, lsn),
            ),
        )

    def appended(self, node: str, op: Appended) -> None:
        """A replica has flushed more; the first time, it has cut back and is ready to copy."""
        feed = self._feeds.get(node)
        if self._is_over(op.epoch) or feed is None or op.epoch != self.record.epoch:
            return
        now = self._time()
        if op.stopped:
            feed.seen_at = now
            feed.stop()
            return
        if feed.active:
            feed.appended(op.lsn, op.received, now)
        else:
            feed.begin(op.lsn, now)
            self._aim(feed, now)
        if node in self.insync:
            self._commit()
        elif self._has_caught_up(feed):
            self._judge(now)

    def supersede(self, epoch: int) -> None:
        """Somebody knows this epoch; be master no more if it is newer."""
        self._is_over(epoch)

    def tick(self) -> None:
        """Look after replicas; to be called a few times in each time limit."""
        now = self._time()
        linked = set(self._peers.linked())
        for node, feed in self._feeds.items():
            self._aim(feed, now)
            if node in linked and not feed.active and now - feed.seen_at >= INVITE_S:
                self._invite(node, feed)
        self._judge(now)

    def agreed(self, record: BrokerRecord) -> None:
        """The record is this now."""
        self.record = record
        self.proposed = None
        for node in record.replicas:
            if node not in self._feeds:
                self._invite(node, self._feed(node))
        for node in [node for node in self._feeds if node not in record.replicas]:
            self._feeds.pop(node).stop()
        self._commit()

    def _feed(self, node: str) -> Feed:
        def tell(op: Batches, size: int) -> bool:
            return self._peers.send(node, op, size)

        feed = Feed(self.broker, self.record.epoch, self.journal, tell, self._time())
        self._feeds[node] = feed
        return feed

    def _invite(self, node: str, feed: Feed) -> None:
        if not feed.damaged:
            feed.seen_at = self._time()
            self._peers.tell(node, Invite(self.broker, self.record.epoch))

    def _is_over(self, epoch: int) -> bool:
        """Whether another epoch than this one is the newest."""
        if epoch > self.record.epoch and self.superseded is None:
            self.superseded = epoch
            self.journal.fence(f"fenced: epoch {epoch} is newer than {self.record.epoch}")
            self._wake()
        return self.superseded is not None

    def _aim(self, feed: Feed, now: float) -> None:
        """Send what there is: at once, or in rounds when nobody waits for it."""
        flushed = self.journal.flushed
        rested = now - feed.round_at >= self._options.interval_s
        if feed.goal < flushed and (self._acknowledged or rested):
            feed.round_at = now
            feed.aim(flushed, now)
        else:
            feed.pump()

    def _commit(self) -> None:
        if not self._acknowledged or self.superseded is not None:
            return
        insync = self.insync
        if len(insync) < self._least:
            return
        others = [self._feeds[node].acked for node in insync if node in self._feeds]
        if len(others) < len(insync) - 1:
            return
        lsn = min(self.journal.flushed, *others) if others else self.journal.flushed
        self.journal.acknowledge(lsn)
        if not self.ready and lsn >= self._barrier:
            self.ready = True
            self._wake()

    def _judge(self, now: float) -> None:
        """See who is in sync, and propose what should be agreed on."""
        late = {node for node, feed in self._feeds.items() if self._is_late(feed, now)}
        if self.proposed is None:
            self._propose(self._wanted(late, now), now)
        stuck = late.intersection(self.insync)
        if self.ready and self._acknowledged and self.stalled is None and stuck:
            self._stall(stuck, now)

    def _has_caught_up(self, feed: Feed) -> bool:
        """Whether it may join: it has all that is committed, or all of the last round."""
        needed = self.journal.committed if self._acknowledged else feed.goal
        return feed.active and feed.acked >= max(needed, self._barrier)

    def _is_late(self, feed: Feed, now: float) -> bool:
        return feed.late_since is not None and now - feed.late_since > self._options.timeout_s

    def _wanted(self, late: set[str], now: float) -> BrokerRecord:
        """The record as it should be."""
        record = self.record
        caught_up = [node for node, feed in self._feeds.items() if self._has_caught_up(feed)]
        joining = [node for node in caught_up if node not in record.insync and node not in late]
        insync = [node for node in (*record.insync, *joining) if node not in late]
        if len(insync) < self._least:
            insync = [*record.insync, *joining]
        return msgspec.structs.replace(
            record, insync=tuple(insync), replicas=self._replicas(insync, now)
        )

    def _replicas(self, insync: list[str], now: float) -> tuple[str, ...]:
        """Who is to have a copy: those who have it, as long as there is nobody better."""
        wanted = self._options.replicas
        linked = self._peers.preferred(self.broker)
        kept = [
            node
            for node in self.record.replicas
            if node in insync or node in linked or now - self._feeds[node].seen_at < REPLACE_S
        ]
        gone = [node for node in self.record.replicas if node not in kept]
        new = [node for node in linked if node not in kept and node != self._name]
        kept.sort(key=lambda node: node not in insync)
        chosen = (kept + new + gone)[: max(wanted, len([n for n in kept if n in insync]))]
        # In the order they had, so that nothing is written for nothing.
        return tuple(sorted(chosen, key=lambda node: _place(node, self.record.replicas)))

    def _propose(self, record: BrokerRecord, now: float) -> None:
        if record != self.record:
            self.proposed, self._proposed_at = record, now
            self._wake()

    def _stall(self, stuck: set[str], now: float) -> None:
        """Stop serving when it is certain that what waits will not be committed in time."""
        leaving = self.proposed is not None and not stuck.intersection(self.proposed.insync)
        if leaving and now - self._proposed_at <= self._options.timeout_s:
            return
        names = ", ".join(sorted(stuck))
        reason = (
            f"broker {self.broker}: {names} did not confirm in {self._options.timeout_s:g} s, and "
            + (
                "the registry did not agree to go on without"
                if leaving
                else f"insync_min asks for {self._least} copies"
            )
        )
        self.stalled = reason
        self.journal.fence(reason)
        self._wake()


def _place(node: str, nodes: tuple[str, ...]) -> int:
    return nodes.index(node) if node in nodes else len(nodes)
