"""What one run takes says something of hours that another took: of a link that was down for hours,
and of a clock that is wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chappe.pipeline.job import run
from chappe.pipeline.table import read
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, World, hour, save

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def down(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of two runs."""
    here = World(Node("n1"), Node("n2", ahead=90 * SECOND))
    for node in here.nodes:
        here.start(node, DAY)
        here.live(node, DAY, DAY + 5 * HOUR)
    here.tell("n1", DAY + 30 * MINUTE, "link_down", peer="n2")
    here.store("n1", DAY + 40 * MINUTE)
    here.tell("n2", DAY + 2 * HOUR + 20 * MINUTE, "removed", app="a", target="queue/q", n=1)
    here.publish(DAY + 3 * HOUR + MINUTE, [("n1", 0, 10), ("n2", 20, 30)])
    here.tell("n1", DAY + 3 * HOUR + 10 * MINUTE, "link_up", peer="n2")
    then = DAY + 3 * HOUR
    early = [row for row in here.rows if row["at"] < then]
    late = [row for row in here.rows if row["at"] >= then]
    here.rows.clear()
    # Of the hour before that in which the queue was removed.
    here.beat(DAY + HOUR + 50 * MINUTE, DAY + HOUR + 51 * MINUTE)
    root = tmp_path_factory.mktemp("down")
    events, tables = root / "events", root / "tables"
    for tag, rows in enumerate((early, late + here.rows)):
        save(rows, events, f"{tag}")
        run(spark, [events], tables)
    return tables


def test_a_run_knows_of_links_that_went_down_hours_before_what_it_takes(down: Path):
    minutes: Counter[str] = Counter()
    handed = 0
    for row in read(down, "links").to_pylist():
        minutes[row["hour"]] += row["down_us"] // MINUTE
        handed += row["handed"]
    assert [minutes[hour(DAY + n * HOUR)] for n in range(5)] == [30, 60, 60, 10, 0]
    assert handed == 1


def test_a_queue_is_removed_by_the_clock_of_all_though_beats_came_later(down: Path):
    rows = read(down, "queues", ["window", "lag"]).sort_by("window").to_pylist()
    assert rows == [
        {"window": DAY + 40 * MINUTE, "lag": 1},
        {"window": DAY + 2 * HOUR + 20 * MINUTE, "lag": 0},
    ]
