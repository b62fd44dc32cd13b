"""The ledger: what a run takes, and what it knows of runs before. No Spark is needed for it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chappe.errors import StorageError
from chappe.pipeline.bronze import Ledger, Plan, found
from chappe.pipeline.keeping import compact
from chappe.pipeline.making import Making
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.table import Table, read
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SCHEMA, Node, World, hour, save

DAYS = 24 * HOUR
# Long enough ago that files are written after it.
BEGIN = DAY - 30 * DAYS


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A node's words: four hours, of 1, 2, 3 and 4 rows."""
    world = World(Node("n1"))
    world.start("n1", BEGIN)
    for n in range(1, 4):
        world.live("n1", BEGIN + n * HOUR, BEGIN + n * HOUR + (n + 2) * MINUTE, every=MINUTE)
    save(world.rows, tmp_path / "events")
    return tmp_path / "events"


def hours(files: list[str]) -> list[str]:
    return [f"{Path(file).parent.name[5:]}" for file in files]


def test_a_run_takes_so_many_rows_of_the_oldest_hours_and_leaves_the_rest(
    events: Path, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "tables")
    plans = []
    while (plan := ledger.plan(found([events]), rows_max=3)) is not None:
        plans.append((plan.run, plan.rows, hours(list(plan.files))))
    # One that has more than a run takes is a run of its own.
    assert plans == [(1, 3, ["00", "01"]), (2, 3, ["02"]), (3, 4, ["03"])]


def test_only_what_was_taken_of_the_same_hours_is_looked_at(events: Path, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "tables")
    assert ledger.plan(found([events])) is not None
    for file in Table(tmp_path / "tables", "ledger").files([hour(BEGIN), hour(BEGIN + HOUR)]):
        Path(file).unlink()
    late = [file for file in found([events]) if file.parent.name in {"hour=02", "hour=03"}]
    another = late[0].with_name("n2-0-0.parquet")
    assert ledger.new([*late, another]) == [another]


def test_a_run_knows_until_when_those_before_it_were_told(events: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    ledger = Ledger(tables)
    plans = []
    while (plan := ledger.plan(found([events]), rows_max=3)) is not None:
        plans.append(plan)
    last = [BEGIN + MINUTE * n + HOUR * h for h, n in ((1, 2), (2, 3), (3, 4))]
    assert [plan.horizon for plan in plans] == [0, *last[:2]]
    assert [plan.written for plan in plans] == last
    # Also when files of several runs are one.
    for name in Making.ORDER:
        Table(tables, name).put(arrow_schema(TABLES[name]).empty_table(), plans[-1].run, None)
    compact(tables, files_max=1)
    assert ledger.planned() == plans[-1]
    again = events / "again" / "date=2026-01-01" / "hour=00"
    again.mkdir(parents=True)
    (again / "n9-0-0.parquet").write_bytes(next(found([events])).read_bytes())
    plan = ledger.plan(found([events / "again"]))
    assert plan is not None
    assert (plan.horizon, plan.written) == (last[2], last[2])


def test_a_file_that_was_written_by_a_clock_years_ahead_is_of_now(tmp_path: Path) -> None:
    ahead = time.time_ns() + 10 * 366 * DAYS * 1000
    world = World(Node("n1"))
    world.start("n1", ahead // 1000)
    save(world.rows, tmp_path)
    [file] = found([tmp_path])
    when = hour(ahead // 1000)
    place = tmp_path / f"date={when[:10]}" / f"hour={when[11:]}"
    place.mkdir(parents=True)
    file = file.rename(place / file.name)
    os.utime(file, ns=(ahead, ahead))
    assert Ledger(tmp_path / "tables").plan([file]) is not None
    [row] = read(tmp_path / "tables", "ledger", ["at"]).to_pylist()
    assert BEGIN < row["at"] <= time.time_ns() // 1000


def test_a_row_of_another_time_than_its_file_s_makes_nothing_late(tmp_path: Path) -> None:
    world = World(Node("n1"))
    world.start("n1", BEGIN)
    world.tell("n1", BEGIN, "node_alive").update(at=2**60)
    save(world.rows[:1], tmp_path)
    [file] = found([tmp_path])
    pq.write_table(pa.Table.from_pylist(world.rows, schema=SCHEMA), file)
    plan = Ledger(tmp_path / "tables").plan([file])
    assert plan is not None
    assert plan.written == BEGIN + HOUR


def test_a_file_of_no_hour_is_noted_and_the_others_are_taken(events: Path, tmp_path: Path) -> None:
    place = events / "date=today" / "hour=noon"
    place.mkdir(parents=True)
    (place / "n2-0-0.parquet").write_bytes(next(found([events])).read_bytes())
    plan = Ledger(tmp_path / "tables").plan(found([events]))
    assert plan is not None
    assert len(plan.files) == 4
    [row] = read(tmp_path / "tables", "spoiled").to_pylist()
    assert row["problem"] == "todayTnoon is not an hour"


def test_files_none_of_which_can_be_read_are_told_of_once(events: Path, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "tables")
    good = list(found([events]))
    bad = [good[0].with_name(f"n{n}-0-0.parquet") for n in range(2, 5)]
    for file in bad:
        file.write_bytes(b"nothing")
    assert ledger.plan(bad[:2]) == Plan(0, [], 0, spoiled=2)
    assert ledger.plan(bad[:2]) is None
    plan = ledger.plan([*good, *bad])
    assert plan is not None
    assert (plan.run, len(plan.files), plan.rows, plan.spoiled) == (1, 4, 10, 1)


NOBODY = 65_534


@contextmanager
def as_nobody() -> Iterator[Path]:
    """A folder that everybody may write to, while this process is nobody in particular: root may
    read everything."""
    me = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        if me == 0:
            os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(me)


def test_a_file_that_may_not_be_read_is_not_taken_for_spoiled() -> None:
    """Whoever it belongs to can mend that, and then it is taken."""
    with as_nobody() as folder:
        world = World(Node("n1"))
        world.start("n1", BEGIN)
        save(world.rows, folder / "events")
        [file] = found([folder / "events"])
        ledger = Ledger(folder / "tables")
        file.chmod(0)
        with pytest.raises(StorageError, match=f"{file}: .*Permission denied"):
            ledger.plan([file])
        file.chmod(0o644)
        plan = ledger.plan([file])
        assert plan is not None
        assert (plan.rows, plan.spoiled) == (1, 0)
        file.chmod(0)
        with pytest.raises(StorageError, match=f"{file}: .*Permission denied"):
            ledger.spoil(plan)
