"""The events that nodes recorded, as their readers find them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from chappe.events.parquet import SCHEMA
from chappe.events.record import Chunk, decode_chunks
from chappe.log.batch import Batch
from chappe.log.fs import OsFs
from chappe.log.segment import base_of, scan

Row = dict[str, Any]
WAIT_S = 30.0


def rows(*folders: Path) -> list[Row]:
    """All events in folders, in the order in which each node told them, without what is null."""
    found: list[Row] = []
    for folder in folders:
        schema = SCHEMA.append(pa.field("date", pa.string())).append(pa.field("hour", pa.string()))
        table = ds.dataset(
            folder,
            schema=schema,
            format="parquet",
            partitioning=ds.partitioning(flavor="hive"),
            ignore_prefixes=[".", "_"],
        ).to_table()
        found += table.to_pylist()
    found.sort(key=lambda row: (row["node"], row["boot"], row["serial"]))
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def of(table: list[Row], *kinds: str) -> list[Row]:
    """Those of some kinds."""
    return [row for row in table if row["kind"] in kinds]


def count(table: list[Row]) -> Counter[str]:
    """How many there are of each kind."""
    return Counter(row["kind"] for row in table)


def check_serials(table: list[Row]) -> None:
    """See that nothing is told twice, and that of each life no number is missing."""
    lives: dict[tuple[str, int], list[int]] = {}
    for row in table:
        lives.setdefault((row["node"], row["boot"]), []).append(row["serial"])
    for serials in lives.values():
        assert serials == list(range(1, len(serials) + 1))


def until(true: Callable[[], object], what: str) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, f"it never came to it that {what}"
        time.sleep(0.02)


def chunks_of(log: Path) -> Iterator[Chunk]:
    """What a log has, also one that is being written."""
    for path in sorted(log.glob("*.log")):
        base = base_of(path.name)
        assert base is not None
        for part in scan(OsFs(), str(path), base, path.stat().st_size):
            if isinstance(part, Batch):
                yield from decode_chunks(part.array)


def until_told(log: Path) -> None:
    """Wait until all that has happened by now on a node that runs is in its log."""
    now = time.time_ns() // 1000

    def alive() -> bool:
        return any(chunk.marks is not None and chunk.marks[0] > now for chunk in chunks_of(log))

    until(alive, "all is told")
