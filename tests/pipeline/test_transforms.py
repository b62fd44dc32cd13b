"""Each transform of Spark by itself, with literal tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from chappe.pipeline import queues
from chappe.pipeline.options import Options
from chappe.pipeline.paths import paths_of
from chappe.pipeline.schema import EVENT, TABLES, arrow_schema
from chappe.pipeline.sums import FLOWS, Sums
from tests.pipeline import tales
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
OPTIONS = Options()
H0 = "2026-03-16T00"


def table(spark: SparkSession, name: str, *rows: dict[str, Any]) -> DataFrame:
    """A table with these rows; what they do not have is null."""
    schema = TABLES[name]
    return spark.createDataFrame([tuple(row.get(n) for n in schema.names) for row in rows], schema)


def rows(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[n] for n in names) for row in frame.select(*names).collect())


def world(*names: str) -> World:
    made = World(*(Node(name) for name in names))
    for name in names:
        made.start(name, DAY)
    return made


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
    here = world("n1")
    for n in range(3):
        message = here.store("n1", DAY + n * SECOND)
        if n == 0:
            here.work("n1", DAY + MINUTE, message, "dropped", reason="nobody", attempt=None)
    told = [row for row in here.rows if "message" in row]
    removed = here.tell("n1", DAY + 2 * MINUTE, "removed", app="a", target="queue/q", n=2)
    paths, trails = paths_of(tales.table(told), H0, tales.clocks({}), OPTIONS)
    assert trails is not None
    assert [(row["open"], row["cancelled"]) for row in paths.to_pylist()] == [
        (False, True),
        (True, False),
        (True, False),
    ]
    happened = queues.flows(dict(Sums(paths, trails, OPTIONS).all())[FLOWS])
    thrown = queues.of_queues(pa.Table.from_pylist([removed], arrow_schema(EVENT)))
    every = [*happened.to_pylist(), *thrown.to_pylist()]
    flows = table(spark, "flows", *({"hour": H0, **row} for row in every))
    assert rows(queues.queues(flows, 0), "window", "stored", "lag") == [
        (DAY, 3, 3),
        (DAY + MINUTE, 0, 2),
        (DAY + 2 * MINUTE, 0, 0),
    ]
