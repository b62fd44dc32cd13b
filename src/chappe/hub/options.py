"""The hub's options: every bound with its default's reason."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from chappe.address import check_app
from chappe.errors import BadRequest, ConfigError

OutboxPolicy = Literal["drop_oldest", "drop_newest", "close"]


def _refuse_negative(where: str, options: msgspec.Struct) -> None:
    for name in options.__struct_fields__:
        if getattr(options, name) < 0:
            raise ConfigError(f"hub.{where}.{name}: must not be below 0")


class Quota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one app may use of a node; 0 means no bound of its own."""

    connections: int = 0
    messages_per_s: int = 0
    bytes_per_s: int = 0

    def __post_init__(self) -> None:
        _refuse_negative("quota", self)


class AppQuota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one app may use, where that differs from what every app may."""

    connections: int | None = None
    messages_per_s: int | None = None
    bytes_per_s: int | None = None

    def __post_init__(self) -> None:
        self.on(Quota())

    def on(self, general: Quota) -> Quota:
        """The app's quota: its own bounds, and the general ones it does not name."""
        named = msgspec.structs.asdict(self).items()
        return msgspec.structs.replace(general, **{n: v for n, v in named if v is not None})


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one session may send; 0 means no bound."""

    messages_per_s: int = 0
    bytes_per_s: int = 0

    def __post_init__(self) -> None:
        _refuse_negative("rate", self)


class HubOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a hub treats its sessions."""

    # H4: five seconds, three missed.
    heartbeat_s: float = 5.0
    heartbeats_missed_max: int = 3
    # H4: a poll is a beat with a longer lease, since polls are rarer than frames.
    poll_lease_s: float = 60.0
    # A TLS handshake over a bad mobile link takes a few seconds; a stranger gets no longer.
    hello_timeout_s: float = 10.0
    # What one slow reader may hold back before the policy acts. Twice the largest message: any
    # message must fit, also as base64 in JSON.
    outbox_bytes_max: int = 2 * 1024 * 1024
    # All slow readers together; the largest outbox goes first.
    outboxes_bytes_max: int = 256 * 1024 * 1024
    topic_policy: OutboxPolicy = "drop_oldest"
    # A session's own set of topics is memory that a stranger could grow.
    subscriptions_max: int = 10_000
    connections_max: int = 1_000_000
    apps_max: int = 10_000
    rate: Rate = Rate()
    quota: Quota = Quota()
    quotas: dict[str, AppQuota] = {}

    def __post_init__(self) -> None:
        for name in (
            "heartbeat_s",
            "heartbeats_missed_max",
            "poll_lease_s",
            "hello_timeout_s",
            "outbox_bytes_max",
            "outboxes_bytes_max",
            "subscriptions_max",
            "connections_max",
            "apps_max",
        ):
            # So written, it refuses NaN as well; an endless interval would never come to its end.
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"hub.{name}: must be above 0, and finite")

        for app in self.quotas:
            try:
                check_app(app)
            except BadRequest as error:
                raise ConfigError(f"hub.quotas: {error.reason}") from None

    def quota_of(self, app: str) -> Quota:
        """The quota of an app: everybody's, but for what it has of its own."""
        own = self.quotas.get(app)
        return self.quota if own is None else own.on(self.quota)
