"""A seat: one broker at this node, which follows its master, or is it.

    following --(the record says so, a claim, an election)--> leading (gathering --> serving)
        ^                                                         |
        +-----------(fenced, lease lost, stalled)-----------------+--(disk failed)--> nothing more

One task goes round in it: all that changes who is master happens there, one after the other. What
comes over links is carried out at once by the follower or the master (follower.py, master.py).

A master gathers before it serves: in acknowledged mode until every in-sync replica has all of its
log. One that stalls stops serving, which tells all who wait that their outcome is unknown, and
begins anew, in a new epoch.
"""

from __future__ import annotations

import asyncio

import structlog

from chappe.errors import (
    BadRequest,
    ClusterError,
    Conflict,
    Overload,
    RequestError,
    StorageError,
)
from chappe.log.journal import Journal
from chappe.queues.replication.claim import Role, claimed, role_of
from chappe.queues.replication.claimant import Claimant, Taken
from chappe.queues.replication.follower import Follower
from chappe.queues.replication.knowledge import UNSEEN, Knowledge
from chappe.queues.replication.leading import Leading
from chappe.queues.replication.master import Master
from chappe.queues.replication.record import BrokerRecord, record_path
from chappe.queues.replication.setting import Setting
from chappe.registry.coordination import Coordination
from chappe.wire.replica import Invite

log = structlog.get_logger()

# How soon what could not be done is tried again; and how often all is looked at anew.
RETRY_S = 0.5
LOOK_S = 5.0
# How long a promotion may take: longer than a lease, which the old master may still hold.
PROMOTE_S = 60.0


