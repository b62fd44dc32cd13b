"""Presence: what events say of processes and of sessions, hour by hour.

A task looks at the events of an hour as they are in the table's files, and at those of the hours
around it: clocks that are put right move some into the next hour or the last, and who comes may
have gone shortly before the hour began. Of an hour with many events it looks at some users' only,
and what several tasks find is put together.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from chappe.pipeline import lives, sessions
from chappe.pipeline.clocks import Clocks
from chappe.pipeline.columns import whole
from chappe.pipeline.hours import HOUR_US, around, hour_us
from chappe.pipeline.options import Options
from chappe.pipeline.packing import hashed
from chappe.pipeline.parts import Attempt, write_part, write_whole
from chappe.pipeline.reading import batches_of, rows_of
from chappe.pipeline.schema import PACK
from chappe.pipeline.table import Table

HOURS: Final = (
    "hour string, files array<string>, near array<string>, lives boolean, stays boolean, "
    "piece long, pieces long"
)
# A task looks at the sessions of about so many events: some 400 MB.
ROWS_PER_PIECE = 500_000


class Hour(NamedTuple):
    """An hour that is looked at: the files of its events, those of the hours around it, which
    tables are made anew of it, and which of how many pieces of its users it is."""

    hour: str
    files: Sequence[str]
    near: Sequence[str]
    lives: bool
    stays: bool
    piece: int = 0
    pieces: int = 1


def hours_of(events: Table, told: Set[str], new: Set[str]) -> list[Hour]:
    """The hours around some of which events are to be looked at, as lives, and in some as stays."""
    hours = around(told)
    files, rows = events.files_by_hour(around(hours)), events.rows_by_hour()
    found = []
    for hour in sorted(hours):
        near = [file for other in sorted(around([hour]) - {hour}) for file in files.get(other, [])]
        pieces = max(1, -(-rows[hour] // ROWS_PER_PIECE))
        one = Hour(hour, files.get(hour, []), near, hour in told, hour in new, 0, pieces)
        found.append(one)
        # What processes tell of themselves is little.
        found += [one._replace(lives=False, piece=piece) for piece in range(1, pieces)]
    return found


def look_through(
    hours: DataFrame, attempt: Attempt, turnover: Path, clocks: Clocks, options: Options
) -> DataFrame:
    """Write lives and stays of hours, and what `turnover` is to have of them, in pieces."""
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
        if one.lives:
            told = lives.told(rows_of(one.files, lives.COLUMNS, lives.KINDS), one.hour, clocks)
            write_part(attempt, "lives", one.hour, 0, told)
        own = _of_users(one, one.files)
        if one.stays:
            write_part(attempt, "stays", one.hour, one.piece, sessions.stays(own))
        near = _of_users(one, one.near, _times(one.hour, clocks, options))
        moves = sessions.moves(pa.concat_tables([own, near]), one.hour, clocks, options)
        write_whole(moves, _piece_of(turnover, one))
    yield from ()


def put_pieces_together(hours: Iterable[Hour], turnover: Path) -> None:
    """Write what `turnover` is to have of hours, of their pieces: a few rows for each minute."""
    for one in hours:
        if one.piece == 0:
            every = [one._replace(piece=piece) for piece in range(one.pieces)]
            parts = [pq.ParquetFile(_piece_of(turnover, piece)).read() for piece in every]
            made = sessions.turnover(sessions.merged(parts))
            write_whole(made, turnover / f"{one.hour}.parquet")


def _piece_of(turnover: Path, one: Hour) -> Path:
    return turnover / "pieces" / f"{one.hour}-{one.piece}.parquet"


def _of_users(one: Hour, files: Sequence[str], times: tuple[int, int] | None = None) -> pa.Table:
    """The sessions of a piece's users."""
    if one.pieces == 1:
        return rows_of(files, sessions.COLUMNS, sessions.KINDS, times)
    parts = [rows_of([], sessions.COLUMNS, sessions.KINDS)]
    for rows in batches_of(files, sessions.COLUMNS, sessions.KINDS, times):
        piece = hashed(whole(rows["target"]).fill_null("")) % one.pieces
        parts.append(rows.filter(pa.array(piece == one.piece)))
    return pa.concat_tables(parts)


def _times(hour: str, clocks: Clocks, options: Options) -> tuple[int, int]:
    """From when until when nodes told of sessions that matter in an hour: what clocks move into it,
    and who went so shortly before that whoever comes in it may be back."""
    begin, most = hour_us(hour), clocks.most()
    return begin - options.reconnect_ms * 1000 - most, begin + HOUR_US + most
