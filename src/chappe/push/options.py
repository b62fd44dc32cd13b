"""Options of push: every bound with its default's reason."""

from __future__ import annotations

import math

import msgspec

from chappe.errors import ConfigError
from chappe.wire.push import FRAME_BYTES_MAX

_WHOLE = (
    "sessions_max",
    "logins_max",
    "login_batch",
    "commands_max",
    "outbox_bytes_max",
    "cache_bytes_max",
    "list_batch",
    "list_notes_max",
    "flights_max",
    "done_max",
    "acks_max",
    "ack_batch",
    "topics_max",
    "handings_max",
)
_TIMES = ("heartbeat_s", "idle_s", "login_s", "redelivery_s", "retry_s", "cache_s", "drain_s")


class CometOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a comet treats devices."""

    # What devices are told to keep. Mobile networks forget a silent connection in some 5 minutes,
    # and each beat wakes a radio.
    heartbeat_s: float = 120.0
    # Two beats may get lost on a bad link; a device that is gone costs memory for no longer.
    idle_s: float = 300.0
    # From connecting to the key. A bad mobile link takes some seconds for two round trips; a
    # stranger gets no longer.
    login_s: float = 15.0
    # P7.
    redelivery_s: float = 1800.0
    # A store that is away is asked again that often.
    retry_s: float = 1.0
    # How long ending may take: devices are told, routes left, acknowledgements settled.
    drain_s: float = 10.0
    # Beyond the 70,000 of P13 in one process, descriptors are the bound.
    sessions_max: int = 100_000
    # Logins that wait to be looked up; one batch takes milliseconds, so this is seconds of a storm.
    logins_max: int = 10_000
    # Looked up in one round trip; keys for so many are made in 30 ms, in slices.
    login_batch: int = 256
    # Commands of one device that wait for the one before: a device asks a handful.
    commands_max: int = 64
    # What one device may hold back. Four of the largest frames: any note must fit.
    outbox_bytes_max: int = 4 * (FRAME_BYTES_MAX + 2)
    # Bodies of notes that went by lately; a broadcast's is asked for by all that log in after it.
    cache_bytes_max: int = 32 * 1024 * 1024
    # A note that was cancelled where nobody told this comet goes out no later than that.
    cache_s: float = 30.0
    # Devices whose lists are looked up in one round trip.
    list_batch: int = 64
    # Notes of one look-up, over all topics of a device; there are more when these are settled.
    list_notes_max: int = 1000
    # Notes that a device has and did not acknowledge: all that may wait for it, and some topics'.
    flights_max: int = 2000
    # Ids that a session remembers to have been acknowledged, lest they come again by another way.
    done_max: int = 256
    # Acknowledgements that wait for the store: half a minute of 10,000 a second, some 100 MB.
    acks_max: int = 300_000
    # Settled in one round trip: a store is held up by it for milliseconds.
    ack_batch: int = 1000
    # Topics per client.
    topics_max: int = 100
    # Notes that wait to be handed to many; senders are refused above that, and theirs wait stored.
    handings_max: int = 1000

    def __post_init__(self) -> None:
        for name in _WHOLE:
            if getattr(self, name) < 1:
                raise ConfigError(f"push.comet.{name}: must be at least 1")
        for name in _TIMES:
            # So written, NaN is refused as well.
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"push.comet.{name}: must be above 0, and finite")
        if self.idle_s <= self.heartbeat_s:
            raise ConfigError("push.comet.idle_s: must be longer than heartbeat_s")
        if self.outbox_bytes_max < 2 * FRAME_BYTES_MAX:
            raise ConfigError(
                f"push.comet.outbox_bytes_max: must hold two frames, {2 * FRAME_BYTES_MAX} bytes"
            )
