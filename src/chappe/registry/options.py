"""A registry's times."""

from __future__ import annotations

import math

import msgspec

from chappe.errors import ConfigError


class RegistryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long what a node holds outlives it, and how often it looks."""

    # Three heartbeats of 5 s: one may be lost, and one late, before a node is given up.
    lease_s: float = 15.0
    # What is looked at anew even if nobody said that it changed: a notification may be lost.
    poll_s: float = 5.0
    # How long one request may take.
    timeout_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("lease_s", "poll_s", "timeout_s"):
            # So written, NaN is refused as well.
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"leases.{name}: must be above 0, and finite")


DEFAULTS = RegistryOptions()
