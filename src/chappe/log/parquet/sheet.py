"""Sheets: one table's rows of one segment, gathered until there are enough for a row group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from chappe.log.fs import OsFs
from chappe.log.parquet.hours import HOUR_MAX, Hours

# What is held before it is written: a row group, in rows and about so many bytes.
ROWS_MAX = 65_536
BYTES_MAX = 16 * 1024 * 1024
# A row without its payload, roughly.
_ROW_BYTES = 200
_HOUR_MS = 3_600_000

Row = tuple[Any, ...]


class Sheet:
    """Rows of one table."""

    def __init__(self, fs: OsFs, folder: Path, schema: Any, name: str) -> None:
        self._schema = schema
        self._hours = Hours(fs, folder, schema, name)
        self._rows: list[Row] = []
        self._bytes = 0
        self._hour = -1
        self.rows = 0

    def add(self, ts_ms: int, row: Row, payload_bytes: int) -> None:
        """Take a row; it lies in the hour of its batch."""
        hour = min(ts_ms // _HOUR_MS, HOUR_MAX)
        if hour != self._hour:
            self._write()
            self._hour = hour
        self._rows.append(row)
        self.rows += 1
        self._bytes += payload_bytes + _ROW_BYTES
        if self._bytes >= BYTES_MAX or len(self._rows) >= ROWS_MAX:
            self._write()

    def finish(self) -> list[Path]:
        """Put all files in place; returns them."""
        self._write()
        return self._hours.finish()

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._hours.abandon()

    def _write(self) -> None:
        if not self._rows:
            return
        columns = zip(self._schema, zip(*self._rows, strict=True), strict=True)
        arrays = [pa.array(column, field.type) for field, column in columns]
        self._hours.write(self._hour, pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows.clear()
        self._bytes = 0
