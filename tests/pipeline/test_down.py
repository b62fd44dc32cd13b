"""A link that was down for hours is told so in all of them, by however many runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chappe.pipeline.job import run
from chappe.pipeline.table import read
from tests.pipeline.traffic import DAY, HOUR, MINUTE, Node, World, hour, save

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_run_knows_of_links_that_went_down_hours_before_what_it_takes(
    spark: SparkSession, tmp_path: Path
):
    here = World(Node("n1"), Node("n2"))
    for node in here.nodes:
        here.start(node, DAY)
        here.live(node, DAY, DAY + 5 * HOUR)
    here.tell("n1", DAY + 30 * MINUTE, "link_down", peer="n2")
    here.publish(DAY + 3 * HOUR + MINUTE, [("n1", 0, 10), ("n2", 20, 30)])
    here.tell("n1", DAY + 3 * HOUR + 10 * MINUTE, "link_up", peer="n2")
    events, tables = tmp_path / "events", tmp_path / "tables"
    then = DAY + 3 * HOUR
    save([row for row in here.rows if row["at"] < then], events)
    run(spark, [events], tables)
    save([row for row in here.rows if row["at"] >= then], events)
    run(spark, [events], tables)
    down: Counter[str] = Counter()
    handed = 0
    for row in read(tables, "links").to_pylist():
        down[row["hour"]] += row["down_us"] // MINUTE
        handed += row["handed"]
    assert [down[hour(DAY + n * HOUR)] for n in range(5)] == [30, 60, 60, 10, 0]
    assert handed == 1
