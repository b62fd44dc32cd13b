"""Past: what a table has of all hours, some rows at a time; and which hours were forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from chappe.pipeline.hours import hour_name
from chappe.pipeline.reading import columns_of
from chappe.pipeline.table import Table, read

# About so many rows are in memory at a time.
_ROWS = 16_384


def all_hours(table: Table) -> Iterator[pa.Table]:
    """All rows of a table, in no order."""
    names = [name for name in table.schema.names if name != "hour"]
    held: list[pa.Table] = []
    count = 0
    for file in table.files():
        hour = Path(file).parent.name.removeprefix("hour=")
        # An hour is few rows: what is done for each by itself takes longer than what is for rows.
        for rows in columns_of([file], names):
            held.append(rows.append_column("hour", pa.repeat(hour, rows.num_rows)))
            count += rows.num_rows
            if count >= _ROWS:
                yield pa.concat_tables(held).combine_chunks()
                held, count = [], 0
    if held:
        yield pa.concat_tables(held).combine_chunks()


def forgotten(tables: Path, run: int) -> list[str]:
    """Before which hours all was forgotten, each time that this was done before a run; in order."""
    limits = read(tables, "forgotten", ["before"], [("run", "<", run)])["before"]
    return sorted(map(hour_name, limits.unique().to_pylist()))
