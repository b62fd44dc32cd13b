"""Whatever counts is on the disk before it does: a power cut leaves no name without its file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from chappe.pipeline import work
from chappe.pipeline.job import run
from chappe.pipeline.notes import write_note
from chappe.pipeline.schema import arrow_schema
from chappe.pipeline.table import Table
from tests.pipeline.traffic import DAY, SECOND, Node, World, hour, save


class Disk:
    """What of the files is on the disk by now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._synced: set[tuple[int, int]] = set()
        self.commits = 0
        fsync, commit = os.fsync, DeltaTable.create_write_transaction

        def noted(fd: int) -> None:
            fsync(fd)
            self._synced.add((os.fstat(fd).st_dev, os.fstat(fd).st_ino))

        def checked(table: DeltaTable, actions: list[Any], *args: Any, **words: Any) -> None:
            root = Path(table.table_uri.removeprefix("file://"))
            for action in actions:
                # What is removed has no size in it that anybody reads.
                if type(action).__name__ == "AddAction":
                    self.check(root, root / action.path)
            commit(table, actions, *args, **words)
            self.commits += 1

        monkeypatch.setattr(os, "fsync", noted)
        monkeypatch.setattr(DeltaTable, "create_write_transaction", checked)

    def has(self, path: Path) -> bool:
        return (path.stat().st_dev, path.stat().st_ino) in self._synced

    def check(self, top: Path, file: Path) -> None:
        """See that a file is there, with its checksum and all names on the way to it."""
        for path in (file, *(one for one in file.parents if one.is_relative_to(top))):
            assert self.has(path), path
        checksum = file.with_name(f".{file.name}.crc")
        assert not checksum.exists() or self.has(checksum), checksum


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def put(tables: Path, run: int) -> None:
    table = Table(tables, "latency")
    rows = pa.Table.from_pylist(
        [{"hour": hour(DAY), "count": run}], schema=arrow_schema(table.schema)
    )
    table.put(rows, run, None)


def check_log(disk: Disk, table: Path) -> None:
    last = max((table / "_delta_log").glob("*.json"))
    disk.check(table / "_delta_log", last)


def test_files_are_on_the_disk_before_their_commit_and_that_before_all_else(
    tmp_path: Path, disk: Disk
) -> None:
    for n in (1, 2, 3):
        put(tmp_path, n)
        check_log(disk, tmp_path / "latency")
    Table(tmp_path, "latency").compact(1, 0)
    check_log(disk, tmp_path / "latency")
    assert disk.commits == 4
    assert Table(tmp_path, "latency").rows_by_hour() == {hour(DAY): 3}


def test_a_note_is_on_the_disk_with_its_name(tmp_path: Path, disk: Disk) -> None:
    write_note(tmp_path / "note", "done")
    disk.check(tmp_path, tmp_path / "note")


@pytest.mark.spark
def test_what_a_step_wrote_is_on_the_disk_before_its_note(
    spark: SparkSession, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(Node("n1"))
    world.start("n1", DAY)
    world.publish(DAY + SECOND, [("n1", 0, 10)])
    save(world.rows, tmp_path / "events")
    tables = tmp_path / "tables"
    steps: list[str] = []

    def checked(write: Callable[[Path, str], None]) -> Callable[[Path, str], None]:
        def note(file: Path, text: str) -> None:
            if file.suffix == ".done":
                steps.append(file.stem)
                # Its own folder, and its parts of tables.
                written = list(file.with_name(f"{file.stem}-{text}").rglob("*.parquet"))
                for path in (*written, *tables.rglob(f"of=parts-{text}/*/*.parquet")):
                    disk.check(path.parent, path)
            write(file, text)

        return note

    monkeypatch.setattr(work, "write_note", checked(write_note))
    assert run(spark, [tmp_path / "events"], tables).files == 1
    assert steps[:3] == ["packs", "sums", "hours"]
    for table in (path.parent for path in tables.glob("*/_delta_log")):
        check_log(disk, table)
