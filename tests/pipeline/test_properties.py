"""Spark finds what a few lines of Python find, whatever comes: many cases in one table each."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from chappe.ids import EPOCH_MS
from chappe.pipeline import sessions, sketch
from chappe.pipeline.hours import hour_of, window_of
from chappe.pipeline.options import Options
from chappe.pipeline.schema import EVENT
from tests.pipeline.traffic import DAY, MINUTE, SECOND

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

# Spark takes a second for each, and for thousands of rows no longer than for one. To look for the
# smallest that fails would take hundreds.
FEW = settings(max_examples=3, phases=(Phase.explicit, Phase.reuse, Phase.generate))
TIMES = st.integers(EPOCH_MS * 1000, EPOCH_MS * 1000 + 60 * 365 * 24 * 3600 * SECOND)


def events(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    """Rows of the events' schema; what they do not have is null."""
    return spark.createDataFrame([tuple(row.get(n) for n in EVENT.names) for row in rows], EVENT)


@FEW
@given(st.lists(TIMES, min_size=50, max_size=500))
def test_hours_and_minutes_are_those_of_utc(spark: SparkSession, times: list[int]):
    frame = spark.createDataFrame([(us,) for us in times], "us long")
    made = frame.select("us", hour_of(fn.col("us")), window_of(fn.col("us")))
    for us, hour, window in made.collect():
        assert hour == datetime.fromtimestamp(us // SECOND, UTC).strftime("%Y-%m-%dT%H")
        assert (window % MINUTE, 0 <= us - window < MINUTE) == (0, True)


@FEW
@given(st.lists(st.one_of(st.none(), st.integers(-5, 10**12)), min_size=50, max_size=500))
def test_a_time_is_in_the_same_bucket_wherever_it_is_counted(
    spark: SparkSession, times: list[int | None]
):
    frame = spark.createDataFrame([(us,) for us in times], "us long")
    made = frame.select("us", sketch.bucket_of(fn.col("us")).alias("bucket")).collect()
    known = [row["us"] for row in made if row["us"] is not None]
    buckets = sketch.buckets_of(np.array(known, np.int64)).tolist()
    assert [row["bucket"] for row in made if row["us"] is not None] == buckets
    assert all(row["bucket"] is None for row in made if row["us"] is None)


VISITS = st.tuples(
    st.integers(0, 8), st.sampled_from(["a", "b"]), st.booleans(), st.integers(0, 20 * MINUTE)
)


@FEW
@given(st.lists(VISITS, min_size=50, max_size=300), st.integers(-5, 5))
def test_who_comes_back_is_found_by_the_clock_of_all(
    spark: SparkSession, visits: list[tuple[int, str, bool, int]], ahead_s: int
):
    """Node b's clock is ahead, and is put right by its shift."""
    ahead = {"a": 0, "b": ahead_s * SECOND}
    rows = [
        {
            "kind": "session_opened" if opens else "session_closed",
            "app": "app",
            "edge": "tcp",
            "target": f"user/{user}",
            "node": node,
            "boot": 1,
            "serial": n,
            "at": DAY + true + ahead[node],
            "came": None if opens else DAY + ahead[node] - SECOND,
        }
        for n, (user, node, opens, true) in enumerate(visits)
    ]
    shift = fn.when(fn.col("node") == "b", -ahead["b"]).otherwise(0).cast("long")
    options = Options()
    made = sessions.turnover(events(spark, rows).withColumn("shift", shift), options).collect()
    names = ("opened", "closed", "reconnects")
    found = {row["window"]: Counter({name: row[name] for name in names}) for row in made}
    truth: dict[int, Counter[str]] = defaultdict(Counter)
    last: dict[int, tuple[bool, int]] = {}
    ordered = sorted(enumerate(visits), key=lambda one: (one[1][3], one[1][1], one[0]))
    for _n, (user, _node, opens, true) in ordered:
        window = DAY + true - true % MINUTE
        truth[window]["opened" if opens else "closed"] += 1
        opened, when = last.get(user, (True, 0))
        if opens and not opened and true - when <= options.reconnect_ms * 1000:
            truth[window]["reconnects"] += 1
        last[user] = (opens, true)
    assert {w: +c for w, c in found.items()} == {w: +c for w, c in truth.items()}


CHANGES = st.tuples(st.integers(0, 200), st.integers(0, 9), st.integers(0, 9), st.integers(0, 3))


@FEW
@given(
    st.lists(CHANGES, min_size=20, max_size=100, unique_by=lambda one: one[0]),
    st.integers(0, 200),
)
def test_who_is_online_is_all_that_came_less_all_that_went(
    spark: SparkSession, changes: list[tuple[int, int, int, int]], since: int
):
    place = "app string, edge string, window long"
    told = [("a", "tcp", DAY + n * MINUTE, came, went) for n, came, went, _cut in changes]
    cuts = [("a", "tcp", DAY + n * MINUTE, cut) for n, _came, _went, cut in changes if cut]
    turnover = spark.createDataFrame(told, f"{place}, opened long, closed long").withColumns(
        {
            "reconnects": fn.lit(0).cast("long"),
            "duration_p50": fn.lit(None).cast("double"),
            "duration_p99": fn.lit(None).cast("double"),
        }
    )
    cut_frame = spark.createDataFrame(cuts, f"{place}, cut long")
    made = sessions.sessions(turnover, cut_frame, DAY + since * MINUTE).collect()
    changes = sorted(one for one in changes if any(one[1:]))
    online = accumulate(came - went - cut for _n, came, went, cut in changes)
    truth = {
        DAY + one[0] * MINUTE: left
        for one, left in zip(changes, online, strict=True)
        if one[0] >= since
    }
    assert {row["window"]: row["online"] for row in made} == truth
