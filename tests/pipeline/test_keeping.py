"""Tables are kept small without saying anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from chappe.errors import ChappeError
from chappe.pipeline import merging
from chappe.pipeline.keeping import Kept, compact, expire
from chappe.pipeline.making import Making
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.table import Table, read
from tests.pipeline.traffic import DAY, HOUR, Node, World, save

H = [f"2026-03-16T{n:02}" for n in range(4)]


def put(tables: Path, name: str, run: int, *rows: dict[str, object]) -> None:
    Table(tables, name).put(
        pa.Table.from_pylist(list(rows), schema=arrow_schema(TABLES[name])), run, None
    )


def test_many_files_of_an_hour_become_one_with_the_same_rows(tmp_path: Path):
    hops = [{"kind": "sent", "node": "n1", "went_to": ["n2"], "at": 5}]
    for n in range(1, 6):
        put(tmp_path, "paths", n, {"hour": H[0], "message": n, "label": f"{n}", "hops": hops})
    put(tmp_path, "paths", 6, {"hour": H[1], "message": 6})
    before = read(tmp_path, "paths").sort_by("message")
    kept = compact(tmp_path, files_max=4)
    assert (kept.files_before, kept.files_after) == (6, 2)
    assert read(tmp_path, "paths").sort_by("message").equals(before)
    assert read(tmp_path, "paths", filters=[("message", "=", 3)]).num_rows == 1
    assert Table(tmp_path, "paths").run() == 6


def test_an_hour_is_replaced_whole_and_others_stay(tmp_path: Path):
    put(tmp_path, "latency", 1, {"hour": H[0], "count": 1}, {"hour": H[1], "count": 2})
    table = Table(tmp_path, "latency")
    rows = [{"hour": H[1], "count": 3}]
    table.put(pa.Table.from_pylist(rows, schema=arrow_schema(table.schema)), 2, [H[1]])
    found = read(tmp_path, "latency", ["hour", "count"]).sort_by("hour").to_pylist()
    assert found == [{"hour": H[0], "count": 1}, {"hour": H[1], "count": 3}]
    assert table.hours() == set(H[:2])
    assert table.hours_from(DAY + HOUR) == {H[1]}


def test_what_is_old_is_forgotten_but_nothing_that_no_run_has_taken(tmp_path: Path):
    world = World(Node("n1"))
    world.start("n1", DAY)
    world.tell("n1", DAY + HOUR, "node_alive")
    events, tables = tmp_path / "events", tmp_path / "tables"
    save(world.rows, events)
    put(tables, "paths", 1, {"hour": H[0], "message": 1}, {"hour": H[1], "message": 2})
    put(tables, "latency", 1, {"hour": H[0], "count": 1})
    put(tables, "audit", 1, {"hour": "open", "message": 1})
    # Three hours before those that are kept stay, too: what comes of the latter looks at them.
    expire(tables, [events], large_before_us=DAY + 4 * HOUR)
    assert read(tables, "paths", ["message"]).to_pylist() == [{"message": 2}]
    assert read(tables, "latency").num_rows == read(tables, "audit").num_rows == 1
    assert len(list(events.glob("*/*/*.parquet"))) == 2
    name = f"date={H[0][:10]}/hour=00/n1-0-0.parquet"
    taken = {"hour": H[0], "run": 2, "folder": str(events), "file": name, "rows": 1}
    put(tables, "ledger", 2, taken)
    # The run has come to its end.
    for table in Making.ORDER:
        put(tables, table, 2)
    expire(tables, [events], large_before_us=DAY + HOUR, small_before_us=DAY + HOUR)
    assert len(list(events.glob("*/*/*.parquet"))) == 1
    assert read(tables, "latency").num_rows == 0
    assert read(tables, "audit").num_rows == 1


def test_who_reads_meanwhile_reads_on(tmp_path: Path):
    for n in range(1, 6):
        put(tmp_path, "paths", n, {"hour": H[0], "message": n})
    reader = DeltaTable(tmp_path / "paths")
    batches = reader.to_pyarrow_dataset().to_batches(columns=["message"])
    seen = next(batches)["message"].to_pylist()
    compact(tmp_path)
    put(tmp_path, "paths", 6, {"hour": H[0], "message": 6})
    expire(tmp_path, [], large_before_us=DAY + 9 * HOUR)
    assert read(tmp_path, "paths").num_rows == 0
    seen += [message for batch in batches for message in batch["message"].to_pylist()]
    assert (
        sorted(seen) == sorted(reader.to_pyarrow_table()["message"].to_pylist()) == [*range(1, 6)]
    )


def test_what_is_in_queues_before_the_oldest_hour_is_not_forgotten(tmp_path: Path):
    """The last hour before it tells, as every hour in which something happens in any queue has a
    row of all that are not empty."""
    about = {"app": "a", "queue": "queue/q"}
    for number, name in enumerate((H[0], H[1], H[3]), 1):
        put(tmp_path, "queues", number, {**about, "hour": name, "window": DAY, "lag": 100})
    late, later = DAY + 6 * HOUR, DAY + 99 * HOUR
    expire(tmp_path, [], large_before_us=late, small_before_us=later)
    # Messages of the fourth hour may still come, or be told of by a clock that is ahead.
    assert sorted(read(tmp_path, "queues")["hour"].to_pylist()) == [H[1], H[3]]
    expire(tmp_path, [], large_before_us=later, small_before_us=DAY + 3 * HOUR)
    assert sorted(read(tmp_path, "queues")["hour"].to_pylist()) == [H[1], H[3]]
    expire(tmp_path, [], large_before_us=later, small_before_us=later)
    assert read(tmp_path, "queues")["hour"].to_pylist() == [H[3]]


def test_nothing_is_forgotten_while_a_run_is_unfinished(tmp_path: Path):
    put(tmp_path, "paths", 1, {"hour": H[0], "message": 1})
    put(tmp_path, "ledger", 2, {"hour": H[0], "run": 2, "folder": "f", "file": "g", "rows": 1})
    with pytest.raises(ChappeError, match="interrupted"):
        expire(tmp_path, [], large_before_us=DAY + 9 * HOUR)
    assert read(tmp_path, "paths").num_rows == 1


@pytest.mark.parametrize(
    "keep", [compact, partial(expire, events=[], large_before_us=DAY)], ids=["compact", "expire"]
)
def test_the_work_of_a_run_that_is_finished_goes(keep: Callable[[Path], Kept], tmp_path: Path):
    left = tmp_path / "_work" / "run=1" / "packs"
    left.mkdir(parents=True)
    keep(tmp_path)
    assert not left.parent.parent.exists()


def test_what_an_unfinished_run_has_so_far_is_not_removed_by_compacting(tmp_path: Path):
    for n in range(1, 6):
        put(tmp_path, "paths", n, {"hour": H[0], "message": n})
    put(tmp_path, "ledger", 6, {"hour": H[0], "run": 6, "folder": "f", "file": "g", "rows": 1})
    # No table names it yet, and it is older than anything that somebody may be reading.
    part = tmp_path / "paths" / "run=6" / "of=parts" / f"hour={H[0]}" / "part-0.parquet"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"a day's work")
    os.utime(part, (1, 1))
    with pytest.raises(ChappeError, match="a run was interrupted; another must finish it first"):
        compact(tmp_path)
    assert part.exists()
    assert len(Table(tmp_path, "paths").files()) == 5


def test_files_that_are_large_enough_are_not_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for n, count in enumerate((1, 5_000, 1, 5_000, 1), start=1):
        rows = ({"hour": H[0], "message": i, "label": f"{i}"} for i in range(count))
        put(tmp_path, "paths", n, *rows)
    before = set(Table(tmp_path, "paths").files())
    large = {file for file in before if Path(file).stat().st_size > 20_000}
    assert len(large) == 2
    monkeypatch.setattr(merging, "SMALL_BYTES", 20_000)
    compact(tmp_path, files_max=2)
    after = set(Table(tmp_path, "paths").files())
    assert large < after
    assert len(after) == 3
    assert read(tmp_path, "paths").num_rows == 10_003


COMPACTING = """
import sys
from pathlib import Path
import pyarrow as pa
from chappe.pipeline.keeping import compact
print(compact(Path(sys.argv[1])).files_after, pa.default_memory_pool().max_memory())
"""


def test_compacting_holds_a_part_of_the_rows_at_a_time(tmp_path: Path):
    rows = [{"hour": H[0], "message": n, "label": "l" * 5_000} for n in range(2_000)]
    whole = pa.Table.from_pylist(rows, schema=arrow_schema(TABLES["paths"]))
    for n in range(1, 17):
        Table(tmp_path, "paths").put(whole, n, None)
    told = subprocess.run(
        [sys.executable, "-c", COMPACTING, str(tmp_path)],
        capture_output=True,
        check=True,
        text=True,
        timeout=100,
    )
    files, most = map(int, told.stdout.split())
    assert files == 1
    assert most < 16 * whole.nbytes / 2
    assert read(tmp_path, "paths", ["message"]).num_rows == 16 * 2_000


def test_a_table_that_is_not_there_is_empty(tmp_path: Path):
    assert read(tmp_path, "latency", ["hour", "p50"]).schema.names == ["hour", "p50"]
    assert Table(tmp_path, "latency").files() == []
