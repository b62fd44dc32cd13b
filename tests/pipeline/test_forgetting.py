"""Runs go on with tables that were merged and partly forgotten as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chappe.pipeline.job import run
from chappe.pipeline.keeping import compact, expire
from chappe.pipeline.table import read
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, Row, World, hour, save

# When a link went down that is not up again: so long before the fifth hour that it is just told of
# there.
DOWN = DAY - 20 * HOUR + MINUTE


def six_hours() -> list[Row]:
    """Two nodes for six hours: topics and queues in each of them, somebody who comes and goes. The
    day before there was little: they started, and a link went down."""
    world = World(Node("n1"), Node("n2", ahead=2 * SECOND))
    for name in ("n1", "n2"):
        world.start(name, DAY - 25 * HOUR)
        world.live(name, DAY, DAY + 6 * HOUR, every=5 * MINUTE)
    world.tell("n1", DOWN, "link_down", peer="n3")
    world.beat(DAY, DAY + 6 * HOUR, every=5 * MINUTE)
    for n in range(24):
        at = DAY + n * 15 * MINUTE + MINUTE
        world.publish(at, [("n1", 0, 100), ("n2", 700, 200)])
        job = world.store("n1", at)
        world.work("n1", at + 2000, job, "lent")
        world.work("n1", at + 5000, job, "acked")
        who = {"app": "a", "edge": "ws", "target": "user/u", "session": f"s{n}"}
        world.tell("n2", at, "session_opened", **who)
        world.tell("n2", at + 10 * MINUTE, "session_closed", came=at, **who)
    return world.rows


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_runs_go_on_as_if_nothing_had_been_split_merged_or_forgotten(
    spark: SparkSession, tmp_path: Path
):
    rows = six_hours()
    save(rows, tmp_path / "all")
    run(spark, [tmp_path / "all"], tmp_path / "whole")
    # Half of the fifth hour comes when the first is gone and the first four are closed.
    half = DAY + 4 * HOUR + HOUR // 2
    events, tables = tmp_path / "events", tmp_path / "tables"
    early = [row for row in rows if row["at"] < half]
    save(early, events, tag="0")
    # More than a run takes is taken by several.
    counts = run(spark, [events], tables, rows_max=len(early) - 1)
    assert (counts.run, counts.events) == (2, len(early))
    compact(tables, files_max=1)
    expire(tables, [events], large_before_us=DAY + 4 * HOUR + MINUTE)
    assert min(read(tables, "paths", ["hour"])["hour"].to_pylist()) == hour(DAY + HOUR)
    # The first hour of all is gone.
    assert min(read(tables, "events", ["hour"])["hour"].to_pylist()) == hour(DOWN)
    assert {file.parent.name for file in events.glob("*/*/*.parquet")} == {"hour=04"}
    save([row for row in rows if row["at"] >= half], events, tag="1")
    # Of a message whose hour is gone nothing more can be said.
    lent = next(row for row in rows if row["kind"] == "lent")
    save([{**lent, "serial": 1_000_000, "at": half}], events, tag="2")
    assert run(spark, [events], tables).quarantined == 1
    assert read(tables, "quarantine", ["problem"]).to_pylist() == [
        {"problem": "late: of an hour before 2026-03-16T04:00:00, which is forgotten"}
    ]
    downs = read(tables, "links", filters=[("hour", "=", hour(half))])["down_us"].to_pylist()
    # To the last word of its node in that hour.
    assert sum(downs) == 55 * MINUTE
    for name in ("latency", "delivery", "links", "queues", "sessions", "audit"):
        assert same(tables, name) == same(tmp_path / "whole", name), name


def same(tables: Path, name: str) -> list[str]:
    return sorted(map(repr, read(tables, name).to_pylist()))
