"""Sheets: one table's rows of one segment, in a file for each hour.

Written aside, under names that readers pass over, and put in place by a rename when all is whole
and on the disk. The names say which segment it was, so a segment that is copied again replaces its
own files and adds none.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chappe.log.fs import ASIDE, OsFs
from chappe.queues.parquet.rows import Row

# What is held before it is written: a row group, in rows and about so many bytes.
ROWS_MAX = 65_536
BYTES_MAX = 16 * 1024 * 1024
# A row without its payload, roughly.
_ROW_BYTES = 200
_HOUR_MS = 3_600_000
# The last that a date can be told of.
_HOUR_MAX = 253_402_300_799 // 3_600


class Sheet:
    """Rows of one table."""

    def __init__(self, fs: OsFs, folder: Path, schema: Any, name: str) -> None:
        self._fs = fs
        self._folder = folder
        self._schema = schema
        self._name = name
        self._rows: list[Row] = []
        self._bytes = 0
        # Hours since the epoch.
        self._hour = -1
        # How often an hour came: a clock that steps back makes a second file for it.
        self._times: Counter[int] = Counter()
        self._writer: Any = None
        self._files: list[tuple[Path, Path]] = []
        self.rows = 0

    def add(self, ts_ms: int, row: Row, payload_bytes: int) -> None:
        """Take a row; it lies in the hour of its batch."""
        hour = min(ts_ms // _HOUR_MS, _HOUR_MAX)
        if hour != self._hour:
            self._end_file()
            self._hour = hour
        self._rows.append(row)
        self.rows += 1
        self._bytes += payload_bytes + _ROW_BYTES
        if self._bytes >= BYTES_MAX or len(self._rows) >= ROWS_MAX:
            self._write()

    def finish(self) -> list[Path]:
        """Put all files in place; returns them."""
        self._end_file()
        for aside, file in self._files:
            self._fs.rename(str(aside), str(file))
        for folder in {above for _, file in self._files for above in list(file.parents)[:4]}:
            self._fs.sync_dir(str(folder))
        return [file for _, file in self._files]

    def abandon(self) -> None:
        """Leave nothing behind."""
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            for aside, _ in self._files:
                aside.unlink(missing_ok=True)

    def _write(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._begin_file(), self._schema, compression="zstd")
        columns = zip(self._schema, zip(*self._rows, strict=True), strict=True)
        arrays = [pa.array(column, field.type) for field, column in columns]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows.clear()
        self._bytes = 0

    def _begin_file(self) -> Path:
        self._times[self._hour] += 1
        time = self._times[self._hour]
        name = f"{self._name}.parquet" if time == 1 else f"{self._name}.{time}.parquet"
        folder = self._folder / _folder_of(self._hour)
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{name}{ASIDE}"
        self._files.append((aside, folder / name))
        return aside

    def _end_file(self) -> None:
        self._write()
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        file = self._fs.open_append(str(self._files[-1][0]))
        try:
            file.sync()
        finally:
            file.close()


def _folder_of(hour: int) -> str:
    at = datetime.fromtimestamp(hour * 3_600, UTC)
    return f"date={at:%Y-%m-%d}/hour={at:%H}"
