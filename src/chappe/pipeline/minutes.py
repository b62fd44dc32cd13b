"""Minutes: what happened in queues, minute by minute, of the flows of all hours.

Flows are by the hour of the message that they are of, which may be in its queue for days. So they
are sorted out once more, by the hour in which something happened.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from chappe.pipeline.columns import longs, whole
from chappe.pipeline.hours import HOUR_US, hour_name
from chappe.pipeline.packing import SUMS, Pack, runs, together
from chappe.pipeline.parts import write_whole
from chappe.pipeline.queues import minutes
from chappe.pipeline.reading import columns_of, each, names_of
from chappe.pipeline.schema import PACK, TABLES

_COLUMNS = [name for name in TABLES["flows"].names if name != "hour"]


def write_minutes(
    spark: SparkSession, files: Sequence[str], since_us: int, place: Path, partitions: int
) -> DataFrame:
    """Write a file for each hour since a time in which something happened, of files of flows."""
    packs = each(spark, files).mapInArrow(functools.partial(_flows, since_us=since_us), PACK)
    by_hour = packs.select("born_hour", "data").repartition(partitions, "born_hour")
    write = functools.partial(_write, place=str(place))
    return by_hour.sortWithinPartitions("born_hour").mapInArrow(write, PACK)


def _flows(batches: Iterable[pa.RecordBatch], since_us: int) -> Iterator[pa.RecordBatch]:
    for rows in columns_of(names_of(batches), _COLUMNS):
        later = rows.filter(pc.greater_equal(rows["window"], since_us))
        for places, [hour] in runs([longs(whole(later["window"])) // HOUR_US]):
            yield Pack(SUMS, hour, 0, later.take(pa.array(places))).batch()


def _write(batches: Iterable[pa.RecordBatch], place: str) -> Iterator[pa.RecordBatch]:
    for [hour], flows in together(batches):
        write_whole(minutes(flows), Path(place, f"{hour_name(hour * HOUR_US)}.parquet"))
    yield from ()
