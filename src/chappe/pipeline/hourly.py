"""Tables by hour: what the pieces of an hour say, put together."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from chappe.pipeline.clocks import Clocks, offsets
from chappe.pipeline.columns import longs, whole
from chappe.pipeline.delivery import delivery
from chappe.pipeline.hours import HOUR_US, hour_name, hour_us
from chappe.pipeline.jobs import jobs
from chappe.pipeline.latency import latency
from chappe.pipeline.links import links, travels
from chappe.pipeline.packing import EVENTS, SUMS, Pack, framed, mixed, read, runs, together
from chappe.pipeline.parts import Attempt, write_part
from chappe.pipeline.queues import first_change, flows, of_queues
from chappe.pipeline.rooms import loads, rooms, said
from chappe.pipeline.schema import PACK
from chappe.pipeline.silver import once
from chappe.pipeline.sums import DELIVERY, FLOWS, JOBS, LATENCY, LINKS, ROOMS
from chappe.pipeline.told import beats, told

# More tasks than this are not worth their start.
_TASKS = 512
# How each table's rows of an hour follow from all of its packs.
_MAKERS: Final[dict[str, Callable[[pa.Table], pa.Table]]] = {
    LATENCY: latency,
    DELIVERY: delivery,
    LINKS: travels,
    FLOWS: flows,
    ROOMS: said,
    JOBS: jobs,
}
_LOADS: Final = "room_load"
# A pack of where it is written what nodes told of an hour.
_SOURCES: Final = "sources"
# A pack that tells since when the hour's flows are others than they were.
_CHANGED: Final = "changed"


def put_together(
    packs: DataFrame,
    sources: Mapping[str, pa.Table],
    clocks: Clocks,
    attempt: Attempt,
    partitions: int,
) -> DataFrame:
    """Write what the packs of sums of each hour come to, with what its sources tell; each has some.
    Packs of what changed, see `changed_since`. Times of sums are right, those of sources are put
    right, but for those of links."""
    keys = ("born_hour", "note", "data")
    told = [
        Pack(SUMS, hour_us(hour) // HOUR_US, 0, rows, _SOURCES) for hour, rows in sources.items()
    ]
    every = packs.unionByName(framed(packs.sparkSession, told)).select(*keys)
    by_hour = every.repartition(partitions, "born_hour").sortWithinPartitions("born_hour", "note")
    put = functools.partial(_put_together, clocks=clocks, attempt=attempt)
    return by_hour.mapInArrow(put, PACK)


def _put_together(
    batches: Iterable[pa.RecordBatch], clocks: Clocks, attempt: Attempt
) -> Iterator[pa.RecordBatch]:
    for hour, packs in itertools.groupby(together(batches), key=lambda pack: pack[0][0]):
        noted = ((note, rows) for (_hour, note), rows in packs)
        changed = _put_hour(hour, noted, clocks, attempt)
        if changed is not None:
            yield Pack(SUMS, hour, 0, pa.table({"window": [changed]}), _CHANGED).batch()


def _put_hour(
    hour: int, packs: Iterable[tuple[str, pa.Table]], clocks: Clocks, attempt: Attempt
) -> int | None:
    """Says from which minute on the hour's flows are others than they were."""
    begin = hour * HOUR_US
    name = hour_name(begin)
    # What is made of sources, too.
    kept = {}
    for note, rows in packs:
        if note in (LATENCY, DELIVERY, JOBS):
            write_part(attempt, note, name, 0, _MAKERS[note](rows))
        else:
            kept[note] = rows
    found = told(kept.pop(_SOURCES))
    made = {note: _MAKERS[note](rows) for note, rows in kept.items()}
    write_part(attempt, LINKS, name, 0, links(begin, found, made.get(LINKS)))
    load = loads(found.rooms, clocks)
    write_part(attempt, _LOADS, name, 0, load)
    write_part(attempt, ROOMS, name, 0, rooms(found.rooms, load, clocks, made.get(ROOMS)))
    flowing = of_queues(found.thrown, clocks)
    if FLOWS in made:
        flowing = pa.concat_tables([made[FLOWS].cast(flowing.schema), flowing])
    write_part(attempt, FLOWS, name, 0, flowing)
    return first_change(found.flows, flowing)


def changed_since(put: pa.Table) -> int | None:
    """From which minute on queues are to be told of anew, by packs of what was put together."""
    changed = put.filter(pc.equal(put["note"], _CHANGED))["data"]
    return min((read(data)["window"][0].as_py() for data in changed), default=None)


def find_offsets(spark: SparkSession, files: Mapping[str, Sequence[str]]) -> dict[str, pa.Scalar]:
    """Packs of what beats say of clocks, by hour, of files of `events`: see `clocks.offsets`."""
    if not files:
        return {}
    rows = [(hour_us(hour) // HOUR_US, list(some)) for hour, some in files.items()]
    by_hour = spark.createDataFrame(rows, "born_hour long, files array<string>")
    packs = by_hour.repartition(min(_TASKS, len(rows))).mapInArrow(_find_offsets, PACK)
    return {
        hour_name(hour * HOUR_US): pa.scalar(bytes(data), pa.binary())
        for hour, data in packs.select("born_hour", "data").collect()
    }


def _find_offsets(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for hour, files in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Pack(SUMS, hour, 0, offsets(beats(files))).batch()


def write_events(
    packs: DataFrame, pieces: Mapping[str, int], attempt: Attempt, partitions: int
) -> DataFrame:
    """Write the events of each hour, each once, in so many pieces."""
    if max(pieces.values()) > 1:
        of_hours = {hour_us(hour) // HOUR_US: count for hour, count in pieces.items()}
        packs = packs.mapInArrow(functools.partial(_split, pieces=of_hours), PACK)
    keys = ("born_hour", "piece")
    by_piece = packs.select(*keys, "data").repartition(partitions, *keys)
    write = functools.partial(_write_events, attempt=attempt)
    return by_piece.sortWithinPartitions(*keys).mapInArrow(write, PACK)


def _split(
    batches: Iterable[pa.RecordBatch], pieces: Mapping[int, int]
) -> Iterator[pa.RecordBatch]:
    """Packs of pieces. By their numbers: an event that was written down twice is in one piece."""
    for batch in batches:
        for hour, data in zip(batch["born_hour"].to_pylist(), batch["data"], strict=True):
            rows = read(data)
            numbers = longs(whole(rows["serial"]))
            for places, [piece] in runs([mixed(numbers) % pieces.get(hour, 1)]):
                yield Pack(EVENTS, hour, piece, rows.take(pa.array(places))).batch()


def _write_events(batches: Iterable[pa.RecordBatch], attempt: Attempt) -> Iterator[pa.RecordBatch]:
    for (hour, piece), rows in together(batches):
        write_part(attempt, "events", hour_name(hour * HOUR_US), piece, once(rows))
    yield from ()
