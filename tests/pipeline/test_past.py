"""What tables have of all hours; and what the audit says of hours that were forgotten."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from chappe.pipeline import past
from chappe.pipeline.bronze import Ledger
from chappe.pipeline.job import run
from chappe.pipeline.keeping import compact, expire
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.table import Table, read
from tests.pipeline.traffic import DAY, HOUR, MINUTE, Node, Row, World, hour, save


def put(tables: Path, run_: int, *rows: Row) -> None:
    made = pa.Table.from_pylist([*rows], arrow_schema(TABLES["lives"]))
    Table(tables, "lives").put(made, run_, None)


def life(n: int) -> Row:
    queue = {"app": "a", "target": "queue/q", "at": n}
    told = {"node": f"n{n}", "boot": n, "alive": None if n % 2 else n, "recovered": [queue] * n}
    return dict.fromkeys(TABLES["lives"].names) | {"hour": hour(DAY + n * HOUR), **told}


def test_all_rows_of_a_table_are_read_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    table = Table(tmp_path, "lives")
    assert not [*past.all_hours(table)]
    rows = [life(n) for n in range(5)]
    put(tmp_path, 1, *rows)
    for n in (2, 3):
        put(tmp_path, n, rows[0])
    rows += [rows[0]] * 2
    # Files that were merged are read together with others.
    compact(tmp_path, files_max=2)
    for size, parts in ((100, 1), (4, 2), (1, 5)):
        monkeypatch.setattr(past, "_ROWS", size)
        found = [*past.all_hours(table)]
        assert len(found) == parts
        every = pa.concat_tables(found).select(TABLES["lives"].names)
        assert sorted(map(repr, every.to_pylist())) == sorted(map(repr, rows))


def test_hours_are_forgotten_from_the_next_run_on(tmp_path: Path):
    assert past.forgotten(tmp_path, 1) == []
    ledger = Ledger(tmp_path)
    for at in (DAY + 2 * HOUR + MINUTE, DAY + HOUR, DAY + 2 * HOUR):
        ledger.forget(at)
    # There was no run yet, and the one that is under way is not to know.
    assert past.forgotten(tmp_path, 0) == []
    assert past.forgotten(tmp_path, 1) == [hour(DAY + HOUR), hour(DAY + 2 * HOUR)]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_what_still_comes_of_a_forgotten_hour_makes_nothing_lost(
    spark: SparkSession, tmp_path: Path
):
    """A job waits for longer than its hour is kept, and is done then; a message was lost before."""
    world = World(Node("n1"), Node("n2"))
    for name in ("n1", "n2"):
        world.start(name, DAY)
        world.live(name, DAY, DAY + 5 * HOUR, every=5 * MINUTE)
    job = world.store("n1", DAY + MINUTE)
    lost = world.publish(DAY + MINUTE, [("n1", 0, 100), ("n2", 700, 100)])
    told = [row for row in world.rows if (row["node"], row.get("message")) != ("n2", lost)]
    events, tables = tmp_path / "events", tmp_path / "tables"
    until = DAY + 3 * HOUR
    save([row for row in told if row["at"] < until], events, tag="0")
    run(spark, [events], tables)
    before = said(tables)
    assert (before[job][0], before[lost][0]) == ("late", "lost")
    expire(tables, [events], large_before_us=DAY + 2 * HOUR)
    younger = world.store("n1", until + MINUTE)
    for one in (job, younger):
        world.work("n1", until + 2 * MINUTE, one, "lent")
        world.work("n1", until + 3 * MINUTE, one, "acked")
    save([row for row in world.rows if row["at"] >= until], events, tag="1")
    assert run(spark, [events], tables).quarantined == 2
    forgotten = "its hour was forgotten: what came of it since is not known"
    assert said(tables) == {job: ("unknown", forgotten), lost: before[lost]}


def said(tables: Path) -> dict[int, tuple[str, str]]:
    rows = read(tables, "audit").to_pylist()
    return {row["message"]: (row["verdict"], row["reason"]) for row in rows}
