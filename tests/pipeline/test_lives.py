"""Which processes died: by what they said, and by what others did. From literal rows."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from chappe.pipeline import lives
from chappe.pipeline.options import Options
from chappe.pipeline.schema import TABLES
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Row, hour

pytestmark = pytest.mark.spark

OPTIONS = Options()
YEARS = 10 * 366 * 24 * HOUR


def life(node: str, alive: int, **columns: int) -> Row:
    """A life that began at midnight; `boot` is that by its own clock, `began` by the right one."""
    told = {"node": node, "boot": DAY, "began": DAY, "alive": alive, "missed": 0}
    return {"hour": hour(DAY), "recovered": [], "removed": [], **told, **columns}


def died(spark: SparkSession, written: int | None, *rows: Row) -> tuple[set[str], int]:
    """Who died, and until when anybody told anything."""
    schema = TABLES["lives"]
    frame = spark.createDataFrame([tuple(map(row.get, schema.names)) for row in rows], schema)
    found = lives.known(frame, OPTIONS, written).collect()
    return {row["node"] for row in found if row["died"]}, found[0]["horizon"]


def test_a_clock_that_is_years_ahead_makes_nobody_dead(spark: SparkSession) -> None:
    now = DAY + HOUR
    one, two = life("one", now - SECOND), life("two", now)
    silent = life("silent", now - 5 * MINUTE)
    fast = life("fast", now + YEARS)
    assert died(spark, now, one, two, silent) == ({"silent"}, now)
    assert died(spark, now, one, two, silent, fast) == ({"silent"}, now)
    # A little ahead of the clock that files were written by is nothing.
    assert died(spark, now - MINUTE, one, two, silent) == ({"silent"}, now)
    # Whose clock was put right counts.
    right = life("right", now + MINUTE, boot=DAY + YEARS)
    assert died(spark, now, one, silent, right) == ({"silent"}, now + MINUTE)


def test_others_are_put_right_by_a_clock_that_is_years_ahead(spark: SparkSession) -> None:
    now = DAY + HOUR
    ahead = life("ahead", now + YEARS, boot=DAY + YEARS, began=DAY + YEARS)
    group = [ahead, life("linked", now + YEARS, began=DAY + YEARS)]
    assert died(spark, now, *group, life("alone", now)) == (set(), now)
    assert died(spark, now, *group, life("alone", now - HOUR)) == ({"alone"}, now)
    # If there is nobody else, nobody is called dead for being silent.
    assert died(spark, now, ahead, life("further", now + 2 * YEARS)) == (set(), now)


def test_a_process_that_is_gone_died_and_one_that_stopped_did_not(spark: SparkSession) -> None:
    now = DAY + HOUR
    rows = [
        life("gone", now, gone=now),
        life("here", now),
        life("stopped", now, gone=now, stopped=now),
    ]
    assert died(spark, now, *rows)[0] == {"gone"}


def test_that_a_process_is_gone_is_told_and_is_no_sign_of_life(spark: SparkSession) -> None:
    about = {"node": "n1", "boot": DAY, "shift": 5}
    words = [
        {"kind": "node_started", "serial": 1, "at": DAY, **about},
        {"kind": "node_alive", "serial": 2, "at": DAY + SECOND, **about},
        {"kind": "node_gone", "serial": 3, "at": DAY + 2 * SECOND, **about},
    ]
    schema = StructType([*TABLES["events"], StructField("shift", LongType())])
    rows = [tuple((row | {"hour": hour(DAY)}).get(name) for name in schema.names) for row in words]
    [told] = lives.told(spark.createDataFrame(rows, schema)).collect()
    assert (told["alive"], told["stopped"]) == (DAY + SECOND + 5, None)
    assert told["gone"] == DAY + 2 * SECOND + 5
