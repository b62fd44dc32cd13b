"""Presence: what events say of processes and of sessions, hour by hour.

A task looks at the events of an hour as they are in the table's files, and at those of the hours
around it: clocks that are put right move some into the next hour or the last, and who comes may
have gone shortly before the hour began.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from chappe.pipeline import lives, sessions
from chappe.pipeline.clocks import Clocks
from chappe.pipeline.hours import HOUR_US, around, hour_us
from chappe.pipeline.options import Options
from chappe.pipeline.parts import Attempt, write_part, write_whole
from chappe.pipeline.reading import rows_of
from chappe.pipeline.schema import PACK
from chappe.pipeline.table import Table

HOURS: Final = "hour string, files array<string>, near array<string>, lives boolean, stays boolean"
_COLUMNS: Final = [*dict.fromkeys((*lives.COLUMNS, *sessions.COLUMNS))]


class Hour(NamedTuple):
    """An hour that is looked at: the files of its events, those of the hours around it, and which
    tables are made anew of it."""

    hour: str
    files: Sequence[str]
    near: Sequence[str]
    lives: bool
    stays: bool


def hours_of(events: Table, told: Set[str], new: Set[str]) -> list[Hour]:
    """The hours around some of which events are to be looked at, as lives, and in some as stays."""
    hours = around(told)
    files = events.files_by_hour(around(hours))
    found = []
    for hour in sorted(hours):
        near = [file for other in sorted(around([hour]) - {hour}) for file in files.get(other, [])]
        found.append(Hour(hour, files.get(hour, []), near, hour in told, hour in new))
    return found


def look_through(
    hours: DataFrame, attempt: Attempt, turnover: Path, clocks: Clocks, options: Options
) -> DataFrame:
    """Write lives and stays of hours, and what `turnover` is to have of them."""
    look = functools.partial(
        _look_through, attempt=attempt, turnover=turnover, clocks=clocks, options=options
    )
    return hours.mapInArrow(look, PACK)


def _look_through(
    batches: Iterable[pa.RecordBatch],
    attempt: Attempt,
    turnover: Path,
    clocks: Clocks,
    options: Options,
) -> Iterator[pa.RecordBatch]:
    for one in (Hour(**row) for batch in batches for row in batch.to_pylist()):
        own = rows_of(one.files, _COLUMNS, (*lives.KINDS, *sessions.KINDS))
        if one.lives:
            told = lives.told(own, one.hour, clocks)
            write_part(attempt, "lives", one.hour, 0, told)
        if one.stays:
            write_part(attempt, "stays", one.hour, 0, sessions.stays(own))
        near = rows_of(one.near, _COLUMNS, sessions.KINDS, _times(one.hour, clocks, options))
        every = pa.concat_tables([own, near])
        moved = sessions.turnover(every, one.hour, clocks, options)
        write_whole(moved, turnover / f"{one.hour}.parquet")
    yield from ()


def _times(hour: str, clocks: Clocks, options: Options) -> tuple[int, int]:
    """From when until when nodes told of sessions that matter in an hour: what clocks move into it,
    and who went so shortly before that whoever comes in it may be back."""
    begin, most = hour_us(hour), clocks.most()
    return begin - options.reconnect_ms * 1000 - most, begin + HOUR_US + most
