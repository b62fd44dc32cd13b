"""How large anything on the wire may be, checked before memory is taken for it."""

from __future__ import annotations

import msgspec

from chappe.errors import ConfigError


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on what a peer may send."""

    # A whole frame, envelope included. As NATS: large enough for any event, small enough that a
    # thousand at once fit in memory.
    message_bytes_max: int = 1024 * 1024
    # An endless run of empty fragments would cost CPU without ever reaching the byte bound.
    fragments_max: int = 4096
    receivers_max: int = 1000
    # A compressed message may grow a thousandfold; this bounds what it may grow to.
    inflated_bytes_max: int = 1024 * 1024
    malformed_max: int = 3

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ConfigError(f"limits.{name}: must be at least 1")
