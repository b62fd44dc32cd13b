"""A stream takes what a batch does: the files of events, and nothing else below their folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chappe.pipeline.bronze import found
from chappe.pipeline.job import Counts
from chappe.pipeline.stream import stream
from chappe.pipeline.table import read
from tests.pipeline.traffic import DAY, SECOND, Node, World, save


@pytest.mark.spark
def test_a_stream_takes_the_files_that_a_batch_takes(spark: SparkSession, tmp_path: Path) -> None:
    world = World(Node("n1"))
    world.start("n1", DAY)
    world.publish(DAY + SECOND, [("n1", 0, 10)])
    # A folder that is reached by another name, too.
    real, events = tmp_path / "real", tmp_path / "events"
    save(world.rows, real)
    events.symlink_to(real)
    [file] = found([events])
    # What somebody keeps there besides, a copy of all and one of a file.
    shutil.copytree(real, tmp_path / "copy")
    (tmp_path / "copy").rename(real / "copy")
    for place in (real / "n9-0-0.parquet", file.with_name("old") / "n9-0-0.parquet"):
        place.parent.mkdir(exist_ok=True)
        shutil.copy(file, place)
    assert list(found([events])) == [file]
    did: list[Counts] = []
    stream(spark, [events], tmp_path / "tables", done=did.append).wait()
    assert [(counts.files, counts.spoiled) for counts in did] == [(1, 0)]
    assert [
        Path(name).name for name in read(tmp_path / "tables", "ledger")["file"].to_pylist()
    ] == [file.name]
