"""Packs: many rows as one, so that Spark moves, sorts and keeps few large ones.

A pack is rows of one hour and one piece of it, as Arrow writes them to a stream. All of a message
is in one piece, of however many packs; events of no message are split when it is known how many
there are of an hour.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from chappe.ids import NODE_BITS, SEQUENCE_BITS
from chappe.pipeline.columns import Longs, changes, longs, present, whole
from chappe.pipeline.schema import PACK, arrow_schema

# What packs are of.
MESSAGES, EVENTS, BAD, SUMS = range(4)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_SCHEMA = arrow_schema(PACK)
# Above these bits of an id is the time at which it was given.
_TIME = NODE_BITS + SEQUENCE_BITS
# The golden ratio, of 64 bits.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Pack(NamedTuple):
    """Rows that belong together; `note` is whatever their maker says of them."""

    what: int
    born_hour: int
    piece: int
    rows: pa.Table
    note: str | None = None

    def batch(self) -> pa.RecordBatch:
        """As a row of a DataFrame."""
        row = [self.what, self.born_hour, self.piece, self.rows.num_rows, self.note]
        arrays = [pa.array([one], f.type) for one, f in zip(row, _SCHEMA, strict=False)]
        data = pa.array([_written(self.rows)], pa.binary())
        return pa.RecordBatch.from_arrays([*arrays, data], schema=_SCHEMA)


def framed(spark: SparkSession, packs: Iterable[Pack]) -> DataFrame:
    """Packs that are here, as a DataFrame; there are few."""
    rows = [tuple(pack.batch().to_pylist()[0].values()) for pack in packs]
    return spark.createDataFrame(rows, PACK)


def together(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """What packs have that come one after another and are of the same; of each its data is the last
    column, and what it is of all before that."""
    packs = (tuple(pack) for batch in batches for pack in zip(*batch.columns, strict=True))
    for key, same in itertools.groupby(packs, key=lambda pack: [one.as_py() for one in pack[:-1]]):
        yield tuple(key), pa.concat_tables([read(data) for *_key, data in same])


def opened(packs: DataFrame, schema: StructType) -> DataFrame:
    """The rows of packs."""
    return packs.select("data").mapInArrow(functools.partial(_open, schema=schema), schema)


def _open(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    wanted = arrow_schema(schema)
    for batch in batches:
        for data in batch.column("data"):
            yield from read(data).select(wanted.names).cast(wanted).to_batches()


def read(data: pa.Scalar) -> pa.Table:
    """The rows of one pack."""
    with pa.ipc.open_stream(data.as_buffer()) as stream:
        return stream.read_all()


def _written(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


def runs(keys: Sequence[Longs]) -> Iterator[tuple[Longs, list[int]]]:
    """The rows of each combination of keys, and what that is."""
    order = np.lexsort(keys[::-1])
    starts = np.flatnonzero(changes(*(key[order] for key in keys)))
    for rows in np.split(order, starts[1:]):
        if len(rows):
            yield rows, [int(key[rows[0]]) for key in keys]


def pieces_of(rows: Mapping[str, Any], pieces: int) -> Longs:
    """The piece that each row is in, by its message or its label."""
    message, label = whole(rows["message"]), whole(rows["label"])
    piece = mixed(longs(message, 0)) % pieces
    named = np.flatnonzero(present(label))
    if pieces > 1 and len(named):
        piece[named] = hashed(label.take(pa.array(named))) % pieces
    return piece


def mixed(ids: Longs) -> Longs:
    """Ids as numbers that are spread evenly, and so is whatever else counts. An id's own last
    digits are not: they count the ids of one millisecond, mostly from the same number on."""
    spread = (ids ^ (ids >> _TIME)).astype(np.uint64) * _SPREAD
    return (spread >> np.uint64(33)).astype(np.int64)


def hashed(words: pa.Array) -> Longs:
    """A number for each word, the same wherever it is counted."""
    # Not of each word once: most are there once or twice, and to find that out takes longer.
    each = words.cast(pa.binary()).to_numpy(zero_copy_only=False)
    return np.fromiter(map(zlib.crc32, each), np.int64, len(each))
