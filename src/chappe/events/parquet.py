"""What an event log becomes: one table, by the hour in which things happened.

Chunks are turned into columns as they are, runs at a time: of a column that a run does not have
nothing is touched, and rows never exist. A column that this release does not know is left out:
nodes of a newer one may have written it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from chappe.errors import StorageError
from chappe.events.record import AT, FOLLOWING, MESSAGE, SHARE, Chunk, decode_chunks
from chappe.events.schema import COLUMNS, NAMES

# Rows that are held before they are written: a row group.
ROWS_MAX = 131_072
_HOUR_US = 3_600_000_000
# The last that a date can be told of.
_AT_MAX = 253_402_300_799 * 1_000_000
_TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "strings": pa.list_(pa.string()),
}
SCHEMA = pa.schema(
    [pa.field(column.name, _TYPES[column.type], nullable=not column.required) for column in COLUMNS]
)
_V, _KIND, _NODE, _BOOT, _SERIAL = map(NAMES.index, ("v", "kind", "node", "boot", "serial"))


class Columns:
    """The events of one hour, column by column."""

    def __init__(self) -> None:
        self._columns: list[list[Any]] = [[] for _ in NAMES]
        self.rows = 0

    def put(self, column: int, values: Sequence[Any]) -> None:
        """Give a column values for the rows that are being added, if there is such a column."""
        if not 0 <= column < len(NAMES):
            return
        column_values = self._columns[column]
        lacking = self.rows - len(column_values)
        if lacking:
            column_values += [None] * lacking
        column_values += values

    def table(self) -> Any:
        """All rows, as Arrow has them; raises StorageError when a value is none of its column."""
        try:
            return self._table()
        except (pa.ArrowException, OverflowError) as error:
            raise StorageError(f"events: {error}") from None

    def _table(self) -> Any:
        arrays = []
        for field, values in zip(SCHEMA, self._columns, strict=True):
            if not values:
                arrays.append(pa.nulls(self.rows, field.type))
                continue
            lacking = [None] * (self.rows - len(values))
            arrays.append(pa.array(values + lacking if lacking else values, field.type))
        return pa.Table.from_arrays(arrays, schema=SCHEMA)


class EventTable:
    """The events of one segment; `write` takes an hour (since 1970) and a table of its rows."""

    def __init__(self, write: Callable[[int, Any], None]) -> None:
        self._write = write
        self._hours: dict[int, Columns] = {}
        self._held = 0
        self.rows = 0

    def take(self, array: bytes | memoryview) -> bool:
        """Take the chunks of a batch; whether all of them could be read."""
        try:
            chunks = decode_chunks(array)
        except msgspec.MsgspecError:
            return False
        whole = True
        for chunk in chunks:
            whole = self._take(chunk) and whole
        return whole

    def flush(self) -> None:
        """Write what is held."""
        hours, self._hours, self._held = self._hours, {}, 0
        for hour in sorted(hours):
            self._write(hour, hours[hour].table())

    def _take(self, chunk: Chunk) -> bool:
        serial, whole = chunk.serial, True
        for kind, count, shared, each in chunk.runs:
            at = _time_of(shared, each)
            if at is None:
                serial, whole = serial + count, False
                continue
            columns = self._columns(at // _HOUR_US)
            columns.put(_V, [chunk.v] * count)
            columns.put(_KIND, [kind] * count)
            columns.put(_NODE, [chunk.node] * count)
            columns.put(_BOOT, [chunk.boot] * count)
            columns.put(_SERIAL, list(range(serial, serial + count)))
            for column, value in shared.items():
                if column == FOLLOWING:
                    columns.put(MESSAGE, list(range(value, value + count)))
                else:
                    columns.put(column, [value] * count)
            if SHARE not in shared:
                columns.put(SHARE, [1.0] * count)
            for column, values in each.items():
                columns.put(column, values)
            columns.rows += count
            serial += count
            self.rows += count
            self._held += count
        if self._held >= ROWS_MAX:
            self.flush()
        return whole

    def _columns(self, hour: int) -> Columns:
        columns = self._hours.get(hour)
        if columns is None:
            columns = self._hours[hour] = Columns()
        return columns


def _time_of(shared: Mapping[int, Any], each: Mapping[int, Sequence[Any]]) -> int | None:
    """When a run was; None when it does not say so, or no date can."""
    # Those of a run that say it one by one are of one hour all the same.
    at = shared[AT] if AT in shared else next(iter(each.get(AT, ())), None)
    return at if isinstance(at, int) and 0 <= at <= _AT_MAX else None
