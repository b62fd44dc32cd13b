"""Runs one after another, interrupted, repeated, as a stream: always the same tables. D2"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from chappe.pipeline.job import run
from chappe.pipeline.making import Making
from chappe.pipeline.stream import stream
from chappe.pipeline.table import Table, read
from tests.pipeline.day import Day
from tests.pipeline.traffic import DAY, HOUR, Row, save

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# What a run writes down of itself differs with the number of runs.
SAME = [name for name in Making.ORDER if name != "quarantine"]


def content(tables: Path, name: str) -> list[str]:
    """A table's rows, whatever their order; numbers that are sums of shares, rounded."""
    return sorted(repr(_plain(row)) for row in read(tables, name).to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value


def assert_same(tables: Path, others: Path) -> None:
    for name in SAME:
        assert content(tables, name) == content(others, name), name


def halves(day: Day) -> list[list[Row]]:
    """The day until 13:10, without what came late, and the rest; some rows are in both."""
    noon = DAY + 13 * HOUR + HOUR // 6
    early = [row for n, row in enumerate(day.rows) if (row["at"] or 0) < noon and n % 37]
    late = [row for n, row in enumerate(day.rows) if (row["at"] or 0) >= noon or not n % 37]
    return [early, [*late, *early[::41]]]


class Interrupted(Exception):
    """The process ended here."""


def test_two_runs_with_late_and_repeated_rows_and_a_crash_in_each_make_the_same_tables(
    spark: SparkSession, day: Day, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    events, mine = tmp_path / "events", tmp_path / "tables"
    commit = Table._commit
    for n, (rows, place) in enumerate(zip(halves(day), ("paths", "queues"), strict=True)):
        save(rows, events, tag=str(n))

        def fail(table: Table, *args: Any, place: str = place) -> int:
            if table.name == place:
                raise Interrupted
            return commit(table, *args)

        with monkeypatch.context() as patch:
            patch.setattr(Table, "_commit", fail)
            with pytest.raises(Interrupted):
                run(spark, [events], mine, day.options)
        run(spark, [events], mine, day.options)
    assert_same(mine, tables)
    versions = {name: DeltaTable(mine / name).version() for name in ("ledger", *Making.ORDER)}
    assert run(spark, [events], mine, day.options).files == 0
    assert versions == {name: DeltaTable(mine / name).version() for name in versions}


def test_a_stream_of_batches_makes_the_same_tables(
    spark: SparkSession, day: Day, tables: Path, tmp_path: Path
):
    events, mine = tmp_path / "events", tmp_path / "tables"
    for n, rows in enumerate(halves(day)):
        save(rows, events, tag=str(n))
        query = stream(spark, [events], mine, day.options)
        assert query.awaitTermination(600)
        assert query.exception() is None
    assert_same(mine, tables)
