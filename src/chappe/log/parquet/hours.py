"""Hours: the files of one table and one segment, one for each hour.

Written aside, under names that readers pass over, and put in place by a rename when all is whole
and on the disk. The names say which segment it was, so a segment that is copied again replaces its
own files and adds none.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from chappe.log.fs import ASIDE, OsFs

# The last that a date can be told of.
HOUR_MAX = 253_402_300_799 // 3_600


class Hours:
    """Writes what belongs to an hour, and then to another."""

    def __init__(self, fs: OsFs, folder: Path, schema: Any, name: str) -> None:
        self._fs = fs
        self._folder = folder
        self._schema = schema
        self._name = name
        # Hours since the epoch.
        self._hour = -1
        # How often an hour came: a clock that steps back makes a second file for it.
        self._times: Counter[int] = Counter()
        self._writer: Any = None
        self._files: list[tuple[Path, Path]] = []

    def write(self, hour: int, table: Any) -> None:
        """Write rows of an hour, as a row group."""
        if hour != self._hour:
            self.end()
            self._hour = hour
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._begin(), self._schema, compression="zstd")
        self._writer.write_table(table)

    def end(self) -> None:
        """Let the file be whole, and on the disk."""
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        file = self._fs.open_append(str(self._files[-1][0]))
        try:
            file.sync()
        finally:
            file.close()

    def finish(self) -> list[Path]:
        """Put all files in place; returns them."""
        self.end()
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

    def _begin(self) -> Path:
        self._times[self._hour] += 1
        time = self._times[self._hour]
        name = f"{self._name}.parquet" if time == 1 else f"{self._name}.{time}.parquet"
        folder = self._folder / _folder_of(self._hour)
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{name}{ASIDE}"
        self._files.append((aside, folder / name))
        return aside


def _folder_of(hour: int) -> str:
    at = datetime.fromtimestamp(hour * 3_600, UTC)
    return f"date={at:%Y-%m-%d}/hour={at:%H}"
