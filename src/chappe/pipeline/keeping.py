"""Keeping tables small: few files for each hour, nothing that is older than wanted. Needs no Spark.

Neither changes what tables say of the time that is kept, so both may be done whenever no run is.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable

from chappe.clock import SystemClock
from chappe.pipeline import bronze
from chappe.pipeline.clocks import hour_name
from chappe.pipeline.schema import TABLES
from chappe.pipeline.table import Table

# What the events themselves are in: most of all bytes.
LARGE = ("quarantine", "events", "paths", "open", "steps", "clocks")
# What is small, and stands for itself.
SMALL = ("latency", "delivery", "links", "audit")
# All others are sums over all time: who forgot their beginnings would count wrong.

# Readers, and a run that is under way, may still use what was replaced this long ago.
_READERS_H = 24


class Kept(NamedTuple):
    """What was done."""

    files_before: int
    files_after: int
    bytes_freed: int


def compact(tables: Path, *, files_max: int = 4) -> Kept:
    """Make one file of each hour that has more than so many, in every table."""
    now_ms = SystemClock().wall_ms()
    before = after = freed = 0
    for name in TABLES:
        table = Table(tables, name)
        before += len(table.files())
        table.compact(files_max, now_ms)
        after += len(table.files())
        freed += _vacuum(tables / name)
    return Kept(before, after, freed)


def expire(
    tables: Path,
    events: Collection[Path],
    *,
    large_before_us: int,
    small_before_us: int | None = None,
) -> Kept:
    """Forget what is older: events that runs have taken and what they were made into, and if a time
    is given for that, results, too. What sums are made of stays."""
    before = after = freed = 0
    ledger = bronze.Ledger(tables)
    new = set(ledger.new(bronze.found(events)))
    oldest = hour_name(large_before_us)
    for file in [one for one in bronze.found(events) if one not in new]:
        before += 1
        if bronze.hour_of_file(file) < oldest:
            freed += file.stat().st_size
            file.unlink()
        else:
            after += 1
    limits = dict.fromkeys(LARGE, large_before_us)
    limits |= dict.fromkeys(SMALL, small_before_us or 0)
    for name, limit in limits.items():
        table = Table(tables, name)
        before += len(table.files())
        table.forget(hour_name(limit))
        after += len(table.files())
        freed += _vacuum(tables / name)
    return Kept(before, after, freed)


def _vacuum(root: Path) -> int:
    """Remove the files that nobody can be reading any more; says how many bytes they had."""
    if not DeltaTable.is_deltatable(str(root)):
        return 0
    delta = DeltaTable(root)
    useless = delta.vacuum(_READERS_H, dry_run=True, enforce_retention_duration=False, full=True)
    freed = sum((root / file).stat().st_size for file in useless if (root / file).exists())
    delta.vacuum(_READERS_H, dry_run=False, enforce_retention_duration=False, full=True)
    return freed
