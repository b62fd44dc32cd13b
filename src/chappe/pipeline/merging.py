"""Merging: few large files of many small ones, in a bounded amount of memory.

Files that are large enough stay as they are, so that nothing is written anew again and again, and
an hour of millions of messages is never made into one file that nobody can read in parallel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

# What is larger than this is worth a file of its own; what Spark gives one task to read is more.
SMALL_BYTES = 32 << 20
WHOLE_BYTES = 128 << 20
# Rows are held until they make a group that is worth its columns' headers; by either of these.
_GROUP_ROWS = 100_000
_GROUP_BYTES = 16 << 20
_BATCH_ROWS = 4_096


def small(files: Iterable[Path], files_max: int) -> Iterator[list[Path]]:
    """The files that are to become one, each time; none if there are no more small ones than so
    many."""
    sizes = [(file, file.stat().st_size) for file in files]
    few = [(file, size) for file, size in sizes if size < SMALL_BYTES]
    if len(few) <= files_max:
        return
    group: list[Path] = []
    total = 0
    for file, size in few:
        if total + size > WHOLE_BYTES:
            yield group
            group, total = [], 0
        group.append(file)
        total += size
    if len(group) > 1:
        yield group


def merge(files: Iterable[Path], whole: Path, schema: pa.Schema) -> None:
    """Write the rows of files into one, in their order. A column that one of them lacks, as it was
    written before there was such a column, is empty."""
    with pq.ParquetWriter(whole, schema, compression="zstd") as writer:
        for group in _groups(files, schema):
            writer.write_table(group)


def _groups(files: Iterable[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    rows = size = 0
    for batch in _batches(files, schema):
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.concat_tables(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_tables(held)


def _batches(files: Iterable[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    for file in files:
        with pq.ParquetFile(file) as source:
            for batch in source.iter_batches(_BATCH_ROWS):
                yield _as(pa.Table.from_batches([batch]), schema)


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with a schema's columns."""
    columns = [
        rows[field.name] if field.name in rows.schema.names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)
