"""Claims: who may be master of a broker, decided from what is known and nothing else.

A registry's word is the record. It may be missing or older than what this node has noted, when the
registry was restarted empty or stepped back in time: then whoever was master writes it again, and
nobody else makes anything of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from chappe.queues.replication.record import BrokerRecord, Mode
from chappe.wire.replica import Standing


class Role(Enum):
    """What a node should be for a broker."""

    FOLLOW = "follow"
    # The record says so.
    LEAD = "lead"
    # The record has gone, or is older than what this node led.
    RECLAIM = "reclaim"
    # There never was one.
    FOUND = "found"
    # It has no copies, and so nothing to agree on.
    ALONE = "alone"


class Copy(NamedTuple):
    """How far a log is: of two, the larger has what the other lacks."""

    epoch: int
    end: int


def role_of(
    name: str,
    broker: str,
    record: BrokerRecord | None,
    note: BrokerRecord | None,
    log_epoch: int,
    replicas: int,
) -> Role:
    """What a node should be, by the registry's record and its own note."""
    term = max(log_epoch, note.epoch if note is not None else 0)
    if record is not None and record.epoch >= term:
        return Role.LEAD if record.owner == name else Role.FOLLOW
    if note is not None:
        return Role.RECLAIM if note.owner == name else Role.FOLLOW
    if record is not None:
        return Role.LEAD if record.owner == name else Role.FOLLOW
    if broker != name:
        return Role.FOLLOW
    return Role.FOUND if replicas else Role.ALONE


def next_epoch(
    record: BrokerRecord | None,
    note: BrokerRecord | None,
    log_epoch: int,
    answers: Iterable[Standing],
) -> int:
    """One above the highest that anybody has heard of."""
    heard = [known.epoch for known in (record, note) if known is not None]
    for answer in answers:
        heard += (answer.epoch, answer.last)
    return 1 + max(log_epoch, *heard) if heard else 1 + log_epoch


def newer_master(name: str, term: int, answers: Mapping[str, Standing]) -> str | None:
    """The master of a newer epoch than this node has heard of, if others know one."""
    newest = max(answers.values(), key=lambda answer: answer.epoch, default=None)
    if newest is None or newest.epoch <= term or newest.owner in ("", name):
        return None
    return newest.owner


def better(copy: Copy, insync: Collection[str], answers: Mapping[str, Standing]) -> str | None:
    """The in-sync replica that has most, if that is more than this copy."""
    copies = {
        node: Copy(answer.last, answer.end)
        for node, answer in sorted(answers.items())
        if answer.whole and node in insync
    }
    best = max(copies, key=copies.__getitem__, default=None)
    return best if best is not None and copies[best] > copy else None


def claimed(
    base: BrokerRecord, owner: str, epoch: int, insync: Iterable[str], mode: Mode
) -> BrokerRecord:
    """The record of a new master; the one before it is to be its replica."""
    members = tuple(dict.fromkeys((owner, *insync)))
    others = dict.fromkeys((*base.others(owner), base.owner, *members))
    replicas = tuple(node for node in others if node != owner)
    return msgspec.structs.replace(
        base, owner=owner, epoch=epoch, insync=members, replicas=replicas, mode=mode
    )
