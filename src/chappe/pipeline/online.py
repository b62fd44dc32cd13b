"""Online: how many sessions there are, minute after minute, of who came, went and was cut off.

An hour has sixty rows for each app and edge at most, and needs nothing of those before but how many
were online then. So hours are made one after another, however many there are, and without Spark:
its plan alone takes longer than most of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.columns import Longs, changes, grouped, longs, ranks, running, whole
from chappe.pipeline.hours import HOUR_US, hour_name
from chappe.pipeline.lives import Life
from chappe.pipeline.parts import Attempt, write_part
from chappe.pipeline.past import all_hours
from chappe.pipeline.reading import columns_of
from chappe.pipeline.schema import TABLES, TURNOVER, arrow_schema
from chappe.pipeline.sessions import Cut, cut_off, since, stayed
from chappe.pipeline.table import Table, read

_TURNOVER = arrow_schema(TURNOVER)
_SCHEMA = arrow_schema(TABLES["sessions"])
_CUTS = pa.schema([_SCHEMA.field(name) for name in Cut._fields])
_LAST = ("app", "edge", "window", "online")

Place = tuple[str, str]
Files = Mapping[str, Sequence[str]]


def write_sessions(
    attempt: Attempt, hours: set[str], turnover: Files, known: Iterable[Life]
) -> set[str]:
    """Write the rows of some hours, of files of what was told of each, and of all that depend on
    them; says which rows that were there before these replace."""
    tables = attempt.tables
    table = Table(tables, "sessions")
    stays = stayed(all_hours(Table(tables, "stays")))
    every = cut_off(stays, known)
    before = read(tables, "sessions", Cut._fields, [("cut", ">", 0)])
    begin = since(hours, (Cut(**row) for row in before.to_pylist()), every)
    cuts = [cut for cut in every if cut.window >= begin]
    later = table.hours_from(begin)
    earlier = table.files_by_hour(table.hours() - later)
    online = last_known(earlier, places_since(stays, cuts, begin))
    kept = table.files_by_hour(later - hours)
    _write(attempt, {**kept, **turnover}, cuts, online)
    return later


def _write(
    attempt: Attempt, turnover: Files, cuts: Iterable[Cut], online: dict[Place, int]
) -> None:
    """Write the rows of all hours of which something was told, or in which somebody was cut off;
    `online` is how many were there before."""
    cut_in: dict[str, list[Cut]] = defaultdict(list)
    for cut in cuts:
        cut_in[hour_name(cut.window)].append(cut)
    for hour in sorted({*turnover, *cut_in}):
        parts = columns_of(turnover.get(hour, ()), _TURNOVER.names)
        told = pa.concat_tables([_TURNOVER.empty_table(), *(one.cast(_TURNOVER) for one in parts)])
        write_part(attempt, "sessions", hour, 0, of_hour(hour, told, cut_in[hour], online))


def last_known(files: Files, places: set[Place]) -> dict[Place, int]:
    """How many were online last in each of these places, by files of rows by hour. Looks no further
    back than it needs to."""
    found: dict[Place, int] = {}
    for hour in sorted(files, reverse=True):
        if places <= found.keys():
            break
        rows = pa.concat_tables(columns_of(files[hour], _LAST)).sort_by("window").to_pylist()
        found = {(row["app"], row["edge"]): row["online"] for row in rows} | found
    return found


def places_since(stays: pa.Table, cuts: Iterable[Cut], us: int) -> set[Place]:
    """Where there is something to tell of since a time, and was before, by the hours in which nodes
    told of it; those may be wrong by one."""
    later = stays.filter(pc.greater_equal(stays["last"], hour_name(us - HOUR_US)))
    before = stays.filter(pc.less(stays["first"], hour_name(us + HOUR_US)))
    return ({*_places(later)} | {(cut.app, cut.edge) for cut in cuts}) & {*_places(before)}


def _places(rows: pa.Table) -> Iterator[Place]:
    found = rows.group_by(["app", "edge"], use_threads=False).aggregate([])
    return zip(found["app"].to_pylist(), found["edge"].to_pylist(), strict=True)


def of_hour(
    hour: str, turnover: pa.Table, cuts: Sequence[Cut], online: dict[Place, int]
) -> pa.Table:
    """An hour's rows by app, edge and minute; `online` is put forward."""
    cut = pa.Table.from_pylist([one._asdict() for one in cuts], _CUTS)
    # In this order: what was told of a minute comes before who was cut off in it.
    rows = pa.concat_tables([turnover, cut], promote_options="default")
    columns = {name: whole(rows[name]) for name in rows.column_names}
    counts = {name: longs(columns[name], 0) for name in ("opened", "closed", "reconnects", "cut")}
    moved = np.flatnonzero(counts["opened"] + counts["closed"] + counts["cut"] > 0)
    if not len(moved):
        return _SCHEMA.empty_table()
    [app], _names = ranks(columns["app"])
    [edge], _names = ranks(columns["edge"])
    window = longs(columns["window"])
    order, starts = grouped([app[moved], edge[moved], window[moved]])
    first = moved[order[starts]]
    made: dict[str, Any] = {
        name: np.add.reduceat(count[moved][order], starts) for name, count in counts.items()
    }
    for name in ("app", "edge", "window", "duration_p50", "duration_p99"):
        made[name] = columns[name].take(pa.array(first))
    gone = made["closed"] + made["cut"]
    begins = np.flatnonzero(changes(app[first], edge[first]))
    made["online"] = _carried(made["opened"] - gone, begins, _at(columns, first[begins]), online)
    made["churn"] = _share(gone, made["online"] + gone)
    made["hour"] = [hour] * len(first)
    return pa.table([pa.array(made[one.name], one.type) for one in _SCHEMA], schema=_SCHEMA)


def _at(columns: Mapping[str, pa.Array], rows: Longs) -> list[Place]:
    app, edge = (columns[name].take(pa.array(rows)).to_pylist() for name in ("app", "edge"))
    return list(zip(app, edge, strict=True))


def _carried(change: Longs, begins: Longs, places: list[Place], online: dict[Place, int]) -> Longs:
    """How many are online after each change; those of a place follow each other."""
    now = running(change, begins, [online.get(place, 0) for place in places])
    ends = np.append(begins[1:], len(change)) - 1
    online.update(zip(places, now[ends].tolist(), strict=True))
    return now


def _share(part: Longs, of: Longs) -> pa.Array:
    """Null where it is of nothing."""
    some = of > 0
    return pa.array(part / np.where(some, of, 1), mask=~some)
