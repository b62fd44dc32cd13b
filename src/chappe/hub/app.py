"""An app: a tenant, with tables of its own. Nothing crosses from one to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chappe.hub.bucket import Bucket
from chappe.hub.options import Quota
from chappe.hub.table import ConnectionTable

if TYPE_CHECKING:
    from chappe.hub.fanout import Relay


class App:
    """What a node holds for one tenant.

    `endpoints`, `topics` and `rooms` are the connection tables of this node: users, the subscribers
    of topics, and the members of rooms. `routes` tells on which other nodes a user is (H10),
    `watchers` which other nodes have subscribers of a topic whose home is here.
    """

    __slots__ = (
        "byte_bucket",
        "connections",
        "endpoints",
        "message_bucket",
        "name",
        "quota",
        "rooms",
        "routes",
        "sessions",
        "topics",
        "watchers",
    )

    def __init__(self, name: str, quota: Quota, now: float) -> None:
        self.name = name
        self.quota = quota
        # All of its sessions here, and those that are connected to this node: the others stand in
        # for sessions of other nodes.
        self.sessions = 0
        self.connections = 0
        self.endpoints = ConnectionTable()
        self.topics = ConnectionTable()
        self.rooms = ConnectionTable()
        self.routes: dict[str, tuple[Relay, ...]] = {}
        self.watchers: dict[str, tuple[Relay, ...]] = {}
        self.message_bucket = Bucket(quota.messages_per_s, now) if quota.messages_per_s else None
        self.byte_bucket = Bucket(quota.bytes_per_s, now) if quota.bytes_per_s else None

    @property
    def metered(self) -> bool:
        """Whether its messages or bytes a second are counted."""
        return self.message_bucket is not None or self.byte_bucket is not None

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost if it were forgotten."""
        return not (self.sessions or self.metered or self.routes or self.watchers)
