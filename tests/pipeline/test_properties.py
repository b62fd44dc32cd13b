"""Spark finds what a few lines of Python find, whatever comes: many cases in one table each."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from chappe.ids import EPOCH_MS
from chappe.pipeline import clocks
from chappe.pipeline.hours import hour_of, window_of
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


BEATS = st.tuples(st.integers(0, 3), st.integers(1, 10**6), st.integers(-(10**9), 10**9))


@FEW
@given(st.lists(BEATS, min_size=50, max_size=400))
def test_clocks_are_told_by_the_median_of_the_quickest_quarter_of_beats(
    spark: SparkSession, beats: list[tuple[int, int, int]]
):
    about = {"kind": "link", "node": "a", "peer": "b"}
    rows = [
        {**about, "at": DAY + minute * MINUTE + n, "round_trip": trip, "ahead": ahead}
        for n, (minute, trip, ahead) in enumerate(beats)
    ]
    made = clocks.offsets(events(spark, rows)).collect()
    found = {row["window"]: row["ahead"] for row in made}
    by_minute: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for minute, trip, ahead in beats:
        by_minute[DAY + minute * MINUTE].append((trip, ahead))
    for window, told in by_minute.items():
        quickest = sorted(told)[: math.ceil(len(told) / 4)]
        assert found[window] == sorted(a for _t, a in quickest)[(len(quickest) - 1) // 2]
    assert found.keys() == by_minute.keys()
