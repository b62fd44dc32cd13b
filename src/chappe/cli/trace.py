"""`chappe trace`: one message's whole way, from the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from chappe.cli.options import Json, console, print_json
from chappe.cli.pipeline.extra import Tables, check_tables, extra, reading
from chappe.errors import ChappeError
from chappe.ids import prefixed_ms, snowflake_ms

_ID_MAX = 2**63 - 1
_PIPE_COLUMNS = 1000
# What the ids of jobs begin with.
_JOB = "j"


def trace(
    message: Annotated[
        str, typer.Argument(help="The id of a message, a request, a note of push or its job.")
    ],
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
        told = [v for v in verdicts if (v["app"], v["label"]) == (path["app"], path["label"])]
        wide.print(tree_of(path, told))
    # Ways are forgotten sooner than what was made of them.
    for verdict in verdicts if not paths else ():
        wide.print(verdict_line(verdict))
        wide.print("its way was forgotten (chappe pipeline expire)", style="dim")


def _why_not(tables: Path, id: str) -> str:
    """What may be the reason that nothing is known of an id."""
    born = _born_ms(id)
    if born is None:
        return (
            "nor is this what ids are like: a number, which send and publish answer, "
            "a request's label, which ends with one, or an id of push, such as p0a0000165f2c3d4"
        )
    with extra():
        from chappe.pipeline.table import Table  # noqa: PLC0415, slow, and seldom installed
    hour = _hour_of(born)
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
    """The number that an id is, or ends with."""
    _, _, last = id.rpartition(".")
    if last.isascii() and last.isdecimal() and int(last) <= _ID_MAX:
        return int(last)
    return None


def _born_ms(id: str) -> int | None:
    """When what has an id was born, as that tells."""
    number = _number(id)
    return prefixed_ms(id) if number is None else snowflake_ms(number)


def _find(tables: Path, id: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The paths and the verdicts of an id: of a message if it is a number, else by its label; of a
    job those of its notes.

    A number may be a label, too: a node that is alone labels requests so.
    """
    number, born = _number(id), _born_ms(id)
    if number is not None and "." not in id:
        found = _rows(tables, _hour_of(snowflake_ms(number)), ("message", "=", number))
        if found[0] or found[1]:
            return found
    if born is not None:
        if number is None and id.startswith(_JOB):
            return _of_job(tables, id)
        found = _rows(tables, _hour_of(born), ("label", "=", id))
        if found[0] or found[1]:
            return found
    return _rows(tables, None, ("label", "=", id))


def _of_job(tables: Path, job: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    with extra():
        from chappe.pipeline.table import read  # noqa: PLC0415, slow, and seldom installed
    notes = read(tables, "jobs", ["note"], filters=[("job", "=", job)])["note"].to_pylist()
    found = [_find(tables, note) for note in sorted(notes)]
    return [one for paths, _ in found for one in paths], [one for _, said in found for one in said]


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


def _hour_of(born_ms: int) -> str:
    """The hour that a message is kept under: that of its id."""
    with extra():
        from chappe.pipeline.hours import hour_name  # noqa: PLC0415, as above
    return hour_name(born_ms * 1000)
