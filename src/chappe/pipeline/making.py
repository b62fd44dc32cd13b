"""How each table follows from new rows and the tables before it, and which hours that touches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from chappe.pipeline import audit, bronze, clocks, links, lives, paths, queues, sessions, silver
from chappe.pipeline.clocks import Offset, hour_name, hour_us, hours_after
from chappe.pipeline.delivery import delivery
from chappe.pipeline.latency import latency
from chappe.pipeline.options import Options
from chappe.pipeline.schema import EVENT, TABLES, arrow_schema
from chappe.pipeline.steps import steps
from chappe.pipeline.table import Table

# A task sorts about so many rows: small enough for a heap of 1 GB, large enough to be worth a file.
ROWS_PER_TASK = 400_000


class Made(NamedTuple):
    """What a table gets, and the hours that it replaces; None: it is added."""

    rows: DataFrame | pa.Table
    replacing: Iterable[str] | None


class Making:
    """Makes the tables of one run; each is made from bronze and from those before it in ORDER."""

    ORDER = (
        "quarantine",
        "events",
        "clocks",
        "paths",
        "odd",
        "latency",
        "delivery",
        "links",
        "flows",
        "queues",
        "lives",
        "stays",
        "sessions",
        "audit",
    )

    def __init__(
        self, spark: SparkSession, plan: bronze.Plan, tables: Path, options: Options
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._options = options
        self._tables = {name: Table(tables, name) for name in self.ORDER}
        self._new = bronze.frame(spark, plan.files)
        self._closed = plan.closed(options)
        # Nobody but a run reads it, and the next one writes it anew.
        self._aside = tables.absolute() / "_aside"
        self._makers: dict[str, Callable[[], Made]] = {
            "quarantine": self._quarantine,
            "events": self._events,
            "clocks": self._clocks,
            "paths": self._paths,
            "odd": self._odd,
            "latency": self._latency,
            "delivery": self._delivery,
            "links": self._links,
            "flows": self._flows,
            "queues": self._queues,
            "lives": self._lives,
            "stays": self._stays,
            "sessions": self._sessions,
            "audit": self._audit,
        }
        self._touch()

    @property
    def hours(self) -> set[str]:
        """All hours that the run makes anew."""
        return self._path_hours | self._event_hours

    def make(self, name: str) -> int:
        """Make a table unless it has this run already; says how many rows were written."""
        table = self._tables[name]
        if table.run() >= self._plan.run:
            return 0
        rows, replacing = self._makers[name]()
        if isinstance(rows, pa.Table):
            return table.put(rows, self._plan.run, replacing)
        return table.write(rows, self._plan.run, replacing)

    def _touch(self) -> None:
        """Put the few new rows that are of no message, or make no sense, aside, and find the birth
        hours that new rows are of and those that follow from them."""
        of_messages = silver.sound(self._closed) & silver.belongs()
        self._new.where(~of_messages).write.mode("overwrite").parquet(str(self._aside))
        hour = fn.floor(silver.born_us() / silver.HOUR_US).alias("hour")
        aside = self._rows_aside()
        bad = fn.col("problem").isNotNull().alias("bad")
        beat = (fn.col("kind") == "link").alias("beat")
        told = aside.select(bad, beat, hour).distinct().collect()
        self._all_good = not any(row["bad"] for row in told)
        beats = _names(row["hour"] for row in told if row["beat"] and not row["bad"])
        self._event_hours = _names(row["hour"] for row in told if not row["bad"])
        # What beats say of an hour is used in the next, too; messages of any hour may have been
        # there then.
        self._clock_hours = hours_after(beats, 1)
        # Few columns: that an hour is made anew because of a row that makes no sense does no harm.
        # But of an hour that was forgotten, results are all there is.
        kept = silver.born_us() >= self._closed.born_before
        born = self._new.where(silver.belongs() & silver.sensible(silver.born_us()) & kept)
        self._path_hours = _names(row["hour"] for row in born.select(hour).distinct().collect())
        for name in self._clock_hours:
            begin = hour_us(name)
            self._path_hours |= self._tables["paths"].hours_within(
                "first_at", "last_at", begin, begin + silver.HOUR_US
            )

    def _rows_aside(self) -> DataFrame:
        rows = self._spark.read.schema(self._new.schema).parquet(str(self._aside))
        return silver.checked(rows, self._closed)

    def _table(self, name: str, hours: Iterable[str] | None = None) -> DataFrame:
        return self._tables[name].frame(self._spark, hours)

    def _nothing(self, name: str) -> Made:
        return Made(arrow_schema(TABLES[name]).empty_table(), None)

    def _clocks_since(self, hours: Iterable[str]) -> DataFrame:
        """Clocks from these hours on: nothing happens to a message before it is born, but for a
        clock that is slow."""
        first = min(hours, default=None)
        if first is None:
            return self._table("clocks", [])
        since = hour_us(first) - silver.HOUR_US
        return self._table("clocks", self._tables["clocks"].hours_from(since))

    def _quarantine(self) -> Made:
        if self._all_good:
            return self._nothing("quarantine")
        return Made(silver.quarantined(self._rows_aside()), None)

    def _events(self) -> Made:
        if not self._event_hours:
            return self._nothing("events")
        before = self._table("events", self._event_hours)
        rows = before.unionByName(silver.of_nobody(self._rows_aside()))
        return Made(silver.once(rows).sortWithinPartitions("hour", "kind", "at"), self._event_hours)

    def _clocks(self) -> Made:
        events = self._table("events", _and_before(self._clock_hours))
        found = clocks.offsets(events).collect()
        offsets = [Offset(row["node"], row["peer"], row["window"], row["ahead"]) for row in found]
        shifts = [shift._asdict() for shift in clocks.solve(offsets, self._clock_hours)]
        rows = pa.Table.from_pylist(shifts, schema=arrow_schema(TABLES["clocks"]))
        return Made(rows, self._clock_hours)

    def _paths(self) -> Made:
        rows = silver.of_messages(self._new, self._closed).select(*EVENT.names)
        if self._path_hours & self._tables["paths"].hours():
            before = paths.scattered(self._table("paths", self._path_hours))
            rows = rows.unionByName(before, allowMissingColumns=True)
        hours = max(1, len(self._path_hours))
        # A path is of a few events.
        count = self._plan.rows + 4 * self._tables["paths"].rows(self._path_hours)
        pieces = max(1, min(64, round(count / hours / ROWS_PER_TASK)))
        gathered = paths.gather(
            clocks.correct(rows, self._clocks_since(self._path_hours)),
            self._options,
            pieces=pieces,
            partitions=max(2, min(2000, hours * pieces, count // 50_000)),
        )
        return Made(gathered, self._path_hours)

    def _odd(self) -> Made:
        return Made(paths.odd(self._table("paths", self._path_hours)), self._path_hours)

    def _both(self, hours: Iterable[str]) -> tuple[DataFrame, DataFrame]:
        """Paths of these hours, and the odd ones among them."""
        return self._table("paths", hours), self._table("odd", hours)

    def _latency(self) -> Made:
        return Made(latency(steps(*self._both(self._path_hours))), self._path_hours)

    def _delivery(self) -> Made:
        made = delivery(self._table("paths", self._path_hours), self._options)
        return Made(made, self._path_hours)

    def _links(self) -> Made:
        hours = self._path_hours | hours_after(self._event_hours, 1)
        events = self._table("events", _and_before(hours))
        made = links.links(links.travels(*self._both(hours)), events)
        return Made(made.where(fn.col("hour").isin(*sorted(hours))), hours)

    def _flows(self) -> Made:
        """By birth hour of messages; those of no message by the hour in which it was told."""
        hours = self._path_hours | self._event_hours
        made = queues.flows(*self._both(hours))
        return Made(made.unionByName(queues.of_queues(self._table("events", hours))), hours)

    def _queues(self) -> Made:
        """From an hour before the first message that was touched: what is in a queue later depends
        on it, and clocks are put right by less than that."""
        touched = self._path_hours | self._event_hours
        if not touched:
            return self._nothing("queues")
        since = hour_us(min(touched)) - silver.HOUR_US
        made = queues.queues(self._table("flows"), since)
        return Made(made, self._tables["queues"].hours_from(since))

    def _lives(self) -> Made:
        hours = self._event_hours | (self._clock_hours & self._tables["events"].hours())
        events = clocks.correct(self._table("events", hours), self._clocks_since(hours))
        return Made(lives.told(events), hours)

    def _stays(self) -> Made:
        return Made(sessions.stays(self._table("events", self._event_hours)), self._event_hours)

    def _sessions(self) -> Made:
        """Of the hours around what is new, as clocks that are put right move events into the next
        or the last; from an hour before that, as a node that died is found out a while later."""
        if not self._event_hours:
            return self._nothing("sessions")
        touched = self._event_hours | (self._clock_hours & self._tables["events"].hours())
        hours = _around(touched)
        events = clocks.correct(
            self._table("events", _around(hours)), self._clocks_since(_around(hours))
        )
        turnover = sessions.turnover(events, self._options)
        turnover = turnover.where(fn.col("hour").isin(*sorted(hours)))
        kept = self._table("sessions").where(~fn.col("hour").isin(*sorted(hours)))
        every = turnover.unionByName(kept, allowMissingColumns=True)
        cuts = sessions.cut_off(self._table("stays"), self._known())
        # A death that is found out late changes what was thought of that time.
        first = sessions.first_changed(self._table("sessions"), cuts).collect()[0]["window"]
        begin = hour_us(min(hours))
        if first is not None:
            begin = min(begin, first - first % silver.HOUR_US)
        since = begin - silver.HOUR_US
        made = sessions.sessions(every, cuts, since)
        return Made(made, self._tables["sessions"].hours_from(since))

    def _known(self) -> DataFrame:
        return lives.known(self._table("lives"), self._options)

    def _audit(self) -> Made:
        settled = audit.settled(self._table("odd", self._path_hours), self._options)
        frontiers = queues.frontiers(self._table("flows"))
        of_queues = lives.queues(self._table("lives"))
        unsettled = audit.unsettled(
            self._table("odd").where("open"), self._known(), of_queues, frontiers, self._options
        )
        return Made(settled.unionByName(unsettled), {*self._path_hours, audit.OPEN})


def _names(hours: Iterable[int]) -> set[str]:
    """Hours by their numbers."""
    return {hour_name(hour * silver.HOUR_US) for hour in hours}


def _and_before(hours: Iterable[str]) -> set[str]:
    """These hours and the one before each."""
    return {hour_name(hour_us(hour) - n * silver.HOUR_US) for hour in hours for n in (0, 1)}


def _around(hours: Iterable[str]) -> set[str]:
    """These hours, the one before each and the one after."""
    return _and_before(hours_after(hours, 1))
