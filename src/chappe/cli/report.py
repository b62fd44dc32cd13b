"""`chappe report`: all tables as one page to look at."""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from chappe.cli.options import Json, console, print_json
from chappe.cli.pipeline.extra import Tables, check_tables, extra, reading
from chappe.errors import ConfigError


def report(
    tables: Tables,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    since: Annotated[
        str | None,
        typer.Option(help="Show what was from then on: 2026-05-01, 2026-05-01T13:30; UTC."),
    ] = None,
    until: Annotated[str | None, typer.Option(help="Show what was before then; UTC.")] = None,
    as_json: Json = False,
) -> None:
    """Write one page with plots of all tables, or of some time of them; it needs nothing but a
    browser."""
    first, end = _time("--since", since), _time("--until", until)
    if first is not None and end is not None and first >= end:
        raise ConfigError(f"--until: {until} is not after {since}")
    check_tables(tables)
    if out.is_dir():
        raise ConfigError(f"--out: {out} is a folder, not a page to write")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"--out: there is no folder {out.parent}")
    with extra():
        from chappe.pipeline.report import Period, write  # noqa: PLC0415, slow, seldom installed
    try:
        with reading(tables):
            written = write(tables, out, Period(first, end))
    except OSError as error:
        raise ConfigError(f"--out: {error}") from None
    if as_json:
        print_json({"ok": True, "out": str(out), "bytes": written.bytes})
        return
    console.print(f"wrote {out.absolute()}", highlight=False, soft_wrap=True)
    console.print(f"of {written.span}", highlight=False)


def _time(flag: str, text: str | None) -> int | None:
    """A time in microseconds since 1970, of UTC unless it says otherwise."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{flag}: {text!r} is not a time such as 2026-05-01 or 2026-05-01T13:30"
        ) from None
    if not MINYEAR < time.year < MAXYEAR:
        raise ConfigError(f"{flag}: {text} is too far away")
    known = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int(known.timestamp() * 1_000_000)
