"""Reading: what nodes wrote, and paths that are to be made anew, as packs of rows.

Tasks read files themselves, a few columns at a time, and not row by row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from chappe.pipeline.columns import longs, present, whole
from chappe.pipeline.hours import HOUR_US, hour_us
from chappe.pipeline.packing import BAD, EVENTS, MESSAGES, Pack, framed, pieces_of, runs
from chappe.pipeline.schema import EVENT, HOP_NAMES, MESSAGE_NAMES, PACK, arrow_schema
from chappe.pipeline.silver import Check, Closed, birth_hours

_SCHEMA = arrow_schema(EVENT)
# So many rows of a file are in memory at a time.
_ROWS = 131_072
# More tasks than this are not worth their start.
_TASKS = 512
# What a pack of events notes that there is among them.
BEATS, CHANGES = "beats", "changes"
_NOTED = {BEATS: {"link"}, CHANGES: {"link_up", "link_down"}}
# What one notes that only names files.
FILES = "files"
# What a message is known by.
_OF = ("message", "label")


def read_events(
    spark: SparkSession, files: Sequence[str], closed: Closed, pieces: int, tasks: int
) -> DataFrame:
    """Packs of the rows of files, by what they are of. A pack of events notes whether there are
    beats among them, and links that came and went."""
    read = functools.partial(_events, closed=closed, pieces=pieces)
    return each(spark, files, tasks).mapInArrow(read, PACK)


def read_paths(spark: SparkSession, files: Sequence[str], pieces: int) -> DataFrame:
    """Packs of the events that paths were made of: to be gathered anew with others."""
    return each(spark, files).mapInArrow(functools.partial(_paths, pieces=pieces), PACK)


def name_paths(spark: SparkSession, files: Mapping[str, int]) -> DataFrame:
    """Packs that only name files of paths which have all of a piece each: whoever has that piece
    reads them."""
    packs = [
        Pack(MESSAGES, _hour_of(file), piece, pa.table({"file": [file]}), FILES)
        for file, piece in files.items()
    ]
    return framed(spark, packs)


def read_rows(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """Packs of events that were packs before."""
    return each(spark, files).mapInArrow(_rows, PACK)


def columns_of(files: Iterable[str], names: Sequence[str]) -> Iterator[pa.Table]:
    """Columns of a table's files, so many rows at a time."""
    for file in files:
        yield from _tables(file, names)


def rows_of(
    files: Sequence[str],
    names: Sequence[str],
    kinds: Sequence[str],
    times: tuple[int, int] | None = None,
) -> pa.Table:
    """Columns of the rows of some kinds, of files of `events`, and if they are given, from one time
    to another: rows are in the order of kinds and times, so most of what is of others is not even
    read."""
    nothing = _SCHEMA.empty_table().select(names)
    return pa.concat_tables([nothing, *batches_of(files, names, kinds, times)])


def batches_of(
    files: Sequence[str],
    names: Sequence[str],
    kinds: Sequence[str],
    times: tuple[int, int] | None = None,
) -> Iterator[pa.Table]:
    """The same, so many rows at a time."""
    wanted = pc.field("kind").isin(kinds)
    if times is not None:
        wanted &= (pc.field("at") >= times[0]) & (pc.field("at") < times[1])
    schema = _SCHEMA.empty_table().select(names).schema
    for file in files:
        source = ds.dataset(file, format="parquet", partitioning=None)
        for batch in source.to_batches(
            columns=[*names],
            filter=wanted,
            batch_size=_ROWS,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
        ):
            yield pa.Table.from_batches([batch]).cast(schema)


def each(spark: SparkSession, files: Sequence[str], tasks: int = _TASKS) -> DataFrame:
    """The names of files, spread over tasks."""
    names = spark.createDataFrame([(file,) for file in files], "file string")
    return names.repartition(max(1, min(_TASKS, tasks, len(files))))


def _events(
    batches: Iterable[pa.RecordBatch], closed: Closed, pieces: int
) -> Iterator[pa.RecordBatch]:
    for file in names_of(batches):
        for rows in _tables(file):
            for pack in _sorted_out(_typed(rows), closed, pieces, file):
                yield pack.batch()


def names_of(batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """Names of files, as a task gets them."""
    return (file for batch in batches for file in batch.column(0).to_pylist())


def _tables(file: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    # One file, whatever the folders that it is in are called.
    with pq.ParquetFile(file) as source:
        for batch in source.iter_batches(_ROWS, columns=columns, use_threads=False):
            yield pa.Table.from_batches([batch])


def _typed(rows: pa.Table) -> pa.Table:
    """Rows with the columns that events have: those that a file lacks are null."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in _SCHEMA
    ]
    return pa.table(columns, schema=_SCHEMA)


def _sorted_out(rows: pa.Table, closed: Closed, pieces: int, file: str) -> Iterator[Pack]:
    """Rows by what they are of, their birth hour and the piece of it."""
    check = Check(rows, closed)
    problems = check.problems()
    what = np.where(check.belongs, MESSAGES, EVENTS)
    what = np.where(present(problems), BAD, what)
    piece = np.where(what == MESSAGES, pieces_of({n: rows[n] for n in _OF}, pieces), 0)
    for places, (kind, hour, one) in runs([what, birth_hours(check.born), piece]):
        taken = pa.array(places)
        if kind == MESSAGES:
            yield Pack(kind, hour, one, rows.select(MESSAGE_NAMES).take(taken))
        elif kind == EVENTS:
            part = rows.take(taken)
            yield Pack(kind, hour, one, part, _note(part))
        else:
            part = rows.append_column("problem", problems).take(taken)
            names = pa.array([file] * len(places))
            yield Pack(kind, hour, one, part.append_column("file", names))


def _note(rows: pa.Table) -> str | None:
    kinds = set(pc.unique(rows["kind"]).to_pylist())
    return " ".join(word for word, noted in _NOTED.items() if kinds & noted) or None


def _paths(batches: Iterable[pa.RecordBatch], pieces: int) -> Iterator[pa.RecordBatch]:
    for file in names_of(batches):
        for rows in hops_of(file):
            for places, [piece] in runs([pieces_of({n: rows[n] for n in _OF}, pieces)]):
                part = rows.take(pa.array(places))
                yield Pack(MESSAGES, _hour_of(file), piece, part).batch()


def hops_of(file: str) -> Iterator[pa.Table]:
    """The events that the paths of a file were made of."""
    about = ("message", "label", "app", "sender", "share")
    for paths in _tables(file, [*about, "hops"]):
        yield pa.table(_hops(paths, about)).select(MESSAGE_NAMES)


def _hops(paths: pa.Table, about: Sequence[str]) -> dict[str, Any]:
    """A row for each hop, with what is told of its message."""
    hops = whole(paths["hops"])
    counts = longs(pc.list_value_length(hops), 0)
    owner = pa.array(np.repeat(np.arange(len(counts)), counts))
    flat = pc.list_flatten(hops)
    fields = dict(zip(HOP_NAMES, flat.flatten(), strict=True))
    return {name: whole(paths[name]).take(owner) for name in about} | fields


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for file in names_of(batches):
        for rows in _tables(file):
            yield Pack(EVENTS, _hour_of(file), 0, _typed(rows)).batch()


def _hour_of(file: str) -> int:
    """The number of the hour that a table's file is of."""
    return hour_us(Path(file).parent.name.removeprefix("hour=")) // HOUR_US
