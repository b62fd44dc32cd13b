"""An app: a tenant, with tables of its own. Nothing crosses from one to another."""

from __future__ import annotations

from chappe.hub.bucket import Bucket
from chappe.hub.options import Quota
from chappe.hub.table import ConnectionTable


class App:
    """What a node holds for one tenant."""

    __slots__ = (
        "byte_bucket",
        "endpoints",
        "message_bucket",
        "name",
        "quota",
        "sessions",
        "topics",
    )

    def __init__(self, name: str, quota: Quota, now: float) -> None:
        self.name = name
        self.quota = quota
        self.sessions = 0
        self.endpoints = ConnectionTable()
        self.topics = ConnectionTable()
        self.message_bucket = Bucket(quota.messages_per_s, now) if quota.messages_per_s else None
        self.byte_bucket = Bucket(quota.bytes_per_s, now) if quota.bytes_per_s else None

    @property
    def metered(self) -> bool:
        """Whether its messages or bytes a second are counted."""
        return self.message_bucket is not None or self.byte_bucket is not None
