"""How sessions are addressed by key: every bound with its default's reason."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from chappe.errors import ConfigError


class KeysOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a broker lives with others, and how it treats those who talk to it."""

    # K3: a broker is dead after two of them without a beat.
    interval_s: float = 10.0
    # A Redis in the same data centre answers within milliseconds.
    timeout_s: float = 2.0
    # How long a send waits to hear how many sessions others have reached.
    answer_s: float = 1.0
    # How long it is remembered who has a key. Whoever subscribes waits for it at the most, should
    # another broker not say that it has forgotten.
    cache_s: float = 1.0
    cache_keys_max: int = 10_000
    # While the bus is away, what is for other brokers is refused, or kept for a while.
    away: Literal["refuse", "keep"] = "refuse"
    keep_s: float = 30.0
    keep_bytes_max: int = 16 * 1024 * 1024
    # What may wait to be handed to the bus: a second of a fast network.
    outgoing_bytes_max: int = 64 * 1024 * 1024
    # What a session has said and its handlers have not come to; it is not read from meanwhile.
    inbox_messages_max: int = 64
    # Handlers that are not coroutines run in so many threads.
    threads_max: int = 32

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "away":
                continue
            # So written, it refuses NaN as well.
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigError(f"keys.{name}: must be a number above 0, and finite")
        if self.away not in ("refuse", "keep"):
            raise ConfigError("keys.away: must be refuse or keep")
        if self.cache_s >= self.interval_s:
            raise ConfigError("keys.cache_s: must be shorter than keys.interval_s")
