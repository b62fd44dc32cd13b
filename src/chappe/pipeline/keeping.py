"""Keeping tables small: few files for each hour, nothing that is older than wanted. Needs no Spark.

Neither changes what tables say of the time that is kept, so both may be done whenever no run is
under way or unfinished. Whoever reads a table meanwhile goes on with the files that it had when
they began: those stay for a day, of a stream's tables for an hour.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable

from chappe.clock import SystemClock
from chappe.pipeline import bronze
from chappe.pipeline.backlog import goes_on_from
from chappe.pipeline.files import hour_of_file
from chappe.pipeline.hours import HOUR_US, hour_name
from chappe.pipeline.remains import check_finished
from chappe.pipeline.schema import TABLES
from chappe.pipeline.table import Table
from chappe.pipeline.told import DOWN_HOURS

# What the events themselves are in: most of all bytes.
LARGE = ("quarantine", "events", "paths", "clocks")
# What is small, and stands for itself. The audit judges what is open in every run: as long as its
# verdicts are kept, so is that.
SMALL = ("latency", "delivery", "links", "rooms", "room_load", "jobs", "queues", "odd",
         "audit")  # fmt: skip
# All others are sums over all time: who forgot their beginnings would count wrong.

# What is still told of the oldest hour that is kept is put together with what is known of the hours
# before it: clocks and sessions look back so far, links in events for a day.
_MARGIN_US = 3 * HOUR_US
_MARGIN_OF_EVENTS_US = _MARGIN_US + DOWN_HOURS * HOUR_US

# Readers may still use what was replaced this long ago.
_READERS_H = 24


class Kept(NamedTuple):
    """What was done."""

    files_before: int
    files_after: int
    bytes_freed: int


def compact(tables: Path, *, files_max: int = 4, readers_h: int = _READERS_H) -> Kept:
    """Merge small files wherever an hour has more of them than so many, in every table; what was
    replaced so many hours ago goes.

    Raises ChappeError while a run is unfinished.
    """
    check_finished(tables)
    now_ms = SystemClock().wall_ms()
    before = after = freed = 0
    for name in TABLES:
        table = Table(tables, name)
        before += len(table.files())
        table.compact(files_max, now_ms)
        after += len(table.files())
        freed += _vacuum(tables / name, readers_h)
    return Kept(before, after, freed)


def expire(
    tables: Path,
    events: Collection[Path],
    *,
    large_before_us: int,
    small_before_us: int | None = None,
) -> Kept:
    """Forget what is older: events that runs have taken and what they were made into, and if a time
    is given for that, results, too. What sums are made of stays.

    Raises ChappeError while a run is unfinished, as it needs its files again.
    """
    check_finished(tables)
    ledger = bronze.Ledger(tables)
    # Before anything is gone: what still comes of those hours is not made into hours anew.
    ledger.forget(large_before_us)
    before, after, freed = _forget_events(ledger, events, hour_name(large_before_us))
    limits = dict.fromkeys(LARGE, max(0, large_before_us - _MARGIN_US))
    limits["events"] = max(0, large_before_us - _MARGIN_OF_EVENTS_US)
    limits |= dict.fromkeys(SMALL, small_before_us or 0)
    # Made anew from any hour on that is not forgotten.
    limits["queues"] = min(limits["paths"], limits["queues"])
    for name, limit in limits.items():
        table = Table(tables, name)
        before += len(table.files())
        oldest = hour_name(limit)
        if name == "queues":
            oldest = goes_on_from(table, oldest)
        table.forget(oldest)
        after += len(table.files())
        freed += _vacuum(tables / name, _READERS_H)
    return Kept(before, after, freed)


def _forget_events(
    ledger: bronze.Ledger, events: Collection[Path], oldest: str
) -> tuple[int, int, int]:
    """Remove files that runs have taken; how many there were and are, and their bytes."""
    before = after = freed = 0
    every = set(bronze.found(events))
    for file in every - set(ledger.new(every)):
        before += 1
        if hour_of_file(file) < oldest:
            freed += file.stat().st_size
            file.unlink()
        else:
            after += 1
    return before, after, freed


def _vacuum(root: Path, readers_h: int) -> int:
    """Remove the files that nobody can be reading any more; says how many bytes they had."""
    if not DeltaTable.is_deltatable(str(root)):
        return 0
    delta = DeltaTable(root)
    useless = delta.vacuum(readers_h, dry_run=True, enforce_retention_duration=False, full=True)
    if not useless:
        return 0
    freed = sum((root / file).stat().st_size for file in useless if (root / file).exists())
    delta.vacuum(readers_h, dry_run=False, enforce_retention_duration=False, full=True)
    _remove_empty(root)
    return freed


def _remove_empty(root: Path) -> None:
    """Remove folders of runs that nothing is in any more, the innermost first."""
    for folder in sorted(root.glob("run=*/**"), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
