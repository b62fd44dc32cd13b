"""Spark's workers come from the daemon that has loaded all that tasks need."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from chappe.pipeline.session import SessionOptions, _settings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _batch in batches:
        loaded = "chappe.pipeline.paths" in sys.modules
        yield pa.RecordBatch.from_pylist([{"loaded": loaded, "frozen": gc.get_freeze_count()}])


def test_a_worker_has_everything_loaded_and_does_not_look_through_it_for_garbage(
    spark: SparkSession,
):
    name = "spark.python.daemon.module"
    assert spark.conf.get(name) == _settings(SessionOptions())[name]
    [row] = spark.range(1).mapInArrow(look, "loaded boolean, frozen long").collect()
    assert row["loaded"]
    assert row["frozen"] > 10_000
