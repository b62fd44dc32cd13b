"""How queues are made, and what all of a node's queues may use: each default with its reason."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from chappe.errors import BadRequest, ConfigError

# What a queue's maker may say of it, and the least and most of each.
_RANGES: dict[str, tuple[float, float]] = {
    "lanes": (1, 1_024),
    "depth_max": (1, 1_000_000_000),
    "bytes_max": (1, 1 << 44),
    # Below a millisecond a consumer could not even be written to in time.
    "ack_timeout_s": (0.001, 86_400.0),
    "attempts_max": (1, 1_000_000),
    "retry_s": (0.0, 86_400.0),
    "retry_max_s": (0.0, 86_400.0),
    "await_s": (0.001, 366 * 86_400.0),
    "push_interval_s": (0.0, 3_600.0),
    "expire_s": (0.0, 3_660 * 86_400.0),
}

# What a consumer, a group or a tag may be called.
NAME = re.compile(r"[A-Za-z0-9_.:@/-]{1,128}")
_CONSUMERS_MAX = 32

RETRY_S = 1.0
RETRY_MAX_S = 60.0
VOLATILE_DEPTH = 100_000
VOLATILE_BYTES = 64 * 1024 * 1024
DURABLE_DEPTH = 100_000_000
DURABLE_BYTES = 1 << 36


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one queue was made."""

    # Memory only: what it holds ends with its node (Q11's off).
    volatile: bool = False
    lanes: int = 1
    # What it holds, waiting and unacknowledged together.
    depth_max: int = DURABLE_DEPTH
    bytes_max: int = DURABLE_BYTES
    # Long enough for a job that calls others; a longer one is made so.
    ack_timeout_s: float = 60.0
    attempts_max: int = 16
    # The wait before the second attempt; it doubles with each one, up to the most.
    retry_s: float = RETRY_S
    retry_max_s: float = RETRY_MAX_S
    # Whether the next message of a lane waits for the one before it; by key it always does.
    ordered: bool = False
    # The consumers that messages of this queue are for; none: all who register (Q8).
    consumers: list[str] | None = None
    # How long a message waits for a consumer that never came (Q6).
    await_s: float = 86_400.0
    # One message per lane each round; 0: at once (Q6).
    push_interval_s: float = 0.0
    # A message that is older when its turn comes is a dead letter instead; 0: never.
    expire_s: float = 0.0

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            # So written, it refuses NaN as well.
            if not least <= getattr(self, name) <= most:
                raise BadRequest(f"{name}: must be between {least} and {most}")
        if self.consumers is not None:
            if not 1 <= len(self.consumers) <= _CONSUMERS_MAX:
                raise BadRequest(f"consumers: name between 1 and {_CONSUMERS_MAX}, or leave it out")
            if not all(NAME.fullmatch(name) for name in self.consumers):
                raise BadRequest("consumers: letters, digits and _.:@/-, 128 at most")

    @classmethod
    def of(cls, given: dict[str, Any]) -> QueueOptions:
        """What a maker said, and defaults for the rest; raises BadRequest naming a wrong field."""
        values = {name: value for name, value in given.items() if value is not None}
        if values.get("volatile"):
            # Memory is dearer than disk; and nobody waits longer than the node lives.
            values = {
                "depth_max": VOLATILE_DEPTH,
                "bytes_max": VOLATILE_BYTES,
                "retry_s": 0.0,
            } | values
        # Who says one of two means it: the other is a default, and follows.
        if values.get("retry_s", 0.0) > RETRY_MAX_S:
            values.setdefault("retry_max_s", values["retry_s"])
        if values.get("retry_max_s", RETRY_MAX_S) < RETRY_S:
            values.setdefault("retry_s", values["retry_max_s"])
        made = cls(**values)
        if made.retry_s > made.retry_max_s:
            raise BadRequest("retry_max_s: must not be below retry_s")
        return made


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all queues of a node may use."""

    queues_max: int = 10_000
    # All that is held in all volatile queues.
    bytes_max: int = 512 * 1024 * 1024
    # A consumer's messages from one queue: enough to be busy over a slow link.
    unacked_max: int = 1_000
    # Fetches that wait at one queue.
    waiting_max: int = 100_000
    # A proxy between gives up on a silent connection sooner than this.
    wait_ms_max: int = 300_000
    # How long a consumer whose outbox was full is passed over.
    stall_s: float = 1.0
    # The lanes there are before anybody asks for more (Q3).
    lanes: int = 10
    groups_max: int = 1_000
    consumers_max: int = 10_000
    # What one group has in hand of one lane: lent, waiting for another try, or behind its key.
    open_max: int = 10_000
    open_bytes: int = 64 * 1024 * 1024
    # What is read ahead for one group and lane.
    ahead_messages: int = 1_000
    ahead_bytes: int = 1024 * 1024
    delayed_max: int = 1_000_000
    delay_ms_max: int = 366 * 86_400_000
    # Producers whose last numbers a queue remembers, and how many of them each.
    producers_max: int = 10_000
    producer_window: int = 1_024
    # All such numbers of one queue: they are in every snapshot.
    producer_numbers_max: int = 100_000
    tags_max: int = 32
    headers_max: int = 64
    headers_bytes_max: int = 16 * 1024
    # Messages that wait for consumers that never came.
    awaited_max: int = 10_000
    # Dead letters of a queue; when there are more the oldest go.
    dead_max: int = 100_000
    volatile_dead_max: int = 1_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"queue_limits.{name}: must be above 0")


class ReplicationOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a broker's journal is copied to other nodes (Q10)."""

    # How many other nodes follow each broker; 0: none.
    replicas: int = 0
    # Whether an ACK waits for the replicas, or they follow behind.
    mode: Literal["async", "acknowledged"] = "async"
    interval_s: float = 1.0
    # How long an ACK waits for replicas before it is refused, and a silent one leaves the set.
    timeout_s: float = 5.0
    # Copies, the master's included, without which an acknowledged master takes nothing.
    insync_min: int = 2
    # Who becomes master when one dies: by command only, or a replica by itself.
    promotion: Literal["manual", "auto"] = "manual"
    # The apps whose administrators may promote: a broker has the queues of all apps.
    promoters: tuple[str, ...] = ("default",)

    def __post_init__(self) -> None:
        if not 0 <= self.replicas <= 15:
            raise ConfigError("replication.replicas: must be between 0 and 15")
        for name in ("interval_s", "timeout_s"):
            if not 0 < getattr(self, name) <= 3_600:
                raise ConfigError(f"replication.{name}: must be above 0, an hour at most")
        if not 1 <= self.insync_min <= 16:
            raise ConfigError("replication.insync_min: must be between 1 and 16")
