"""The bounds of work queues and services: each with its default's reason."""

from __future__ import annotations

import msgspec

from chappe.errors import BadRequest, ConfigError
from chappe.wire.ops import Create

# What a queue's maker may say of it, and the least and most of each.
_RANGES = {
    "depth_max": (1, 10_000_000),
    "bytes_max": (1, 1 << 40),
    # Below a millisecond a consumer could not even be written to in time.
    "ack_timeout_s": (0.001, 86_400.0),
    "attempts_max": (1, 1_000_000),
}


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one volatile queue was made."""

    # What it holds, waiting and unacknowledged together.
    depth_max: int = 100_000
    bytes_max: int = 64 * 1024 * 1024
    # Long enough for a job that calls others; a longer one is made so.
    ack_timeout_s: float = 60.0
    # As many as a durable queue gives.
    attempts_max: int = 16

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            # So written, it refuses NaN as well.
            if not least <= getattr(self, name) <= most:
                raise BadRequest(f"{name}: must be between {least} and {most}")

    @classmethod
    def of(cls, op: Create) -> QueueOptions:
        """What a create says of a queue; raises BadRequest naming a field that is wrong."""
        for name in ("anonymous", "history", "history_s"):
            if getattr(op, name) is not None:
                raise BadRequest(f"{name}: a queue has none")
        if not op.volatile:
            raise BadRequest(
                "volatile: this node keeps queues in memory only; say volatile: true to have one"
            )
        named = {name: getattr(op, name) for name in _RANGES}
        return cls(**{name: value for name, value in named.items() if value is not None})


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all work queues of a node may use."""

    queues_max: int = 10_000
    # All that is held in all queues.
    bytes_max: int = 512 * 1024 * 1024
    # A consumer's messages from one queue: enough to be busy over a slow link.
    unacked_max: int = 1_000
    # Fetches that wait at one queue.
    waiting_max: int = 100_000
    # A proxy between gives up on a silent connection sooner than this.
    wait_ms_max: int = 300_000
    # How long a consumer whose outbox was full is passed over.
    stall_s: float = 1.0

    def __post_init__(self) -> None:
        _refuse_nothing("queues", self)


class ServiceLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all services of a node may use."""

    services_max: int = 100_000
    # Requests that one provider has in hand: more would wait inside it, where nobody else can help.
    in_flight_max: int = 100
    # Requests of one service for which no provider is free.
    waiting_max: int = 10_000
    # The payloads of one service that are kept: those that wait, and those that may be repeated.
    bytes_max: int = 64 * 1024 * 1024
    # Requests that one session has open.
    requests_max: int = 1_000
    services_per_provider_max: int = 1_000
    # H18: never later than this.
    timeout_s: float = 30.0
    # Providers that an idempotent request may go to: one that kills them must not kill them all.
    attempts_max: int = 16
    stall_s: float = 1.0

    def __post_init__(self) -> None:
        _refuse_nothing("services", self)


def _refuse_nothing(where: str, limits: msgspec.Struct) -> None:
    for name in limits.__struct_fields__:
        if not getattr(limits, name) > 0:
            raise ConfigError(f"{where}.{name}: must be above 0")