class Seat:
    """One broker at this node."""

    def __init__(self, broker: str, setting: Setting) -> None:
        self.broker = broker
        self.known = Knowledge(setting.name, broker, setting.notes)
        self._s = setting
        registry = setting.coordination
        self._claimant = None if registry is None else Claimant(self.known, setting, registry)
        self._wake = asyncio.Event()
        self._changes = asyncio.Event()
        self._invited: tuple[str, Invite] | None = None
        # Whether its disk failed: nothing is done with it until the node starts again.
        self._failed = False
        self._said = ""

    @property
    def follower(self) -> Follower | None:
        """What copies the log while another node is master."""
        return self.known.follower

    @property
    def leading(self) -> Leading | None:
        """What this node holds while it is master."""
        return self.known.leading

    @property
    def master(self) -> Master | None:
        """What looks after the replicas while this node is master."""
        return self.leading.master if self.leading is not None else None

    @property
    def epoch(self) -> int | None:
        """The epoch in which this node is master; None: it is not."""
        return self.leading.epoch if self.leading is not None else None

    def wake(self) -> None:
        """Something has changed: look at it."""
        self._wake.set()

    def invited(self, node: str, op: Invite) -> None:
        """A master calls."""
        if self.master is not None:
            self.master.supersede(op.epoch)
        elif self.follower is not None:
            self.follower.invite(node, op)
        else:
            self._invited = (node, op)

    def link_up(self, node: str) -> None:
        """A node can be reached."""
        if self.master is not None:
            self.master.link_up(node)
        self._wake.set()

    def link_down(self, node: str) -> None:
        """A node cannot be reached any more."""
        if self.master is not None:
            self.master.link_down(node)
        if self.follower is not None:
            self.follower.link_down(node)
        self._wake.set()

    async def run(self) -> None:
        """Go round for ever; cancelling it leaves the journal open: `close` it."""
        watch = None
        if self._s.coordination is not None:
            watch = asyncio.create_task(self._watch(self._s.coordination))
        try:
            while True:
                self._wake.clear()
                pause_s = await self._step()
                try:
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.wait([watch])

    async def close(self) -> None:
        """Lead or follow no more."""
        if self.leading is not None:
            await self._cease("this node is going away", expected=True)
        await self._let_go()

    async def promote(self, *, force: bool = False) -> None:
        """Become master, and wait until it is so.

        Raises Forbidden when this node is not in sync, unless forced: what was acknowledged may be
        lost then. Raises BadRequest, Overload or ClusterError when it cannot be done.
        """
        if self.leading is not None:
            return
        if self._claimant is None:
            raise BadRequest(f"broker {self.broker}: promotion needs a registry with values")
        await self._claimant.promote(force=force)
        self._wake.set()
        try:
            async with asyncio.timeout(PROMOTE_S):
                while self.leading is None:
                    self._changes.clear()
                    await self._changes.wait()
        except TimeoutError:
            reason = f"broker {self.broker}: not master yet: {self.known.reason}"
            raise Overload(reason, outcome_unknown=True) from None

    async def _watch(self, registry: Coordination) -> None:
        async for found in registry.watch(record_path(self.broker)):
            self.known.seen = None if found is None else found.version
            self._wake.set()

    async def _step(self) -> float:
        """Do what is to be done now; returns how long that may stand."""
        try:
            if self._failed:
                return LOOK_S
            if self.leading is not None:
                return await self._lead_on(self.leading)
            if self.follower is None:
                self._follow()
            if self._claimant is not None:
                return await self._follow_on(self._claimant)
            if self.broker == self._s.name:
                await self._lead_alone()
        except (ClusterError, StorageError, OSError, RequestError) as error:
            self.known.reason = str(error)
            self._say()
            return RETRY_S
        return LOOK_S

    def _say(self) -> None:
        """Log why it is not served, once for each reason."""
        if self.known.reason != self._said:
            self._said = self.known.reason
            log.warning("broker waits", broker=self.broker, reason=self._said)

    async def _lead_on(self, leading: Leading) -> float:
        trouble = leading.trouble(asyncio.get_running_loop().time())
        if trouble is not None:
            self._failed = leading.journal.broken
            await self._cease(trouble)
            return 0.0
        if self._claimant is None or leading.master is None:
            return LOOK_S
        if leading.version is None or self.known.seen not in (leading.version, UNSEEN):
            await self._read_again(self._claimant, leading, leading.master)
            return 0.0
        if leading.master.proposed is not None:
            await self._agree(self._claimant, leading, leading.master, leading.master.proposed)
        if leading.master.ready and not leading.serving and leading.journal.failed is None:
            self._serve(leading)
        return LOOK_S

    async def _agree(
        self, claimant: Claimant, leading: Leading, master: Master, proposed: BrokerRecord
    ) -> None:
        """Change the record; when nobody knows whether it was, it is read again first."""
        version, leading.version = leading.version, None
        try:
            leading.version = await claimant.put(proposed, version)
        except Conflict:
            self._wake.set()
            return
        master.agreed(proposed)
        log.info("broker agreed", broker=self.broker, insync=proposed.insync)

    async def _read_again(self, claimant: Claimant, leading: Leading, master: Master) -> None:
        """See whether the record is still this node's."""
        found, record = await claimant.look()
        if found is None or record is None:
            await self._cease("fenced: the registry has forgotten this broker")
        elif record.owner == self._s.name and record.epoch == leading.epoch:
            leading.version = self.known.seen = found.version
            self.known.learn(record)
            master.agreed(record)
        else:
            await self._cease(f"fenced: {record.owner} is master in epoch {record.epoch}")

    async def _follow_on(self, claimant: Claimant) -> float:
        known, replicas = self.known, self._s.options.replicas
        alone = known.note is None and not replicas and self.broker == known.name
        try:
            found, record = await claimant.look()
        except ClusterError:
            if not alone:
                raise
            # It never had copies and is to have none: it needs nobody's leave.
            await self._lead_alone()
            return LOOK_S
        epoch = known.journal_epoch
        role = role_of(known.name, self.broker, record, known.note, epoch, replicas)
        if record is not None and record.epoch >= known.term:
            known.learn(record)
        if role is Role.ALONE:
            await self._lead_alone()
            return LOOK_S
        if role is Role.FOLLOW:
            known.reason = "another node is its master"
            if not await claimant.may_stand(record):
                return LOOK_S
            taken = await claimant.stand()
        else:
            taken = await claimant.take(role, found, record)
        if taken is None:
            self._say()
            return RETRY_S
        await self._lead(taken)
        return 0.0

    async def _lead_alone(self) -> None:
        """Be master without copies."""
        journal = await self._load()
        journal.begin_epoch(max(1, journal.epoch))
        self.known.leading = Leading(journal, journal.epoch)
        self._serve(self.known.leading)

    async def _lead(self, taken: Taken) -> None:
        """Open the log in a new epoch, and call the replicas."""
        lease, record, options = taken.lease, taken.record, self._s.options
        try:
            journal = await self._load()
            try:
                journal.begin_epoch(record.epoch)
            except RequestError:
                self._s.brokers.on_fenced(self.broker, "it cannot be written to")
                await journal.close()
                raise
        except BaseException:
            await lease.release()
            raise
        master = Master(
            name=self._s.name,
            broker=self.broker,
            record=record,
            journal=journal,
            peers=self._s.peers,
            options=options,
            time=asyncio.get_running_loop().time,
            until=lambda: lease.until,
            wake=self._wake.set,
        )
        leading = self.known.leading = Leading(journal, record.epoch)
        leading.hold(master, lease, taken.version)
        self.known.led = True
        self.known.reason = f"not all of {', '.join(record.insync)} have all of its log yet"
        log.info("broker led", broker=self.broker, epoch=record.epoch, insync=record.insync)
        leading.watch(min(options.timeout_s, options.interval_s) / 4, self._wake)
        master.start()
        self._tell_changed()

    def _serve(self, leading: Leading) -> None:
        leading.serving = True
        self.known.reason = self._said = ""
        self._s.brokers.on_master(self.broker, leading.journal)
        self._tell_changed()

    async def _cease(self, reason: str, *, expected: bool = False) -> None:
        """Be master no more, whatever waits."""
        leading, self.known.leading = self.leading, None
        assert leading is not None
        self.known.reason = reason
        tell = log.debug if expected else log.warning
        tell("broker ceased", broker=self.broker, epoch=leading.epoch, reason=reason)
        leading.journal.fence(reason)
        self._s.brokers.on_fenced(self.broker, reason)
        await leading.end()
        self._tell_changed()

    async def _load(self) -> Journal:
        """Open the journal anew, with its state."""
        await self._let_go()
        journal = self._s.brokers.open_journal(self.broker)
        loading = asyncio.ensure_future(self._s.brokers.load(self.broker, journal))
        try:
            await asyncio.shield(loading)
        except (StorageError, OSError, asyncio.CancelledError):
            # What reads off the loop cannot be stopped.
            await asyncio.wait([loading])
            self._s.brokers.on_fenced(self.broker, "it cannot be loaded")
            await journal.close()
            raise
        return journal

    def _follow(self) -> None:
        """Open the journal anew, for a master to write to."""
        if self.known.note is None:
            self.known.recall()
        journal = self._s.brokers.open_journal(self.broker)
        for _ in journal.recover():
            pass
        follower = self.known.follower = Follower(
            broker=self.broker,
            journal=journal,
            peers=self._s.peers,
            term=max(journal.epoch, self.known.term),
            heard=self._heard,
        )
        invited, self._invited = self._invited, None
        if invited is not None:
            follower.invite(*invited)

    async def _let_go(self) -> None:
        follower, self.known.follower = self.follower, None
        if follower is not None:
            follower.rest()
            await follower.journal.close()

    def _heard(self, epoch: int, node: str) -> None:
        """A master of a newer epoch calls: none of an older one is believed from now on."""
        base = self.known.note or BrokerRecord(owner=node, epoch=epoch, insync=(node,))
        self.known.learn(claimed(base, node, epoch, base.insync, base.mode))
        self._wake.set()

    def _tell_changed(self) -> None:
        self._changes.set()
        self._s.changed()
