"""A journal's options: when it is flushed, how much it keeps, and every bound."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from chappe.errors import ConfigError
from chappe.log.batch import BODY_BYTES_MAX

MIB = 1024 * 1024


class JournalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set about a journal."""

    # Q11: synced before anything is acknowledged, synced every so often, or left to the machine.
    flush: Literal["always", "interval", "never"] = "always"
    flush_interval_s: float = 1.0
    # What a start has to read, and the least that retention can free.
    segment_bytes: int = 64 * MIB
    # What may wait for one write; above it, appends are refused. Twice as much is held in reserve
    # on the disk, so that a disk that fills up takes nothing back that was accepted.
    batch_bytes_max: int = 32 * MIB
    # Room is taken on the disk in such steps ahead of what is written: a flush is cheaper when the
    # file does not grow with it. 0: never.
    allocate_bytes: int = 4 * MIB
    # What all have passed is kept for this long at least, but no more than so many bytes of it
    # (0: as much as there is).
    retention_s: float = 0.0
    retention_bytes: int = 0
    # A larger journal takes nothing more; 0: as large as the disk.
    disk_bytes_max: int = 0
    # The newest batches, and those read from the disk last, stay in memory.
    cache_bytes: int = 8 * MIB

    def __post_init__(self) -> None:
        # So written, NaN is refused as well.
        if not 0 < self.flush_interval_s < math.inf:
            raise ConfigError("journal.flush_interval_s: must be above 0, and finite")
        if not 0 <= self.retention_s < math.inf:
            raise ConfigError("journal.retention_s: must be 0 or above, and finite")
        for name in ("segment_bytes", "batch_bytes_max"):
            if getattr(self, name) < 1024:
                raise ConfigError(f"journal.{name}: must be at least 1024")
        for name in ("allocate_bytes", "retention_bytes", "disk_bytes_max", "cache_bytes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"journal.{name}: must be 0 or above")
        if self.batch_bytes_max > BODY_BYTES_MAX // 2:
            raise ConfigError(f"journal.batch_bytes_max: must be at most {BODY_BYTES_MAX // 2}")
        if self.disk_bytes_max and self.disk_bytes_max < 2 * self.segment_bytes:
            # A segment has to be over before it can go.
            raise ConfigError(
                "journal.disk_bytes_max: must be at least twice journal.segment_bytes"
            )

    @property
    def reserve_bytes(self) -> int:
        """How much room is held on the disk for what was accepted and is not written yet."""
        return 2 * self.batch_bytes_max
