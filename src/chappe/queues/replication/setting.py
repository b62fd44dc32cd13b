"""What all seats of a node share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from chappe.queues.options import ReplicationOptions
from chappe.queues.replication.inquiry import Inquiries
from chappe.queues.replication.note import Notes
from chappe.queues.replication.peers import Brokers, Peers
from chappe.registry.coordination import Coordination


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A node's place among others."""

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
