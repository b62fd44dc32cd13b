"""A seat: one broker at this node, which follows its master, or is it.

    following --(the record says so, a claim, an election)--> leading (gathering --> serving)
        ^                                                         |
        +------(fenced, lease lost, stalled, disk failed)---------+

One task goes round in it: all that changes who is master happens there, one after the other. What
comes over links is carried out at once by the follower or the master (follower.py, master.py).

A master gathers before it serves: in acknowledged mode until every in-sync replica has all of its
log. One that stalls stops serving, which tells all who wait that their outcome is unknown, and
begins anew, in a new epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

import structlog

from chappe.errors import (
    BadRequest,
    ClusterError,
    Conflict,
    Forbidden,
    Held,
    Overload,
    RequestError,
    StorageError,
)
from chappe.log.journal import Journal
from chappe.queues.options import ReplicationOptions
from chappe.queues.replication.claim import (
    Copy,
    Role,
    better,
    claimed,
    newer_master,
    next_epoch,
    role_of,
)
from chappe.queues.replication.follower import Follower
from chappe.queues.replication.inquiry import Inquiries
from chappe.queues.replication.leading import Leading
from chappe.queues.replication.master import Master
from chappe.queues.replication.note import Notes
from chappe.queues.replication.peers import Brokers, Peers
from chappe.queues.replication.record import (
    BrokerRecord,
    decode_broker,
    encode_broker,
    lease_path,
    record_path,
)
from chappe.registry.coordination import Coordination, Lease, Versioned
from chappe.wire.replica import Invite, Standing

log = structlog.get_logger()

# How soon what could not be done is tried again; and how often all is looked at anew.
RETRY_S = 0.5
LOOK_S = 5.0
# Before a replica tries to be master: a random time up to this, so that not all try at once.
ELECTION_S = 0.3
# How often a candidate lets one go first that has more.
_DEFER_MAX = 3
_UNSEEN = -1
# How long a promotion may take: longer than a lease, which the old master may still hold.
PROMOTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all seats of a node share."""

    name: str
    options: ReplicationOptions
    coordination: Coordination | None
    peers: Peers
    brokers: Brokers
    notes: Notes
    inquiries: Inquiries
    rng: Random
    # Why no replica may become master by itself; None: it may.
    no_election: Callable[[], Awaitable[str | None]]
    # Called when this node has become master of a broker, or is it no more.
    changed: Callable[[], None]
    # The nodes that say they are master of a broker, with their epochs.
    masters_of: Callable[[str], dict[str, int]]


