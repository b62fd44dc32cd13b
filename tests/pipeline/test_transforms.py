"""Each transform by itself, with literal tables."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from chappe.pipeline import lives, queues, sessions, silver
from chappe.pipeline.links import links
from chappe.pipeline.options import Options
from chappe.pipeline.paths import gather, odd, scattered
from chappe.pipeline.schema import EVENT, TABLES
from chappe.pipeline.sketch import ERROR, counted, gathered, percentiles, time_of
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, Row, World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
OPTIONS = Options()
H0 = "2026-03-16T00"


def table(spark: SparkSession, name: str, *rows: dict[str, Any]) -> DataFrame:
    """A table with these rows; what they do not have is null."""
    schema = TABLES[name]
    return spark.createDataFrame([tuple(row.get(n) for n in schema.names) for row in rows], schema)


def events(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """Events of nobody, with their hour."""
    raw = spark.createDataFrame([tuple(row.get(n) for n in EVENT.names) for row in rows], EVENT)
    return silver.checked(raw).withColumn("shift", fn.lit(0).cast("long"))


def rows(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[n] for n in names) for row in frame.select(*names).collect())


def world(*names: str) -> World:
    made = World(*(Node(name) for name in names))
    for name in names:
        made.start(name, DAY)
    return made


@given(st.integers(1, 10**12))
def test_a_bucket_stands_for_its_times_within_one_per_cent(us: int):
    bucket = round(math.log(us) / math.log(1.02))
    assert abs(time_of(bucket) - us) <= us * ERROR * 1.0001


def test_percentiles_are_of_all_counts_together(spark: SparkSession):
    times = [1, 5, 10, 100, 100, 100, 2000, 2000, 30_000, 0]
    timed = spark.createDataFrame(
        [("k", us, 0.5) for us in times], "key string, us long, share double"
    )
    counts = counted(timed, ["key"])
    [row] = percentiles(gathered(counts, ["key"]), p50=0.5, p90=0.9, p100=1.0).collect()
    assert (row["count"], row["scaled"], row["max"]) == (10, 20.0, 30_000)
    assert [row["p50"], row["p90"], row["p100"]] == pytest.approx([100, 2000, 30_000], rel=ERROR)


def test_rows_have_their_birth_hour(spark: SparkSession):
    here = world("n1")
    message = here.store("n1", DAY + HOUR - 100)
    here.work("n1", DAY + 5 * HOUR, message, "lent")
    here.ask("n1", DAY + 2 * HOUR - 1, "n1.7", 2)
    here.tell("n1", DAY + 3 * HOUR, "session_opened", app="a", target="user/u", edge="tcp")
    found = rows(events(spark, here.rows), "kind", "hour")
    assert found == [
        ("answered", "2026-03-16T01"),
        ("asked", "2026-03-16T01"),
        ("lent", H0),
        ("node_started", H0),
        ("session_opened", "2026-03-16T03"),
        ("stored", H0),
    ]


def test_all_that_is_told_of_a_request_is_in_the_hour_of_its_label(spark: SparkSession):
    here = world("n1", "n2")
    true = DAY + HOUR - SECOND
    label = f"n1.{here.id_at(true)}"
    here.tell("n1", true, "asked", app="a", label=label, target="service/s", went_to=["n2"])
    here.tell("n2", true + 2 * SECOND, "asked", app="a", label=label, came_from="n1")
    here.tell("n2", true + 3 * SECOND, "answered", app="a", label=label, came=true + 2 * SECOND)
    here.ask("n1", DAY + HOUR, "n1.7", 2)
    here.ask("n1", DAY + HOUR, "a push message's", 2)
    found = rows(events(spark, here.rows).where("label is not null"), "label", "hour")
    assert set(found) == {
        (label, H0),
        ("n1.7", "2026-03-16T01"),
        ("a push message's", "2026-03-16T01"),
    }


def test_paths_scattered_and_gathered_again_are_the_same(spark: SparkSession):
    here = world("n1", "n2")
    here.publish(DAY + 1, [("n1", 0, 10), ("n2", 20, 30)])
    here.work("n1", DAY + 9 * SECOND, here.store("n1", DAY + SECOND), "lent")
    here.ask("n1", DAY, "n1.7", 2)
    spark.conf.set("spark.sql.execution.useObjectHashAggregateExec", "false")
    try:
        first = gather(
            silver.of_messages(events(spark, here.rows)), OPTIONS, pieces=2, partitions=2
        )
        parts = scattered(first).withColumn("shift", fn.lit(0).cast("long"))
        again = gather(parts.unionByName(parts), OPTIONS, pieces=1, partitions=1)
        # What was written down twice is looked at more closely, and is the same.
        names = [name for name in TABLES["paths"].names if name not in {"plain", "handings"}]
        assert sorted(map(repr, first.select(*names).collect())) == sorted(
            map(repr, again.select(*names).collect())
        )
    finally:
        spark.conf.unset("spark.sql.execution.useObjectHashAggregateExec")
    assert rows(first, "family", "open", "receivers", "born", "ready") == [
        ("queue", True, 0, DAY + SECOND, DAY + SECOND + 500),
        ("request", False, 0, DAY, None),
        ("topic", False, 2, DAY + 1, None),
    ]


def test_a_node_died_if_it_is_back_or_silent_without_having_stopped(spark: SparkSession):
    minute = {"hour": H0, "missed": 0}
    told = table(
        spark,
        "lives",
        {**minute, "node": "back", "boot": 1, "began": 1, "alive": DAY},
        {**minute, "node": "back", "boot": 2, "began": 2, "alive": DAY + HOUR},
        {**minute, "node": "silent", "boot": 1, "began": 1, "alive": DAY + HOUR - 3 * MINUTE},
        {
            **minute,
            "node": "slow",
            "boot": 1,
            "began": 1,
            "alive": DAY + HOUR - MINUTE,
            "missed": 1,
        },
        {**minute, "node": "stopped", "boot": 1, "began": 1, "alive": DAY, "stopped": DAY},
    )
    assert rows(lives.known(told, OPTIONS), "node", "boot", "died", "missed") == [
        ("back", 1, True, []),
        ("back", 2, False, []),
        ("silent", 1, True, []),
        ("slow", 1, False, [H0]),
        ("stopped", 1, False, []),
    ]


def test_a_queue_s_lag_goes_on_from_before(spark: SparkSession):
    flow = {"hour": H0, "app": "a", "queue": "queue/q"}
    flows = table(
        spark,
        "flows",
        {**flow, "what": "stored", "window": DAY, "count": 7},
        {**flow, "what": "finished", "window": DAY + MINUTE, "count": 2},
        {**flow, "what": "stored", "window": DAY + HOUR, "count": 1},
        {**flow, "what": "lent", "window": DAY + HOUR, "count": 1, "bucket": 349, "max": 1000},
        {**flow, "what": "finished", "window": DAY + HOUR + MINUTE, "count": 3},
    )
    made = queues.queues(flows, DAY + HOUR)
    assert rows(made, "hour", "window", "stored", "lent", "lag", "age_max") == [
        ("2026-03-16T01", DAY + HOUR, 1, 1, 6, 1000),
        ("2026-03-16T01", DAY + HOUR + MINUTE, 0, 0, 3, None),
    ]


def test_what_a_group_does_not_want_and_what_is_removed_is_in_a_queue_no_more(spark: SparkSession):
    here = World(Node("n1"))
    here.start("n1", DAY)
    for n in range(3):
        message = here.store("n1", DAY + n * SECOND)
        if n == 0:
            here.work("n1", DAY + MINUTE, message, "dropped", reason="nobody", attempt=None)
    here.tell("n1", DAY + 2 * MINUTE, "removed", app="a", target="queue/q", n=2)
    told = events(spark, here.rows)
    paths = gather(silver.of_messages(told), OPTIONS, pieces=1, partitions=1)
    assert sorted(rows(paths, "open", "cancelled")) == [
        (False, True),
        (True, False),
        (True, False),
    ]
    flows = queues.flows(paths, odd(paths)).unionByName(queues.of_queues(told))
    assert rows(queues.queues(flows, 0), "window", "stored", "lag") == [
        (DAY, 3, 3),
        (DAY + MINUTE, 0, 2),
        (DAY + 2 * MINUTE, 0, 0),
    ]


def test_who_comes_back_soon_is_a_reconnect_wherever_it_was(spark: SparkSession):
    here = world("n1", "n2")
    who = {"app": "a", "target": "user/u", "edge": "tcp", "session": "s"}
    here.tell("n1", DAY + SECOND, "session_opened", **who)
    here.tell("n1", DAY + MINUTE, "session_closed", **who, came=DAY + SECOND)
    here.tell("n2", DAY + MINUTE + SECOND, "session_opened", **who)
    here.tell("n2", DAY + 2 * MINUTE, "session_closed", **who, came=DAY + MINUTE + SECOND)
    here.tell("n2", DAY + 4 * MINUTE, "session_opened", **who)
    made = sessions.turnover(events(spark, here.rows), OPTIONS)
    assert rows(made, "window", "opened", "closed", "reconnects") == [
        (DAY, 1, 0, 0),
        (DAY + MINUTE, 1, 1, 1),
        (DAY + 2 * MINUTE, 0, 1, 0),
        (DAY + 4 * MINUTE, 1, 0, 0),
    ]


def test_a_link_that_is_down_over_the_hour_is_down_in_both(spark: SparkSession):
    here = world("n1")
    here.tell("n1", DAY + HOUR - SECOND, "link_down", peer="n2", reason="silent")
    here.tell("n1", DAY + HOUR + MINUTE + SECOND, "link_up", peer="n2")
    nothing = spark.createDataFrame(
        [],
        "hour string, node string, peer string, window long, handed long, arrived long, "
        "delay_p50 double, delay_p99 double",
    )
    made = links(nothing, events(spark, here.rows))
    assert rows(made, "hour", "window", "downs", "ups", "down_us") == [
        (H0, DAY + HOUR - MINUTE, 1, 0, SECOND),
        ("2026-03-16T01", DAY + HOUR, 0, 0, MINUTE),
        ("2026-03-16T01", DAY + HOUR + MINUTE, 0, 1, SECOND),
    ]
