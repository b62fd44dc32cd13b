"""The events that nodes recorded, as their readers find them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from chappe.events.parquet import SCHEMA

Row = dict[str, Any]


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
