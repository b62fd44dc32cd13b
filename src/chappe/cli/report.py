"""`chappe report`: all tables as one page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chappe.cli.options import Json, console, print_json
from chappe.cli.pipeline.extra import Tables, check_tables, extra
from chappe.errors import ConfigError


def report(
    tables: Tables,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    as_json: Json = False,
) -> None:
    """Write one page with plots of all tables; it needs nothing but a browser."""
    check_tables(tables)
    with extra():
        from chappe.pipeline.report import write  # noqa: PLC0415, slow, and seldom installed
    try:
        size = write(tables, out)
    except OSError as error:
        raise ConfigError(f"--out: {error}") from None
    if as_json:
        print_json({"ok": True, "out": str(out), "bytes": size})
        return
    console.print(f"wrote {out.absolute()}", highlight=False, soft_wrap=True)
