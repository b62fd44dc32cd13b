"""`chappe trace`: one message's whole way, from the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from chappe.cli.options import Json, console, print_json
from chappe.cli.pipeline.extra import Tables, check_tables, extra, reading
from chappe.errors import ChappeError
from chappe.ids import snowflake_ms

_ID_MAX = 2**63 - 1
_PIPE_COLUMNS = 1000


def trace(
    message: Annotated[str, typer.Argument(help="A message's id, or a request's.")],
    tables: Tables,
    as_json: Json = False,
) -> None:
    """Show the way of one message: every hop with its time, and what the audit says of it."""
    check_tables(tables)
    with reading(tables):
        paths, verdicts = _find(tables, message)
    if not paths and not verdicts:
        raise ChappeError(f"{message}: no table tells of it; {_why_not(tables, message)}")
    if as_json:
        print_json({"ok": True, "paths": paths, "audit": verdicts})
        return
    with extra():
        from chappe.pipeline.tree import tree_of, verdict_line  # noqa: PLC0415, as below
    # Lines are broken for eyes only: who reads a pipe wants a hop on one line.
    wide = console if console.is_terminal else Console(emoji=False, width=_PIPE_COLUMNS)
    for path in paths:
        told = [v for v in verdicts if v["app"] == path["app"]]
        wide.print(tree_of(path, told))
    # Ways are forgotten sooner than what was made of them.
    for verdict in verdicts if not paths else ():
        wide.print(verdict_line(verdict))
        wide.print("its way was forgotten (chappe pipeline expire)", style="dim")


def _why_not(tables: Path, id: str) -> str:
    """What may be the reason that nothing is known of an id."""
    number = _number(id)
    if number is None:
        return (
            "nor is this what ids are like: a number, which send and publish answer, "
            "or a request's label, which ends with one"
        )
    with extra():
        from chappe.pipeline.table import Table  # noqa: PLC0415, slow, and seldom installed
    hour = _hour_of(number)
    oldest = min(Table(tables, "paths").hours(), default=hour)
    if hour < oldest:
        return (
            f"it is of {hour} UTC, and the tables begin with {oldest}: what was before was "
            "forgotten (chappe pipeline expire), or no run has taken it"
        )
    return (
        "perhaps it was not recorded (events.share), or `chappe pipeline run` has not taken its "
        "events yet"
    )


def _number(id: str) -> int | None:
    """The number that an id is, or ends with: it tells when the message was born."""
    _, _, last = id.rpartition(".")
    if last.isascii() and last.isdecimal() and int(last) <= _ID_MAX:
        return int(last)
    return None


def _find(tables: Path, id: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The paths and the verdicts of an id: of a message if it is a number, else by its label.

    A number may be a label, too: a node that is alone labels requests so.
    """
    number = _number(id)
    if number is not None and "." not in id:
        found = _rows(tables, _hour_of(number), ("message", "=", number))
        if found[0] or found[1]:
            return found
    if number is not None:
        found = _rows(tables, _hour_of(number), ("label", "=", id))
        if found[0] or found[1]:
            return found
    return _rows(tables, None, ("label", "=", id))


def _rows(
    tables: Path, hour: str | None, wanted: tuple[str, str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    with extra():
        from chappe.pipeline.table import read  # noqa: PLC0415, slow, and seldom installed
    within = [wanted] if hour is None else [("hour", "=", hour), wanted]
    # The audit keeps what is not settled yet apart from all hours.
    return (
        read(tables, "paths", filters=within).to_pylist(),
        read(tables, "audit", filters=[wanted]).to_pylist(),
    )


def _hour_of(id: int) -> str:
    """The hour that a message is kept under: that of its id."""
    with extra():
        from chappe.pipeline.hours import hour_name  # noqa: PLC0415, as above
    return hour_name(snowflake_ms(id) * 1000)
