"""Files that nobody can read: they keep nobody from knowing what others tell."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from chappe.errors import StorageError
from chappe.pipeline.bronze import Ledger, found
from chappe.pipeline.job import NOTHING, Counts, due, run
from chappe.pipeline.stream import stream
from chappe.pipeline.table import read
from chappe.pipeline.upkeep import Upkeep
from tests.hub.rig import ManualClock
from tests.pipeline.traffic import DAY, SECOND, Node, World, save

pytestmark = pytest.mark.spark

HOUR = "date=2026-03-16/hour=00"


def told(folder: Path) -> None:
    """Two nodes tell of a message each."""
    for name in ("n1", "n2"):
        tell(folder, name)


def tell(folder: Path, name: str) -> None:
    world = World(Node(name))
    world.start(name, DAY)
    world.publish(DAY + SECOND, [(name, 0, 10)])
    save(world.rows, folder)


def rows_of(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows)


def damage(file: Path) -> None:
    """Spoil what a file holds, and leave what it says of itself."""
    content = bytearray(file.read_bytes())
    content[4:400] = bytes(396)
    file.write_bytes(content)


def test_a_file_that_is_damaged_or_gone_is_noted_and_the_others_are_taken(
    spark: SparkSession, tmp_path: Path
):
    events, tables = tmp_path / "events", tmp_path / "tables"
    told(events)
    (events / HOUR / "n3-0-0.parquet").write_bytes(b"nothing")
    wrong = pa.table({"kind": ["sent"], "at": ["yesterday"]})
    pq.write_table(wrong, events / HOUR / "n4-0-0.parquet")
    damaged = next((events / HOUR).glob("n2-*"))
    damage(damaged)
    # Of what is gone before its run there is nothing more but its name.
    gone = events / HOUR / "n5-0-0.parquet"
    gone.write_bytes((events / HOUR / damaged.name.replace("n2", "n1")).read_bytes())
    assert Ledger(tables).plan(found([events])) is not None
    gone.unlink()

    counts = run(spark, [events], tables)

    [whole] = (events / HOUR).glob("n1-*")
    assert (counts.files, counts.events, counts.spoiled) == (1, rows_of(whole), 4)
    assert [row["hops"][0]["node"] for row in read(tables, "paths").to_pylist()] == ["n1"]
    problems = {
        Path(row["file"]).name[:2]: row["problem"] for row in read(tables, "spoiled").to_pylist()
    }
    assert problems.keys() == {"n2", "n3", "n4", "n5"}
    assert problems["n4"] == "at: string instead of int64"
    assert not due([events], tables)

    # Where there is nothing else that is told, too, and once. What a run left that was killed at
    # its very end goes.
    (events / HOUR / "n6-0-0.parquet").write_bytes(b"nothing")
    (tables / "_work" / "run=1").mkdir(parents=True)
    assert run(spark, [events], tables) == NOTHING._replace(spoiled=1)
    assert not (tables / "_work").exists()
    assert run(spark, [events], tables) == NOTHING


def test_a_file_that_cannot_be_read_now_is_named_and_taken_later(tmp_path: Path):
    events, ledger = tmp_path / "events", Ledger(tmp_path / "tables")
    told(events)
    file, aside = next((events / HOUR).glob("n2-*")), tmp_path / "aside"

    def out_of_reach() -> None:
        """As a share that is away is: the name is there, and cannot be followed."""
        file.rename(aside)
        file.symlink_to(file)

    out_of_reach()
    with pytest.raises(StorageError, match=f"{file.name}.*symbolic links"):
        ledger.plan(found([events]))
    aside.rename(file)
    plan = ledger.plan(found([events]))
    assert plan is not None
    assert (len(plan.files), plan.spoiled) == (2, 0)

    out_of_reach()
    with pytest.raises(StorageError, match=f"{file.name}.*symbolic links"):
        ledger.spoil(plan)
    aside.rename(file)
    assert not ledger.spoil(plan)

    # The same is true of a folder without anything in it: so looks what is not mounted.
    events.rename(aside)
    events.mkdir()
    with pytest.raises(StorageError, match="is it mounted"):
        ledger.spoil(plan)
    events.rmdir()
    with pytest.raises(StorageError, match="is it mounted"):
        ledger.spoil(plan)
    aside.rename(events)
    assert not ledger.spoil(plan)
    assert ledger.planned() == plan


class Interrupted(Exception):
    """The process ended here."""


def interrupt(_stage: str, _seconds: float) -> None:
    raise Interrupted


def test_a_file_that_goes_after_it_was_read_is_not_spoiled(spark: SparkSession, tmp_path: Path):
    events, tables = tmp_path / "events", tmp_path / "tables"
    told(events)
    with pytest.raises(Interrupted):
        run(spark, [events], tables, progress=interrupt)
    next((events / HOUR).glob("n2-*")).unlink()
    packs = list((tables / "_work" / "run=1").glob("packs*/*.parquet"))
    for pack in packs:
        rows = pq.ParquetFile(pack).read()
        nothing = pa.array([b"nothing"] * rows.num_rows, rows["data"].type)
        place = rows.column_names.index("data")
        pq.write_table(rows.set_column(place, "data", nothing), pack)
        # What Spark knows of a file by its checksum is of another one now.
        pack.with_name(f".{pack.name}.crc").unlink()
    assert packs
    with pytest.raises((PySparkException, Py4JError)):
        run(spark, [events], tables)
    assert read(tables, "spoiled").num_rows == 0

    # Before that it is; and when all are, the run has nothing in it.
    shutil.rmtree(tables / "_work")
    damage(next((events / HOUR).glob("n1-*")))
    counts = run(spark, [events], tables)
    assert counts == NOTHING._replace(run=1, spoiled=2)
    assert not due([events], tables)


def test_a_stream_goes_on_without_files_that_are_damaged_or_gone_and_keeps_its_tables_small(
    spark: SparkSession, tmp_path: Path
):
    # Spaces and signs that mean something in addresses are names of folders, too.
    events, tables = tmp_path / "all #1 %20?", tmp_path / "tables"
    for name in ("n1", "n4"):
        tell(events, name)
    broken, gone = (events / HOUR / f"{name}-0-0.parquet" for name in ("n2", "n3"))
    broken.write_bytes(b"nothing")
    gone.write_bytes((events / HOUR / "n4-0-0.parquet").read_bytes())
    # Spark takes them by their age.
    for n, file in enumerate(sorted(found([events]))):
        os.utime(file, (DAY // SECOND + n,) * 2)
    did: list[Counts] = []

    def after_each(counts: Counts) -> None:
        did.append(counts)
        gone.unlink(missing_ok=True)

    # By a clock that stands still, it takes no time and needs no rest.
    upkeep = Upkeep(tables, every_s=0, readers_h=0, clock=ManualClock())
    stream(spark, [events], tables, files_per_run=2, done=after_each, upkeep=upkeep).wait()

    assert [(counts.run, counts.files, counts.spoiled) for counts in did] == [(1, 1, 1), (2, 1, 0)]
    assert [Path(name).name for name in read(tables, "spoiled")["file"].to_pylist()] == [
        broken.name
    ]
    nodes = {hop["node"] for row in read(tables, "paths").to_pylist() for hop in row["hops"]}
    assert nodes == {"n1", "n4"}
    # What the second batch replaced is gone.
    assert {place.name for place in (tables / "paths").glob("run=*")} == {"run=2"}
