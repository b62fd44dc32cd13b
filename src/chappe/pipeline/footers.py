"""Footers of files, and what Delta's log says of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake.transaction import AddAction
from pyspark.sql.types import StructType

# What JSON has no word for.
_ENDLESS: Final = (math.inf, -math.inf)


def _bounds(groups: Sequence[pq.ColumnChunkMetaData]) -> tuple[int, Any, Any] | None:
    """How many nulls a column has, its least and its largest value, as far as all of its pieces
    tell; None if one does not."""
    nulls, least, largest = 0, None, None
    for group in groups:
        told = group.statistics
        if told is None or not told.has_null_count:
            return None
        nulls += told.null_count
        if told.null_count == group.num_values:
            continue
        if not told.has_min_max or told.min in _ENDLESS or told.max in _ENDLESS:
            return None
        least = told.min if least is None else min(least, told.min)
        largest = told.max if largest is None else max(largest, told.max)
    return nulls, least, largest


def action_of(
    root: Path, file: Path, schema: StructType, *, data_change: bool = True
) -> tuple[AddAction, int]:
    """What the log says of a file, with the least and the largest of each column: readers skip
    whole files by them."""
    footer = pq.read_metadata(file)
    status = file.stat()
    action = AddAction(
        str(file.relative_to(root)),
        status.st_size,
        {"hour": unquote(file.parent.name.removeprefix("hour="))},
        int(status.st_mtime * 1000),
        data_change,
        json.dumps(_statistics(footer, schema)),
    )
    return action, footer.num_rows


def _statistics(footer: pq.FileMetaData, schema: StructType) -> dict[str, Any]:
    rows = {"numRecords": footer.num_rows}
    stats: dict[str, Any] = {**rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    places = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    for name in schema.names:
        if name not in places:
            continue
        groups = [footer.row_group(i).column(places[name]) for i in range(footer.num_row_groups)]
        bounds = _bounds(groups)
        if bounds is None:
            # Readers take a column that others say something of, and this does not, for empty.
            return rows
        stats["nullCount"][name], least, largest = bounds
        if least is not None:
            stats["minValues"][name], stats["maxValues"][name] = least, largest
    return stats
