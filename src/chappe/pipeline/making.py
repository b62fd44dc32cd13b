"""How each table follows from new rows and the tables before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from chappe.pipeline import audit, backlog, bronze, clocks, lives, online, presence, silver
from chappe.pipeline.hourly import changed_since
from chappe.pipeline.hours import HOUR_US, and_before, around, hour_us
from chappe.pipeline.options import Options
from chappe.pipeline.packing import BAD, EVENTS, opened
from chappe.pipeline.parts import Attempt
from chappe.pipeline.past import all_hours, forgotten
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.table import Table, read
from chappe.pipeline.told import looked_at, sources
from chappe.pipeline.touched import About, touched
from chappe.pipeline.work import Packs, Work


class Made(NamedTuple):
    """What a table gets, or the attempt that wrote its parts, and the hours that it replaces; None:
    it is added."""

    rows: DataFrame | pa.Table | Attempt
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
        "jobs",
        "links",
        "rooms",
        "room_load",
        "flows",
        "queues",
        "lives",
        "stays",
        "sessions",
        "audit",
    )
    # Those that are made of packs.
    OF_PACKS = frozenset(ORDER[: ORDER.index("lives")])

    def __init__(
        self, spark: SparkSession, plan: bronze.Plan, tables: Path, options: Options
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._options = options
        self._tables = {name: Table(tables, name) for name in self.ORDER}
        self._folder = tables
        before = max(self._tables["paths"].rows_by_hour().values(), default=0)
        self._work = Work(spark, plan, tables.absolute(), options, before)
        self._makers: dict[str, Callable[[], Made]] = {
            "quarantine": self._quarantine,
            "events": self._events,
            "clocks": self._clocks,
            "paths": self._paths,
            "odd": self._paths,
            "latency": self._hourly,
            "delivery": self._hourly,
            "jobs": self._hourly,
            "links": self._links,
            "rooms": self._links,
            "room_load": self._links,
            "flows": self._flows,
            "queues": self._queues,
            "lives": self._lives,
            "stays": self._stays,
            "sessions": self._sessions,
            "audit": self._audit,
        }
        self._packs = self._work.packs()
        self._hours = touched(
            self._packs.read(*About._fields), self._tables["paths"], self._tables["events"]
        )

    @property
    def hours(self) -> Set[str]:
        """All hours that the run makes anew, as something is new or times are put right anew."""
        return self._hours.paths | self._life_hours

    def make(self, name: str) -> int:
        """Make a table unless it has this run already; says how many rows were written."""
        table = self._tables[name]
        if table.run() >= self._plan.run:
            return 0
        rows, replacing = self._makers[name]()
        if isinstance(rows, Attempt):
            return table.commit(rows, replacing)
        if isinstance(rows, pa.Table):
            return table.put(rows, self._plan.run, replacing)
        return table.write(rows, self._plan.run, replacing)

    def finish(self) -> None:
        """Throw away what nobody but the run needs."""
        self._work.finish()

    def _table(self, name: str, hours: Iterable[str] | None = None) -> DataFrame:
        return self._tables[name].frame(self._spark, hours)

    def _nothing(self, name: str) -> Made:
        return Made(arrow_schema(TABLES[name]).empty_table(), None)

    def _hours_of_clocks(self, hours: Iterable[str]) -> set[str]:
        """Clocks from these hours on: nothing happens to a message before it is born, but for a
        clock that is slow."""
        first = min(hours, default=None)
        if first is None:
            return set()
        return self._tables["clocks"].hours_from(hour_us(first) - HOUR_US)

    def _quarantine(self) -> Made:
        if not self._hours.bad:
            return self._nothing("quarantine")
        packs = self._packs.frame.where(fn.col("what") == BAD)
        return Made(silver.quarantined(opened(packs, silver.BAD_ROW)), None)

    def _events(self) -> Made:
        if not self._hours.events:
            return self._nothing("events")
        packs = self._packs.frame.where(fn.col("what") == EVENTS)
        before = self._tables["events"]
        counts = before.rows_by_hour()
        rows = {hour: counts[hour] for hour in self._hours.events}
        return Made(self._work.write_events(packs, before.files(rows), rows), rows)

    def _clocks(self) -> Made:
        files = self._tables["events"].files_by_hour(and_before(self._hours.clocks))
        offsets = self._work.offsets(files)
        shifts = [shift._asdict() for shift in clocks.solved(offsets, self._hours.clocks)]
        rows = pa.Table.from_pylist(shifts, schema=arrow_schema(TABLES["clocks"]))
        return Made(rows, self._hours.clocks)

    @cached_property
    def _gathered(self) -> Packs:
        before = self._tables["paths"].files(self._hours.paths)
        known = self._hours_of_clocks(self._hours.paths)
        return self._work.gathered(before, len(self._hours.paths), lambda: self._clocks_of(known))

    def _clocks_of(self, hours: Iterable[str]) -> clocks.Clocks:
        wanted = sorted(hours)
        if not wanted:
            return clocks.Clocks(arrow_schema(TABLES["clocks"]).empty_table())
        return clocks.Clocks(read(self._folder, "clocks", filters=[("hour", "in", wanted)]))

    @cached_property
    def _by_hour(self) -> Packs:
        return self._work.by_hour(self._gathered.frame, self._sources, self._clocks_of)

    def _sources(self) -> dict[str, pa.Table]:
        """Of each hour that links are made of anew: which files tell of it."""
        files = self._tables["events"].files_by_hour(looked_at(self._hours.links))
        flows = self._tables["flows"].files_by_hour(self.hours)
        return {
            hour: sources(hour, files, flows.get(hour, ()) if hour in self.hours else None)
            for hour in self._hours.links
        }

    def _paths(self) -> Made:
        return Made(self._gathered.attempt, self._hours.paths)

    def _hourly(self) -> Made:
        return Made(self._by_hour.attempt, self._hours.paths)

    def _links(self) -> Made:
        return Made(self._by_hour.attempt, self._hours.links)

    def _flows(self) -> Made:
        """By birth hour of messages; those of no message by the hour in which it was told."""
        return Made(self._by_hour.attempt, self.hours)

    def _queues(self) -> Made:
        """From the first hour on of which flows say something else than they did: what is in a
        queue later depends on it."""
        changed = changed_since(self._by_hour.read("note", "data"))
        if changed is None:
            return self._nothing("queues")
        since = changed - changed % HOUR_US
        minutes = self._work.minutes(self._tables["flows"].files_upto("window", since), since)
        attempt = Attempt.begin(self._folder, self._plan.run)
        return Made(attempt, backlog.write_queues(attempt, since, minutes))

    @cached_property
    def _life_hours(self) -> Set[str]:
        """Hours with events that are new, or whose times are put right anew."""
        return self._hours.events | (self._hours.clocks & self._tables["events"].hours())

    @cached_property
    def _turnover(self) -> tuple[Attempt, dict[str, list[str]]]:
        events, told, new = self._tables["events"], self._life_hours, self._hours.events
        near = around(around(told))
        return self._work.turnover(
            lambda: presence.hours_of(events, told, new), lambda: self._clocks_of(near)
        )

    def _lives(self) -> Made:
        if not self._hours.events:
            return self._nothing("lives")
        return Made(self._turnover[0], self._life_hours)

    def _stays(self) -> Made:
        if not self._hours.events:
            return self._nothing("stays")
        return Made(self._turnover[0], self._hours.events)

    def _sessions(self) -> Made:
        """Of the hours around what is new, as clocks that are put right move events into the next
        or the last; of all since then, as who is online then stays so."""
        if not self._hours.events:
            return self._nothing("sessions")
        hours, (known, _horizon) = around(self._life_hours), self._lived.known()
        attempt = Attempt.begin(self._folder, self._plan.run)
        made = online.write_sessions(attempt, hours, self._turnover[1], known)
        return Made(attempt, made)

    @cached_property
    def _lived(self) -> lives.Lived:
        times = self._plan.written, forgotten(self._folder, self._plan.run)
        return lives.Lived(all_hours(self._tables["lives"]), self._options, *times)

    def _audit(self) -> Made:
        found, horizon = self._lived.known()
        known = audit.Known(
            lives=audit.by_node(found),
            horizon=horizon,
            queues=self._lived.queues(),
            frontiers=backlog.frontiers(self._tables["queues"]),
            forgotten=self._lived.forgotten,
        )
        touched, odd = self._hours.paths, self._tables["odd"]
        replacing = {*touched, audit.OPEN}
        if odd.rows_by_hour().total() <= audit.FEW:
            few = read(self._folder, "odd")
            return Made(audit.audit_few(few, touched, known, self._options), replacing)
        mine, others = self._table("odd", touched), self._table("odd", odd.hours() - touched)
        return Made(audit.audit(mine, others, known, self._options), replacing)