class Seat:
    """One broker at this node."""

    def __init__(self, broker: str, setting: Setting) -> None:
        self.broker = broker
        self.follower: Follower | None = None
        self.leading: Leading | None = None
        # Why it does not serve, for those who ask.
        self.reason = "starting"
        self._s = setting
        self._note: BrokerRecord | None = None
        self._wake = asyncio.Event()
        # Whether this run of the node has led it, and nobody else has since.
        self._led = False
        # The epoch in which an administrator wanted it to be this node, come what may.
        self._chosen_epoch = 0
        self._deferred = 0
        self._invited: tuple[str, Invite] | None = None
        # The version that the watch has seen last.
        self._seen: int | None = _UNSEEN
        self._told_no_election = False
        self._changes = asyncio.Event()

    @property
    def term(self) -> int:
        """The highest epoch that this node has heard of."""
        noted = self._note.epoch if self._note is not None else 0
        return max(noted, self._journal_epoch())

    @property
    def record(self) -> BrokerRecord | None:
        """The record, as far as this node knows."""
        return self.master.record if self.master is not None else self._note

    @property
    def master(self) -> Master | None:
        """What looks after the replicas while this node is master."""
        return self.leading.master if self.leading is not None else None

    @property
    def epoch(self) -> int | None:
        """The epoch in which this node is master; None: it is not."""
        return self.leading.epoch if self.leading is not None else None

    def standing(self, number: int) -> Standing:
        """What this node knows, for another that asks."""
        owner = self._note.owner if self._note is not None else ""
        last, end, whole = self._journal_epoch(), 0, False
        if self.leading is not None:
            journal = self.leading.journal
            owner, end, whole = self._s.name, journal.flushed, not journal.damages
        elif self.follower is not None:
            end, whole = self.follower.end, self.follower.whole
        return Standing(number, self.broker, self.term, owner, last, end, whole)

    def wake(self) -> None:
        """Something has changed: look at it."""
        self._wake.set()

    def invited(self, node: str, op: Invite) -> None:
        """A master calls."""
        if self.leading is not None:
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
            self._note = self._s.notes.read(self.broker)
            while True:
                self._wake.clear()
                await self._rest(await self._step())
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.wait([watch])

    async def close(self) -> None:
        """Lead or follow no more."""
        if self.leading is not None:
            await self._cease("this node is going away", follow=False)
        await self._let_go()

    async def promote(self, *, force: bool = False) -> None:
        """Become master, and wait until it is so.

        Raises Forbidden when this node is not in sync, unless forced: what was acknowledged may be
        lost then. Raises BadRequest, Overload or ClusterError when it cannot be done.
        """
        if self.leading is not None:
            return
        registry = self._s.coordination
        if registry is None:
            raise BadRequest(f"broker {self.broker}: promotion needs a registry with values")
        found = await registry.get(record_path(self.broker))
        record = self._decode(found)
        base = record or self._note
        if base is None or self.follower is None:
            raise BadRequest(f"broker {self.broker}: {self._s.name} has no copy of it")
        if not force:
            self._check_member(record)
        answers = await self._s.inquiries.ask(self.broker, base.others(self._s.name))
        epoch = next_epoch(record, self._note, self._journal_epoch(), answers.values())
        insync = [node for node in base.insync if node in answers and not force]
        mine = claimed(base, self._s.name, epoch, insync, self._s.options.mode)
        await registry.put(record_path(self.broker), encode_broker(mine), _version(found))
        log.warning("broker promoted", broker=self.broker, epoch=epoch, forced=force)
        self._take_note(mine)
        self._chosen_epoch = epoch
        self._wake.set()
        await self._until_leading()

    def _check_member(self, record: BrokerRecord | None) -> None:
        name, follower = self._s.name, self.follower
        assert follower is not None
        if record is None or record.epoch < self.term:
            raise Forbidden(
                f"broker {self.broker}: the registry has forgotten who is in sync; its master"
                " writes it again; force promotes this copy, which may lack what was acknowledged"
            )
        if name not in record.insync or not follower.whole:
            raise Forbidden(
                f"broker {self.broker}: {name} is not in sync ({', '.join(record.insync)}); force"
                " promotes it all the same, but it may lack acknowledged messages"
            )

    async def _until_leading(self) -> None:
        try:
            async with asyncio.timeout(PROMOTE_S):
                while self.leading is None:
                    self._changes.clear()
                    await self._changes.wait()
        except TimeoutError:
            raise Overload(
                f"broker {self.broker}: not master yet: {self.reason}", outcome_unknown=True
            ) from None

    async def _watch(self, registry: Coordination) -> None:
        async for found in registry.watch(record_path(self.broker)):
            self._seen = _version(found)
            self._wake.set()

    async def _rest(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _step(self) -> float:
        """Do what is to be done now; returns how long that may stand."""
        try:
            if self.leading is not None:
                return await self._lead_on(self.leading)
            return await self._follow_on()
        except (ClusterError, StorageError, OSError, RequestError) as error:
            self.reason = str(error)
            log.warning("broker waits", broker=self.broker, reason=str(error))
            return RETRY_S

    async def _lead_on(self, leading: Leading) -> float:
        master = leading.master
        if (trouble := leading.trouble(asyncio.get_running_loop().time())) is not None:
            await self._cease(trouble)
            return RETRY_S
        if master is None:
            return LOOK_S
        if leading.version is None or self._seen not in (leading.version, _UNSEEN):
            await self._read_again(leading, master)
            self._seen = leading.version
            return 0.0
        if master.proposed is not None:
            await self._agree(leading, master, master.proposed)
        if master.ready and not leading.serving and leading.journal.failed is None:
            self._serve(leading)
        return LOOK_S

    async def _agree(self, leading: Leading, master: Master, proposed: BrokerRecord) -> None:
        """Change the record; when nobody knows whether it was, it is read again first."""
        assert self._s.coordination is not None
        version, leading.version = leading.version, None
        path = record_path(self.broker)
        try:
            written = await self._s.coordination.put(path, encode_broker(proposed), version)
        except Conflict:
            self._wake.set()
            return
        leading.version = self._seen = written.version
        self._take_note(proposed)
        master.agreed(proposed)
        log.info("broker agreed", broker=self.broker, insync=proposed.insync)

    async def _read_again(self, leading: Leading, master: Master) -> None:
        """See whether the record is still this node's."""
        assert self._s.coordination is not None
        found = await self._s.coordination.get(record_path(self.broker))
        record = self._decode(found)
        if found is None or record is None:
            await self._cease("fenced: the registry has forgotten this broker")
        elif record.owner == self._s.name and record.epoch == leading.epoch:
            leading.version = found.version
            self._take_note(record)
            master.agreed(record)
        else:
            await self._cease(f"fenced: {record.owner} is master in epoch {record.epoch}")

    async def _follow_on(self) -> float:
        name, registry = self._s.name, self._s.coordination
        if self.follower is None:
            self._follow()
        assert self.follower is not None
        if registry is None:
            if self.broker == name:
                await self._lead_alone()
            return LOOK_S
        try:
            found = await registry.get(record_path(self.broker))
        except ClusterError:
            if self._is_alone():
                await self._lead_alone()
                return LOOK_S
            raise
        record = self._decode(found)
        role = role_of(
            name, self.broker, record, self._note, self._journal_epoch(), self._s.options.replicas
        )
        if record is not None and record.epoch >= self.term:
            self._take_note(record)
        if role is Role.FOLLOW:
            return await self._consider(found, record)
        if role is Role.ALONE:
            await self._lead_alone()
            return LOOK_S
        return await self._take(role, found, record)

    def _is_alone(self) -> bool:
        """Whether it never had copies and is to have none: then no registry is needed."""
        alone = self._note is None and not self._s.options.replicas
        return alone and self.broker == self._s.name

    async def _lead_alone(self) -> None:
        """Be master without copies, and so without anybody's leave."""
        journal = await self._load()
        journal.begin_epoch(max(1, journal.epoch))
        self.leading = Leading(journal, journal.epoch)
        self._serve(self.leading)

    async def _consider(self, found: Versioned | None, record: BrokerRecord | None) -> float:
        """Become master in an election, when there is none and this node may."""
        self.reason = "another node is its master"
        if not await self._may_stand(record):
            self._deferred = 0
            return LOOK_S
        assert self._s.coordination is not None
        await asyncio.sleep(self._s.rng.uniform(0, ELECTION_S))
        return await self._take(Role.FOLLOW, found, record)

    async def _may_stand(self, record: BrokerRecord | None) -> bool:
        """Whether this node may become master by itself: in sync, whole, and nobody else is it."""
        follower, name = self.follower, self._s.name
        if self._s.options.promotion != "auto" or record is None or follower is None:
            return False
        if record.epoch < self.term or name not in record.insync or not follower.whole:
            return False
        if any(epoch >= record.epoch for epoch in self._s.masters_of(self.broker).values()):
            return False
        reason = await self._s.no_election()
        if reason is not None and not self._told_no_election:
            self._told_no_election = True
            log.warning("no election", broker=self.broker, reason=reason)
        return reason is None

    async def _take(
        self, role: Role, found: Versioned | None, record: BrokerRecord | None
    ) -> float:
        """Try to become master: the lease first, then the record, then the log."""
        assert self._s.coordination is not None
        try:
            lease = await self._s.coordination.acquire(
                lease_path(self.broker), self._s.name.encode()
            )
        except Held as held:
            self.reason = f"{held.holder.decode(errors='replace')} still holds its lease"
            return RETRY_S
        try:
            taken = await self._claim(role, found, record)
            if taken is not None:
                await self._lead(lease, *taken)
        finally:
            if self.leading is None:
                await lease.release()
        return 0.0 if self.leading is not None else RETRY_S

    async def _claim(
        self, role: Role, found: Versioned | None, record: BrokerRecord | None
    ) -> tuple[BrokerRecord, int] | None:
        """Have the record say that it is this node; None when it should not, now."""
        name, follower, registry = self._s.name, self.follower, self._s.coordination
        assert follower is not None
        assert registry is not None
        fresh = BrokerRecord(owner=name, epoch=0, insync=(name,))
        base = (self._note if role is Role.RECLAIM else record) or self._note or fresh
        asked = self._s.peers.linked() if role is Role.FOUND else base.others(name)
        answers = await self._s.inquiries.ask(self.broker, asked)
        chosen = base.epoch == self._chosen_epoch
        if not chosen and not self._may_claim(role, base, answers):
            return None
        epoch = next_epoch(record, self._note, self._journal_epoch(), answers.values())
        owner = name
        copy = Copy(self._journal_epoch(), follower.end)
        ahead = None if chosen else better(copy, base.insync, answers)
        if ahead is not None:
            if role is Role.FOLLOW and self._deferred < _DEFER_MAX:
                self._deferred += 1
                self.reason = f"{ahead} has more"
                return None
            owner = ahead
        insync = base.insync
        if role is Role.FOLLOW:
            insync = tuple(node for node in base.insync if node in answers)
        mine = claimed(base, owner, epoch, insync, self._s.options.mode)
        written = await registry.put(record_path(self.broker), encode_broker(mine), _version(found))
        self._take_note(mine)
        if owner != name:
            log.warning("broker handed over", broker=self.broker, to=owner, epoch=epoch)
            return None
        return mine, written.version

    def _may_claim(self, role: Role, base: BrokerRecord, answers: dict[str, Standing]) -> bool:
        """Whether nothing speaks against it; else `reason` says what does."""
        name, follower = self._s.name, self.follower
        assert follower is not None
        newer = newer_master(name, max(self.term, base.epoch), answers)
        if newer is not None:
            self.reason = f"{newer} is master of a newer epoch"
            return False
        copy = Copy(self._journal_epoch(), follower.end)
        ahead = better(copy, answers, answers) if role is Role.FOUND else None
        if ahead is not None:
            self.reason = f"{ahead} has a copy with more than is here: promote it"
            return False
        unsure = (role is Role.RECLAIM and not self._led) or not (follower.whole and follower.end)
        silent = [node for node in base.insync if node != name and node not in answers]
        if unsure and silent:
            self.reason = (
                f"{', '.join(silent)} may have more of it, and cannot be reached; promote with"
                " force to go on without"
            )
            log.warning("broker waits", broker=self.broker, reason=self.reason)
            return False
        return True

    async def _lead(self, lease: Lease, record: BrokerRecord, version: int) -> None:
        """Open the log in a new epoch, and call the replicas."""
        loop = asyncio.get_running_loop()
        journal = await self._load()
        try:
            journal.begin_epoch(record.epoch)
        except RequestError:
            self._s.brokers.on_fenced(self.broker, "it cannot be written to")
            await journal.close()
            raise
        options = self._s.options
        master = Master(
            name=self._s.name,
            broker=self.broker,
            record=record,
            journal=journal,
            peers=self._s.peers,
            options=options,
            time=loop.time,
            until=lambda: lease.until,
            wake=self._wake.set,
        )
        self.leading = Leading(journal, record.epoch)
        self.leading.hold(master, lease, version)
        self._seen = version
        self._led = True
        self._deferred = 0
        self.reason = f"not all of {', '.join(record.insync)} have all of its log yet"
        log.info("broker led", broker=self.broker, epoch=record.epoch, insync=record.insync)
        self.leading.watch(min(options.timeout_s, options.interval_s) / 4, self._wake)
        master.start()
        self._tell_changed()

    def _serve(self, leading: Leading) -> None:
        leading.serving = True
        self.reason = ""
        self._s.brokers.on_master(self.broker, leading.journal)
        self._tell_changed()

    async def _cease(self, reason: str, *, follow: bool = True) -> None:
        """Be master no more, whatever waits."""
        leading, self.leading = self.leading, None
        assert leading is not None
        self.reason = reason
        log.warning("broker ceased", broker=self.broker, epoch=leading.epoch, reason=reason)
        leading.journal.fence(reason)
        self._s.brokers.on_fenced(self.broker, reason)
        await leading.end()
        self._tell_changed()
        if follow:
            self._follow()

    async def _load(self) -> Journal:
        """Open the journal anew, with its state."""
        await self._let_go()
        journal = self._s.brokers.open_journal(self.broker)
        try:
            await self._s.brokers.load(self.broker, journal)
        except (StorageError, OSError):
            self._s.brokers.on_fenced(self.broker, "it cannot be loaded")
            await journal.close()
            raise
        return journal

    def _follow(self) -> None:
        """Open the journal anew, for a master to write to."""
        journal = self._s.brokers.open_journal(self.broker)
        for _ in journal.recover():
            pass
        self.follower = Follower(
            broker=self.broker,
            journal=journal,
            peers=self._s.peers,
            term=max(journal.epoch, self.term),
            heard=self._heard,
        )
        invited, self._invited = self._invited, None
        if invited is not None:
            self.follower.invite(*invited)

    async def _let_go(self) -> None:
        follower, self.follower = self.follower, None
        if follower is not None:
            follower.rest()
            await follower.journal.close()

    def _heard(self, epoch: int, node: str) -> None:
        """A master of a newer epoch calls: none of an older one is believed from now on."""
        base = self._note or BrokerRecord(owner=node, epoch=epoch, insync=(node,))
        self._take_note(claimed(base, node, epoch, base.insync, base.mode))
        self._led = False
        self._wake.set()

    def _take_note(self, record: BrokerRecord) -> None:
        if record.owner != self._s.name:
            self._led = False
        if record != self._note:
            self._s.notes.write(self.broker, record)
            self._note = record

    def _journal_epoch(self) -> int:
        if self.leading is not None:
            return self.leading.journal.epoch
        return self.follower.journal.epoch if self.follower is not None else 0

    def _decode(self, found: Versioned | None) -> BrokerRecord | None:
        return None if found is None else decode_broker(found.value, record_path(self.broker))

    def _tell_changed(self) -> None:
        self._changes.set()
        self._s.changed()


def _version(found: Versioned | None) -> int | None:
    return None if found is None else found.version
