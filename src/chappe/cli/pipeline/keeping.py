"""`chappe pipeline compact` and `expire`: tables of few files, and nothing older than wanted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli.options import Json, console, print_json
from chappe.cli.pipeline.extra import Tables, check_tables, extra
from chappe.cli.pipeline.folders import check_folders
from chappe.cli.pipeline.holding import holding
from chappe.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from chappe.pipeline.keeping import Kept

_DAY_US = 86_400_000_000
_DAYS_MAX = 100_000


def compact(
    tables: Tables,
    files_max: Annotated[
        int, typer.Option(help="An hour with more files than this becomes one.")
    ] = 4,
    as_json: Json = False,
) -> None:
    """Make few large files of many small ones; what tables say stays the same."""
    check_tables(tables)
    if files_max < 1:
        raise ConfigError(f"--files-max: {files_max} is not above 0")
    with extra():
        from chappe.pipeline import keeping  # noqa: PLC0415, slow, and seldom installed
    with holding(tables):
        try:
            kept = keeping.compact(tables, files_max=files_max)
        except OSError as error:
            raise StorageError(f"{tables}: {error}") from None
    _tell(kept, as_json=as_json)


def expire(
    tables: Tables,
    days: Annotated[float, typer.Option(help="Forget events, and messages' ways, that are older.")],
    events: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of events to remove from what runs have taken; or several."),
    ] = None,
    results_days: Annotated[
        float | None, typer.Option(help="Forget results that are older, too; else they stay.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Forget what is older than some days; events that no run has taken stay."""
    check_tables(tables)
    check_folders(events or [])
    with extra():
        from chappe.pipeline import keeping  # noqa: PLC0415, as above
    large = _before("--days", days)
    small = None if results_days is None else _before("--results-days", results_days)
    with holding(tables):
        try:
            kept = keeping.expire(
                tables, events or [], large_before_us=large, small_before_us=small
            )
        except OSError as error:
            raise StorageError(f"{tables}: {error}") from None
    _tell(kept, as_json=as_json)


def _before(option: str, days: float) -> int:
    """The time that was so many days ago."""
    if not 0 < days <= _DAYS_MAX:
        raise ConfigError(f"{option}: {days:g} is not above 0 and at most {_DAYS_MAX:,}")
    return max(0, time.time_ns() // 1000 - int(days * _DAY_US))


def _tell(kept: Kept, *, as_json: bool) -> None:
    if as_json:
        print_json({"ok": True, **kept._asdict()})
        return
    console.print(
        f"{kept.files_before:,} files before, {kept.files_after:,} now; "
        f"{kept.bytes_freed / 1e6:,.1f} MB freed",
        highlight=False,
    )
