"""Segments written by hand, and the tables that were made of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from chappe.log.batch import encode_batch
from chappe.log.parquet.order import Order
from chappe.queues.options import QueueOptions
from chappe.queues.record import Made, Record, encode_record

# 2026-05-01T13:59:59Z: a second later it is another hour.
TS_MS = 1_777_643_999_000
MADE = Made(1, "shop", "queue:jobs", QueueOptions(), [1])


class SegmentFile:
    """A sealed segment: each call of `add` is a batch."""

    def __init__(self, folder: Path, base: int = 0, broker: str = "node") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{base:016x}.log"
        self.path.write_bytes(b"")
        self._base = base
        self._broker = broker

    @property
    def end(self) -> int:
        return self._base + self.path.stat().st_size

    @property
    def order(self) -> Order:
        return Order(self._broker, str(self.path), self._base, self.end)

    def add(self, *records: Record, ts_ms: int = TS_MS) -> int:
        """Write a batch; returns its position."""
        return self.add_raw(map(encode_record, records), len(records), ts_ms)

    def add_raw(self, records: Iterable[bytes], count: int, ts_ms: int = TS_MS) -> int:
        lsn = self.end
        first = lsn == self._base
        data = encode_batch(records, lsn=lsn, epoch=1, ts_ms=ts_ms, count=count, first=first)
        with self.path.open("ab") as file:
            file.write(data)
        return lsn


def files(folder: Path, table: str = "queues") -> list[str]:
    """All files of a table, hidden ones too, in the order of their names."""
    return sorted(
        str(path.relative_to(folder)) for path in (folder / table).rglob("*") if path.is_file()
    )


def rows(folder: Path, table: str = "queues") -> list[dict[str, Any]]:
    """A table as its readers see it, in the order of the journal."""
    if not (folder / table).exists():
        return []
    found = ds.dataset(folder / table, format="parquet", partitioning="hive").to_table()
    return sorted(found.to_pylist(), key=lambda row: (row["broker"], row["lsn"]))
