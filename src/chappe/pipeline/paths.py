"""Paths: one row for each message, with every hop that any node told of it.

The one large shuffle of a run is here: of packs, of which each has thousands of rows. All of an
hour's piece are put together, sorted by message and time, and looked at as arrays.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from chappe.pipeline.clocks import Clocks
from chappe.pipeline.columns import (
    Longs,
    longs,
    ranks,
    whole,
)
from chappe.pipeline.facts import Facts
from chappe.pipeline.hours import HOUR_US, hour_name
from chappe.pipeline.options import Options
from chappe.pipeline.packing import SUMS, Pack, read
from chappe.pipeline.parts import Attempt, write_part
from chappe.pipeline.reading import FILES, hops_of
from chappe.pipeline.schema import (
    MESSAGE_NAMES,
    PACK,
    TABLES,
    arrow_schema,
)
from chappe.pipeline.sums import Sums
from chappe.pipeline.trails import Trails

_SCHEMA = arrow_schema(TABLES["paths"])


def gather(
    packs: DataFrame, attempt: Attempt, clocks: Clocks, options: Options, pieces: int, tasks: int
) -> DataFrame:
    """Write the paths of packs of events, with times put right, and of those the odd ones; packs of
    what they say together. Each hour is in so many pieces."""
    keys = ("born_hour", "piece")
    by_piece = packs.select(*keys, "note", "data").repartition(tasks, *keys)
    gathered = functools.partial(
        _gathered, attempt=attempt, clocks=clocks, options=options, pieces=pieces
    )
    return by_piece.sortWithinPartitions(*keys).mapInArrow(gathered, PACK)


def _gathered(
    batches: Iterable[pa.RecordBatch],
    attempt: Attempt,
    clocks: Clocks,
    options: Options,
    pieces: int,
) -> Iterator[pa.RecordBatch]:
    """Of packs that come in the order of hours and pieces."""
    packs = (
        (hour.as_py(), piece.as_py(), note.as_py(), data)
        for batch in batches
        for hour, piece, note, data in zip(*batch.columns, strict=True)
    )
    for (hour, piece), same in itertools.groupby(packs, key=lambda pack: pack[:2]):
        rows = pa.concat_tables([rows for *_key, note, data in same for rows in _rows(note, data)])
        name = hour_name(hour * HOUR_US)
        paths, trails = paths_of(rows, name, clocks, options)
        if trails is None:
            continue
        write_part(attempt, "paths", name, piece, paths, pieces)
        write_part(attempt, "odd", name, piece, odd(paths))
        for note, sums in Sums(paths, trails, options).all():
            yield Pack(SUMS, hour, piece, sums, note).batch()


def _rows(note: str | None, data: pa.Scalar) -> Iterator[pa.Table]:
    """What a pack has, or the files that it names."""
    rows = read(data)
    if note != FILES:
        yield rows
        return
    for file in rows["file"].to_pylist():
        yield from hops_of(file)


def odd(paths: pa.Table) -> pa.Table:
    """The paths that the audit looks at."""
    return paths.filter(pc.or_(paths["open"], paths["suspect"]))


def paths_of(
    rows: pa.Table, hour: str, clocks: Clocks, options: Options
) -> tuple[pa.Table, Trails | None]:
    """Paths of events that are all of an hour, and their trails; None if there are none."""
    columns = {name: whole(rows[name]) for name in MESSAGE_NAMES}
    columns["shift"] = pa.array(clocks.shifts(columns["node"], longs(columns["at"])))
    starts = _sort(columns)
    if not len(starts):
        return _SCHEMA.empty_table(), None
    trails = Trails(columns, starts)
    return Facts(columns, trails, options).paths(hour), trails


def _sort(columns: dict[str, pa.Array]) -> Longs:
    """Put columns in the order of messages and times, each event once however often it was written
    down. Says where each message begins."""
    # What has a label has no id.
    [labels], _names = ranks(columns["label"])
    key = np.where(labels < 0, longs(columns["message"], 0), -1 - labels)
    [node], _names = ranks(columns["node"])
    boot, serial = longs(columns["boot"]), longs(columns["serial"])
    time = longs(columns["at"]) + longs(columns["shift"])
    order = np.lexsort((serial, boot, node, time, key))
    new = np.ones(len(order), dtype=np.bool_)
    begins = new.copy()
    begins[1:] = key[order][1:] != key[order][:-1]
    new[1:] = begins[1:]
    for part in (node, boot, serial):
        new[1:] |= part[order][1:] != part[order][:-1]
    rows = pa.array(order[new])
    for name, column in columns.items():
        columns[name] = column.take(rows)
    return np.flatnonzero(begins[new])
