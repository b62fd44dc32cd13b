"""Backlog: what is in queues, minute after minute, of what came into them and went.

An hour needs nothing of those before but what was in queues then. So a queue that is not empty has
a row in every hour in which anything happens in any queue: at its begin, if it has no other. What
was there before an hour is then in the last one before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from chappe.pipeline.columns import NONE, Longs, changes, longs, optional, ranks, running, whole
from chappe.pipeline.hours import hour_us
from chappe.pipeline.parts import Attempt, write_part
from chappe.pipeline.reading import columns_of
from chappe.pipeline.schema import MINUTES, TABLES, arrow_schema
from chappe.pipeline.table import Table

_MINUTES = arrow_schema(MINUTES)
_SCHEMA = arrow_schema(TABLES["queues"])
_STOCK = ("app", "queue", "window", "lag", "frontier")

# An app's queue.
Queue = tuple[str, str]


class Stock(NamedTuple):
    """What is in a queue, and when the youngest message was ready that was handed out since it was
    last empty; None if none was."""

    lag: int
    frontier: int | None


def write_queues(attempt: Attempt, since_us: int, minutes: Mapping[str, Sequence[str]]) -> set[str]:
    """Write the rows of all hours since a time, of files of what happened in each; says which rows
    that were there before these replace."""
    table = Table(attempt.tables, "queues")
    later = table.hours_from(since_us)
    stock = last_known(table, table.hours() - later)
    for hour in sorted(minutes):
        told = pa.concat_tables(
            [_MINUTES.empty_table(), *columns_of(minutes[hour], _MINUTES.names)]
        )
        made = of_hour(hour, told, stock)
        write_part(attempt, "queues", hour, 0, made)
        stock = stock_of(made)
    return later


def frontiers(table: Table) -> dict[Queue, int]:
    """Of each app's queue that is not empty when the youngest message was ready that was handed
    out; all that waits since before it was overtaken."""
    stock = last_known(table, table.hours())
    return {queue: one.frontier for queue, one in stock.items() if one.frontier is not None}


def goes_on_from(table: Table, hour: str) -> str:
    """The last hour before one that there is something of: what is in queues in that one is what
    was in them then."""
    return max((before for before in table.hours() if before < hour), default=hour)


def last_known(table: Table, hours: set[str]) -> dict[Queue, Stock]:
    """What was in queues at the end of the last of some hours."""
    if not hours:
        return {}
    files = table.files([max(hours)])
    return stock_of(pa.concat_tables(columns_of(files, _STOCK)))


def stock_of(rows: pa.Table) -> dict[Queue, Stock]:
    """What is in queues after an hour, of its rows; of those that are empty, nothing."""
    last = {
        (row["app"], row["queue"]): row for row in rows.select(_STOCK).sort_by("window").to_pylist()
    }
    return {
        queue: Stock(row["lag"], row["frontier"]) for queue, row in last.items() if row["lag"] != 0
    }


def of_hour(hour: str, minutes: pa.Table, stock: Mapping[Queue, Stock]) -> pa.Table:
    """An hour's rows by queue and minute; `lag` is what is in it at the minute's end."""
    rows = pa.concat_tables([minutes, _waiting(hour, minutes, stock)]).sort_by(
        [(name, "ascending") for name in ("app", "queue", "window")]
    )
    columns = {name: whole(rows[name]) for name in rows.column_names}
    [app], _names = ranks(columns["app"])
    [queue], _names = ranks(columns["queue"])
    begins = np.flatnonzero(changes(app, queue))
    owners = zip(
        *(columns[name].take(pa.array(begins)).to_pylist() for name in ("app", "queue")),
        strict=True,
    )
    known = [stock.get(owner, _EMPTY) for owner in owners]
    made: dict[str, Any] = {
        **columns,
        "hour": [hour] * len(rows),
        "lag": running(longs(columns["change"]), begins, [one.lag for one in known]),
        "frontier": _youngest(longs(columns["frontier"], -1), begins, known),
    }
    return pa.table([pa.array(made[one.name], one.type) for one in _SCHEMA], schema=_SCHEMA)


_EMPTY = Stock(0, None)


def _waiting(hour: str, minutes: pa.Table, stock: Mapping[Queue, Stock]) -> pa.Table:
    """A row for each queue that is not empty and in which nothing happens."""
    told = {*zip(minutes["app"].to_pylist(), minutes["queue"].to_pylist(), strict=True)}
    zeros = {
        one.name: 0
        for one in _MINUTES
        if pa.types.is_integer(one.type) and one.name not in ("frontier", "age_max")
    }
    rows = [
        {**zeros, "app": app, "queue": queue, "window": hour_us(hour)}
        for app, queue in stock.keys() - told
    ]
    return pa.Table.from_pylist(rows, _MINUTES)


def _youngest(frontier: Longs, begins: Longs, known: Sequence[Stock]) -> pa.Array:
    """The largest so far of each queue; -1 is none."""
    upto = frontier.copy()
    before = [-1 if one.frontier is None else one.frontier for one in known]
    upto[begins] = np.maximum(upto[begins], np.array(before, np.int64))
    values, rank = np.unique(upto, return_inverse=True)
    # One queue after another, so that none looks back at the one before it.
    lift = np.cumsum(np.isin(np.arange(len(rank)), begins)) * (len(values) + 1)
    found = values[np.maximum.accumulate(rank + lift) - lift] if len(rank) else upto
    return optional(np.where(found < 0, NONE, found))
