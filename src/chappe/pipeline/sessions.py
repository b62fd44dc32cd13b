"""Sessions: who comes, goes and comes back, how long they stay, and who is cut off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.clocks import Clocks
from chappe.pipeline.columns import (
    NONE,
    Flags,
    Longs,
    changes,
    equal,
    longs,
    ranks,
    whole,
)
from chappe.pipeline.hours import HOUR_US, MINUTE_US, hour_us
from chappe.pipeline.lives import Life
from chappe.pipeline.options import Options
from chappe.pipeline.schema import TABLES, TURNOVER, arrow_schema
from chappe.pipeline.sketch import buckets_of, gathered, percentiles_of

_OPENED, _CLOSED = "session_opened", "session_closed"
# The kinds of events that are of sessions, and their columns.
KINDS: Final = (_OPENED, _CLOSED)
COLUMNS: Final = ("kind", "node", "boot", "serial", "at", "app", "target", "edge", "came")
_COUNTS: Final = ("opened", "closed", "reconnects")
_DURATIONS: Final = {"duration_p50": 0.5, "duration_p99": 0.99}
_PLACE: Final = ("app", "edge", "window")
_PROCESS: Final = ["app", "edge", "node", "boot"]
_STAYED: Final = {"opened": "sum", "closed": "sum", "first": "min", "last": "max"}
_OF_STAYS: Final = [one for one in arrow_schema(TABLES["stays"]) if one.name != "hour"]
_HOURS: Final = [pa.field(name, pa.string()) for name in ("first", "last")]
_STAYED_SCHEMA = pa.schema([*_OF_STAYS, *_HOURS])


class Cut(NamedTuple):
    """How many were cut off where and when."""

    app: str
    edge: str
    window: int
    cut: int


def stays(events: pa.Table) -> pa.Table:
    """How many sessions each process opened and closed, of an hour's events: those of one that died
    are closed with it, though nobody told."""
    rows = events.filter(pc.is_in(events["kind"], value_set=pa.array(KINDS)))
    for name, kind in (("opened", _OPENED), ("closed", _CLOSED)):
        rows = rows.append_column(name, pc.equal(rows["kind"], kind).cast(pa.int64()))
    return _by_process(rows, {"opened": "sum", "closed": "sum"})


def stayed(parts: Iterable[pa.Table]) -> pa.Table:
    """Stays of all hours, put together as they are read: a row for each process at each place, with
    the first of its hours and the last."""
    found = _STAYED_SCHEMA.empty_table()
    for part in parts:
        rows = part.append_column("first", part["hour"]).append_column("last", part["hour"])
        rows = pa.concat_tables([found, rows.select(_STAYED_SCHEMA.names).cast(_STAYED_SCHEMA)])
        found = _by_process(rows, _STAYED)
    return found


def _by_process(rows: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    grouped = rows.group_by(_PROCESS, use_threads=False)
    return grouped.aggregate([*columns.items()]).rename_columns([*_PROCESS, *columns])


def turnover(counts: pa.Table) -> pa.Table:
    """What of `sessions` comings and goings say."""
    schema = arrow_schema(TURNOVER)
    return percentiles_of(counts, _DURATIONS).select(schema.names).cast(schema)


def merged(parts: Sequence[pa.Table]) -> pa.Table:
    """Comings and goings of several pieces of an hour."""
    counts = pa.concat_tables(parts)
    buckets = whole(counts["buckets"])
    flat, owner = pc.list_flatten(buckets), pc.list_parent_indices(buckets)
    sums = counts.select([*_PLACE, *_COUNTS])
    sums = sums.append_column("bucket", pa.nulls(len(sums), pa.int32()))
    sums = sums.append_column("count", pa.array(np.zeros(len(sums), np.int64)))
    spread = counts.select(_PLACE).take(owner)
    for name in _COUNTS:
        spread = spread.append_column(name, pa.array(np.zeros(len(spread), np.int64)))
    for name in ("bucket", "count"):
        spread = spread.append_column(name, pc.struct_field(flat, name))
    return gathered(pa.concat_tables([sums, spread]), _PLACE, _COUNTS)


def moves(events: pa.Table, hour: str, clocks: Clocks, options: Options) -> pa.Table:
    """Comings and goings in an hour, by minute; of events also those of the hour before, after
    which somebody may be back, and of the hour after, by a clock that is ahead.

    By the clock of all: who goes from a node whose clock is ahead and comes to another would seem
    to have come first. Who was on a node that died came, as nobody told that it went.
    """
    rows = events.filter(pc.is_in(events["kind"], value_set=pa.array(KINDS)))
    columns = {name: whole(rows[name]) for name in COLUMNS}
    at, came = longs(columns["at"]), longs(columns["came"])
    time = at + clocks.shifts(columns["node"], at)
    opens, closes = equal(columns["kind"], _OPENED), equal(columns["kind"], _CLOSED)
    # When one begins by the clock of its own node, and ends by that of the same.
    lasted = np.where(closes & (came <= at), at - came, NONE)
    bucket = pa.array(buckets_of(lasted), mask=lasted == NONE)
    counted = {
        "app": columns["app"],
        "edge": columns["edge"],
        "window": pa.array(time - time % MINUTE_US),
        "opened": pa.array(opens.astype(np.int64)),
        "closed": pa.array(closes.astype(np.int64)),
        "reconnects": pa.array(_back(columns, time, opens, options).astype(np.int64)),
        "bucket": bucket,
        "count": bucket.is_valid().cast(pa.int64()),
    }
    here = time // HOUR_US == hour_us(hour) // HOUR_US
    return gathered(pa.table(counted).filter(pa.array(here)), _PLACE, _COUNTS)


def _back(columns: dict[str, pa.Array], time: Longs, opens: Flags, options: Options) -> Flags:
    """Who comes soon after going, wherever that was."""
    # Whoever they are: there are as many as events, and no order of theirs matters.
    app, who = (longs(columns[name].dictionary_encode().indices, -1) for name in ("app", "target"))
    [node], _names = ranks(columns["node"])
    boot, serial = longs(columns["boot"]), longs(columns["serial"])
    order = np.lexsort((serial, boot, node, time, who, app))
    came, when = opens[order], time[order]
    same = ~changes(app[order], who[order])
    found = np.zeros(len(order), dtype=np.bool_)
    soon = when[1:] - when[:-1] <= options.reconnect_ms * 1000
    found[order[1:]] = same[1:] & came[1:] & ~came[:-1] & soon
    return found


def cut_off(stayed: pa.Table, known: Iterable[Life]) -> list[Cut]:
    """How many sessions ended with the process that had them, at its last word."""
    ended = {
        (life.node, life.boot): life.began if life.alive is None else life.alive
        for life in known
        if life.died or life.stopped is not None
    }
    left = stayed.filter(pc.greater(stayed["opened"], stayed["closed"]))
    cuts: Counter[tuple[str, str, int]] = Counter()
    for row in left.to_pylist():
        last = ended.get((row["node"], row["boot"]))
        if last is not None:
            window = last - last % MINUTE_US
            cuts[row["app"], row["edge"], window] += row["opened"] - row["closed"]
    return [Cut(*place, cut) for place, cut in cuts.items()]


def since(hours: Iterable[str], before: Iterable[Cut], now: Iterable[Cut]) -> int:
    """From when on rows are made anew, if these hours are: from an hour before them, or before the
    first minute in which more or fewer were cut off than was thought. A process turns out to have
    died, or to have lived on, long after the events around it were taken."""
    changed = [cut.window for cut in set(before) ^ set(now)]
    first = min([*map(hour_us, hours), *changed])
    return first - first % HOUR_US - HOUR_US
