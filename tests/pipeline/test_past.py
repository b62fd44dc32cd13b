"""What tables have of all hours, and which were forgotten."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from chappe.pipeline import past
from chappe.pipeline.bronze import Ledger
from chappe.pipeline.keeping import compact
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.table import Table
from tests.pipeline.traffic import DAY, HOUR, MINUTE, Row, hour


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
