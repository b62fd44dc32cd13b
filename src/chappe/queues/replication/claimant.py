"""A claimant: a node that is to become master of a broker, or wants to.

The lease comes first: with it no other node writes. Then the record, by compare-and-set: with it no
other node is believed. Only then is the log opened, which is somebody else's work (seat.py). By
command it is the record first, since a master that sees it hands its lease back.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import structlog

from chappe.errors import BadRequest, Forbidden, Held
from chappe.queues.replication.claim import Role, better, claimed, newer_master, next_epoch
from chappe.queues.replication.knowledge import Knowledge
from chappe.queues.replication.record import (
    BrokerRecord,
    decode_broker,
    encode_broker,
    lease_path,
    record_path,
)
from chappe.queues.replication.setting import Setting
from chappe.registry.coordination import Coordination, Lease, Versioned
from chappe.wire.replica import Standing

log = structlog.get_logger()

# Before a replica tries to be master: a random time up to this, so that not all try at once.
ELECTION_S = 0.3
# How often a candidate lets one go first that has more.
_DEFER_MAX = 3


class Taken(NamedTuple):
    """What makes a master."""

    lease: Lease
    record: BrokerRecord
    version: int


class Claimant:
    """Claims one broker for this node."""

    def __init__(self, known: Knowledge, setting: Setting, registry: Coordination) -> None:
        self._known = known
        self._s = setting
        self._registry = registry
        self._path = record_path(known.broker)
        self._deferred = 0
        self._told_no_election = False

    async def look(self) -> tuple[Versioned | None, BrokerRecord | None]:
        """Read the record; raises ClusterError."""
        found = await self._registry.get(self._path)
        return found, None if found is None else decode_broker(found.value, self._path)

    async def put(self, record: BrokerRecord, version: int | None) -> int:
        """Agree on a record, and note it; gives its version. Raises Conflict and ClusterError."""
        written = await self._registry.put(self._path, encode_broker(record), version)
        self._known.seen = written.version
        self._known.learn(record)
        return written.version

    async def may_stand(self, record: BrokerRecord | None) -> bool:
        """Whether this node may become master by itself: in sync, whole, and nobody else is it."""
        known = self._known
        if self._s.options.promotion != "auto" or record is None or not self._is_member(record):
            return False
        masters = self._s.masters_of(known.broker)
        if any(epoch >= record.epoch for epoch in masters.values()):
            self._deferred = 0
            return False
        reason = await self._s.no_election()
        if reason is not None and not self._told_no_election:
            self._told_no_election = True
            log.warning("no election", broker=known.broker, reason=reason)
        return reason is None

    async def stand(self) -> Taken | None:
        """Try to become master in an election."""
        await asyncio.sleep(self._s.rng.uniform(0, ELECTION_S))
        found, record = await self.look()
        if not await self.may_stand(record):
            return None
        return await self.take(Role.FOLLOW, found, record)

    async def take(
        self, role: Role, found: Versioned | None, record: BrokerRecord | None
    ) -> Taken | None:
        """Try to become master; None, with a reason, when it should not be now.

        Raises ClusterError, and OSError.
        """
        known = self._known
        try:
            lease = await self._registry.acquire(lease_path(known.broker), known.name.encode())
        except Held as held:
            known.reason = f"{held.holder.decode(errors='replace')} still holds its lease"
            return None
        taken: Taken | None = None
        try:
            claim = await self._claim(role, found, record)
            if claim is not None:
                taken = Taken(lease, *claim)
        finally:
            if taken is None:
                await lease.release()
        return taken

    async def promote(self, *, force: bool) -> None:
        """Have the record say that it is this node, whoever it was.

        Raises Forbidden when this node is not in sync and it is not forced, BadRequest when there
        is nothing to promote, and ClusterError.
        """
        known = self._known
        found, record = await self.look()
        base = record or known.note
        if base is None or known.follower is None or known.follower.journal.broken:
            raise BadRequest(f"broker {known.broker}: {known.name} has no copy that it can lead")
        if not force:
            self._check_member(record)
        answers = await self._s.inquiries.ask(known.broker, base.others(known.name))
        epoch = next_epoch(record, known.note, known.journal_epoch, answers.values())
        insync = [node for node in base.insync if node in answers and not force]
        mine = claimed(base, known.name, epoch, insync, self._s.options.mode)
        await self.put(mine, None if found is None else found.version)
        known.chosen_epoch = epoch
        log.warning("broker promoted", broker=known.broker, epoch=epoch, forced=force)

    def _is_member(self, record: BrokerRecord) -> bool:
        known = self._known
        whole = known.follower is not None and known.follower.whole
        return whole and record.epoch >= known.term and known.name in record.insync

    def _check_member(self, record: BrokerRecord | None) -> None:
        known = self._known
        if record is None or record.epoch < known.term:
            raise Forbidden(
                f"broker {known.broker}: the registry has forgotten who is in sync; its master"
                " writes it again; force promotes this copy, which may lack what was acknowledged"
            )
        if not self._is_member(record):
            raise Forbidden(
                f"broker {known.broker}: {known.name} is not in sync ({', '.join(record.insync)});"
                " force promotes it all the same, but it may lack what was acknowledged"
            )

    async def _claim(
        self, role: Role, found: Versioned | None, record: BrokerRecord | None
    ) -> tuple[BrokerRecord, int] | None:
        """Have the record say that it is this node; None when it should not, now."""
        known = self._known
        fresh = BrokerRecord(owner=known.name, epoch=0, insync=(known.name,))
        base = (known.note if role is Role.RECLAIM else record) or known.note or fresh
        asked = self._s.peers.linked() if role is Role.FOUND else base.others(known.name)
        answers = await self._s.inquiries.ask(known.broker, asked)
        chosen = base.epoch == known.chosen_epoch
        if not chosen and self._objection(role, base, answers):
            return None
        ahead = None if chosen else better(known.copy, base.insync, answers)
        if ahead is not None and role is Role.FOLLOW and self._deferred < _DEFER_MAX:
            self._deferred += 1
            known.reason = f"{ahead} has more of it"
            return None
        insync = base.insync
        if role is Role.FOLLOW:
            insync = tuple(node for node in base.insync if node in answers)
        epoch = next_epoch(record, known.note, known.journal_epoch, answers.values())
        mine = claimed(base, ahead or known.name, epoch, insync, self._s.options.mode)
        version = await self.put(mine, None if found is None else found.version)
        self._deferred = 0
        if ahead is not None:
            log.warning("broker handed over", broker=known.broker, to=ahead, epoch=epoch)
            return None
        return mine, version

    def _objection(self, role: Role, base: BrokerRecord, answers: dict[str, Standing]) -> bool:
        """Whether something speaks against this node; then `reason` says what."""
        known = self._known
        newer = newer_master(known.name, max(known.term, base.epoch), answers)
        ahead = better(known.copy, answers, answers) if role is Role.FOUND else None
        silent = [node for node in base.insync if node != known.name and node not in answers]
        if newer is not None:
            known.reason = f"{newer} is master of a newer epoch"
        elif ahead is not None:
            known.reason = f"{ahead} has a copy with more than is here: promote it"
        elif silent and self._is_unsure(role):
            known.reason = (
                f"{', '.join(silent)} may have more of it, and cannot be reached; promote with"
                " force to go on without"
            )
        else:
            return False
        return True

    def _is_unsure(self, role: Role) -> bool:
        """Whether others may have been master since, or this copy may have been more."""
        follower = self._known.follower
        good = follower is not None and follower.whole and follower.end > 0
        return not good or (role is Role.RECLAIM and not self._known.led)
