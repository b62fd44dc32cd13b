"""What the page is made of: rows of some time, read a little at a time, added up in steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chappe.pipeline.hours import HOUR_US, hour_name
from chappe.pipeline.report.span import MINUTE_US, Span
from chappe.pipeline.report.tally import How, Tally
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.table import Table

# So many rows of a file are in memory at a time; of times, each has up to a few hundred buckets.
_ROWS: Final = 8192
_STEP: Final = pa.field("step", pa.int64())


class Period(NamedTuple):
    """The time that a page is of; None: from the first that is known, to the last."""

    since: int | None = None
    until: int | None = None

    def hours(self, hours: Iterable[str]) -> set[str]:
        """Those that may have something of it, of hours of a table. Times are corrected and hours
        are not, so they may be wrong by one; what has no hour may be of any."""
        first = "" if self.since is None else hour_name(self.since - HOUR_US)
        last = "9999" if self.until is None else hour_name(self.until + HOUR_US)
        return {hour for hour in hours if not hour[:1].isdigit() or first <= hour <= last}

    def within(self, rows: pa.Table) -> pa.Table:
        """Those of some rows whose `window` is in it."""
        for limit, keep in ((self.since, pc.greater_equal), (self.until, pc.less)):
            if limit is not None:
                rows = rows.filter(keep(rows["window"], limit))
        return rows


class Shape(NamedTuple):
    """What of a table is added up, besides in steps of time."""

    keys: Sequence[str]
    how: Mapping[str, How]
    # Which table that is, where the shape has another name.
    table: str = ""


SHAPES: Final = {
    "delivery": Shape(
        ("app", "family"),
        {"scaled": "sum", "messages": "sum", "delivered": "sum", "in_time": "sum"},
    ),
    "links": Shape(
        ("node", "peer"),
        {
            "handed": "sum",
            "arrived": "sum",
            "downs": "sum",
            "down_us": "sum",
            "delay_p99": "max",
            "round_trip": "min",
            "ahead": "last",
        },
    ),
    "role_links": Shape(
        ("node", "peer", "role"),
        {
            "handed": "sum",
            "probes": "sum",
            "failed": "sum",
            "delay_p99": "max",
            "probe_p99": "max",
        },
        "links",
    ),
    "room_load": Shape(
        ("node", "partition"), {"messages": "sum", "copies": "sum", "imbalance": "max"}
    ),
    "queues": Shape(
        ("app", "queue"),
        {
            "stored": "sum",
            "acked": "sum",
            "returned": "sum",
            "died": "sum",
            "lag": "last",
            "age_p99": "max",
            "age_max": "max",
        },
    ),
    "sessions": Shape(
        ("app", "edge"),
        {
            "opened": "sum",
            "closed": "sum",
            "reconnects": "sum",
            "online": "last",
            "duration_p50": "max",
            "duration_p99": "max",
        },
    ),
}


class Gold:
    """Tables of what happened in some time."""

    def __init__(self, tables: Path, period: Period) -> None:
        self.tables = tables
        self.period = period

    def hours(self, name: str) -> set[str]:
        """The hours of a table that may have something of the time."""
        return self.period.hours(Table(self.tables, name).hours())

    def parts(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Columns of a table's rows, `window` among them, a little at a time."""
        for _hour, part in self.hourly(name, columns):
            yield self.period.within(part)

    def hourly(self, name: str, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
        """The same of whole hours, with the hour that rows are of."""
        return self._read(name, columns, self.period)

    def windows(self, name: str) -> Iterator[int]:
        """The first and the last minute of parts of a table."""
        for part in self.parts(name, ["window"]):
            yield from bounds(part)

    def stepped(self, name: str, span: Span) -> pa.Table:
        """A table added up in steps."""
        shape = SHAPES[name]
        table = shape.table or name
        tally = Tally([*shape.keys, "step"], shape.how)
        for part in self.parts(table, [*shape.keys, "window", *shape.how]):
            tally.add(span.stepped(part))
        return tally.table(arrow_schema(TABLES[table]).append(_STEP))

    def before(self, name: str, span: Span) -> pa.Table:
        """The last that a table tells of the time before, as a step before all others."""
        shape = SHAPES[name]
        tally = Tally([*shape.keys, "step"], shape.how)
        since = self.period.since
        if since is not None and span.last:
            earlier = Period(until=since)
            columns = [*shape.keys, "window", *shape.how]
            for _hour, part in self._read(name, columns, earlier):
                early = earlier.within(part)
                step = pa.array([span.before] * early.num_rows, pa.int64())
                tally.add(early.append_column("step", step))
        return tally.table(arrow_schema(TABLES[name]).append(_STEP))

    def _read(
        self, name: str, columns: Sequence[str], period: Period
    ) -> Iterator[tuple[str, pa.Table]]:
        table, schema = Table(self.tables, name), arrow_schema(TABLES[name])
        wanted = pa.schema([schema.field(column) for column in columns])
        for hour, files in sorted(table.files_by_hour(period.hours(table.hours())).items()):
            for file in files:
                with pq.ParquetFile(file) as source:
                    for batch in source.iter_batches(_ROWS, columns=columns, use_threads=False):
                        rows = pa.Table.from_batches([batch])
                        yield hour, rows.select(wanted.names).cast(wanted)


def bounds(rows: pa.Table) -> Iterator[int]:
    """The first and the last minute of some rows; of none, none."""
    for bound in pc.min_max(rows["window"]).as_py().values():
        if bound is not None:
            yield bound


def minutes(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The minute that each time is of."""
    return pc.multiply(pc.divide(times, MINUTE_US), MINUTE_US)
