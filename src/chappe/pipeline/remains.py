"""What a run leaves that was interrupted: tables without it, and its work so far."""

from __future__ import annotations

import shutil
from pathlib import Path

from chappe.errors import ChappeError
from chappe.pipeline.bronze import Ledger
from chappe.pipeline.making import Making
from chappe.pipeline.table import Table

# Below the tables, as `work.py` has it.
_WORK = "_work"


def unfinished(tables: Path) -> bool:
    """Whether the last run that was planned is not in every table."""
    run = Ledger(tables).run()
    return any(Table(tables, name).run() < run for name in Making.ORDER)


def check_finished(tables: Path) -> None:
    """Raise ChappeError while a run is unfinished: it needs all that it has so far, also what no
    table names yet. What one left that is finished goes."""
    if unfinished(tables):
        raise ChappeError(f"{tables}: a run was interrupted; another must finish it first")
    clear(tables)


def clear(tables: Path) -> None:
    """Throw away the work of a run that ended after its last table and before it did so itself;
    that of one that is unfinished stays."""
    work = tables / _WORK
    if work.is_dir() and not unfinished(tables):
        # A server of Connect may still write there what nobody waits for: that goes with the next.
        shutil.rmtree(work, ignore_errors=True)


def has_packs(tables: Path, run: int) -> bool:
    """Whether a run has read all its files: it needs them no more."""
    return (tables / _WORK / f"run={run}" / "packs.done").exists()
