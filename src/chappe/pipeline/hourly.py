"""Tables by hour: what the pieces of an hour say, put together."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from chappe.pipeline.delivery import delivery
from chappe.pipeline.hours import HOUR_US, hour_name
from chappe.pipeline.latency import latency
from chappe.pipeline.links import travels
from chappe.pipeline.packing import SUMS, Pack, read
from chappe.pipeline.parts import write_part
from chappe.pipeline.queues import flows
from chappe.pipeline.schema import PACK
from chappe.pipeline.silver import once
from chappe.pipeline.sums import DELIVERY, FLOWS, LATENCY, LINKS

# How each table's rows of an hour follow from all of its packs.
_MAKERS: Final[dict[str, Callable[[pa.Table], pa.Table]]] = {
    LATENCY: latency,
    DELIVERY: delivery,
    LINKS: travels,
    FLOWS: flows,
}


def put_together(packs: DataFrame, tables: Path, run: int, partitions: int) -> DataFrame:
    """Write what the packs of sums of each hour come to; `travels` as packs, which others use."""
    keys = ("born_hour", "note")
    by_hour = packs.select(*keys, "data").repartition(partitions, "born_hour")
    put = functools.partial(_put_together, tables=str(tables), run=run)
    return by_hour.sortWithinPartitions(*keys).mapInArrow(put, PACK)


def _put_together(
    batches: Iterable[pa.RecordBatch], tables: str, run: int
) -> Iterator[pa.RecordBatch]:
    for (hour, note), rows in _by_hour(batches):
        made, name = _MAKERS[note](rows), hour_name(hour * HOUR_US)
        if note == LINKS:
            made = made.add_column(0, "hour", pa.array([name] * made.num_rows, pa.string()))
            yield Pack(SUMS, hour, 0, made, note).batch()
        else:
            write_part(Path(tables), note, run, name, 0, made)


def write_events(packs: DataFrame, tables: Path, run: int, partitions: int) -> DataFrame:
    """Write the events of each hour, each once."""
    by_hour = packs.select("born_hour", "what", "data").repartition(partitions, "born_hour")
    put = functools.partial(_write_events, tables=str(tables), run=run)
    return by_hour.sortWithinPartitions("born_hour").mapInArrow(put, PACK)


def _write_events(
    batches: Iterable[pa.RecordBatch], tables: str, run: int
) -> Iterator[pa.RecordBatch]:
    for (hour, _what), rows in _by_hour(batches):
        write_part(Path(tables), "events", run, hour_name(hour * HOUR_US), 0, once(rows))
    yield from ()


def _by_hour(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[tuple[int, str], pa.Table]]:
    """What packs have that come one after another and are of the same."""
    packs = (
        (hour.as_py(), note.as_py(), data)
        for batch in batches
        for hour, note, data in zip(*batch.columns, strict=True)
    )
    for key, same in itertools.groupby(packs, key=lambda pack: pack[:2]):
        yield key, pa.concat_tables([read(data) for _hour, _note, data in same])
