"""Spark finds what a few lines of Python find, whatever comes: many cases in one table."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from chappe.ids import EPOCH_MS
from chappe.pipeline.hours import hour_of
from tests.pipeline.traffic import SECOND

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

# Spark takes a second for each, and for thousands of rows no longer than for one. To look for the
# smallest that fails would take hundreds.
FEW = settings(max_examples=3, phases=(Phase.explicit, Phase.reuse, Phase.generate))
TIMES = st.integers(EPOCH_MS * 1000, EPOCH_MS * 1000 + 60 * 365 * 24 * 3600 * SECOND)


@FEW
@given(st.lists(TIMES, min_size=50, max_size=500))
def test_hours_are_those_of_utc(spark: SparkSession, times: list[int]):
    frame = spark.createDataFrame([(us,) for us in times], "us long")
    for us, hour in frame.select("us", hour_of(fn.col("us"))).collect():
        assert hour == datetime.fromtimestamp(us // SECOND, UTC).strftime("%Y-%m-%dT%H")
