"""Attempts at the same step do not meet: each writes beside the others, and one of them counts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from chappe.pipeline import paths, presence, work
from chappe.pipeline.job import run
from chappe.pipeline.keeping import compact
from chappe.pipeline.parts import Attempt, write_part
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.table import Table, read
from tests.pipeline.full import full_only
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, Row, World, hour, save

H0 = hour(DAY)
MESSAGES = 40
GATHER, COMMIT = paths.gather, Table.commit


def latency(count: int) -> pa.Table:
    schema = arrow_schema(TABLES["latency"])
    return pa.Table.from_pylist([{"hour": H0, "count": count}], schema=schema)


def test_a_commit_is_of_one_attempt_and_what_another_writes_later_is_nobody_s(tmp_path: Path):
    table = Table(tmp_path, "latency")
    first, second = (Attempt.begin(tmp_path, 1) for _ in range(2))
    write_part(first, "latency", H0, 0, latency(1))
    write_part(first, "latency", H0, 1, latency(2))
    write_part(second, "latency", H0, 0, latency(3))
    assert table.commit(second, [H0]) == 1
    write_part(first, "latency", H0, 0, latency(4))
    assert read(tmp_path, "latency", ["count"]).to_pylist() == [{"count": 3}]
    assert table.rows_by_hour() == {H0: 1}


def test_what_attempts_left_goes_with_what_was_replaced(tmp_path: Path):
    left, done = (Attempt.begin(tmp_path, 1) for _ in range(2))
    for attempt in (left, done):
        write_part(attempt, "latency", H0, 0, latency(1))
    # In the middle of a file, and of Spark's own folders.
    begun = left.place("latency") / f"hour={H0}" / ".part-1-0"
    inside = left.place("latency") / "_temporary" / "0" / "part-0.parquet"
    inside.parent.mkdir(parents=True)
    for file in (begun, inside):
        file.write_bytes(b"half of it")
    Table(tmp_path, "latency").commit(done, None)
    compact(tmp_path, readers_h=1)
    assert begun.exists()
    assert inside.exists()
    for file in left.place("latency").rglob("*"):
        os.utime(file, (DAY // SECOND, DAY // SECOND))
    compact(tmp_path, readers_h=1)
    assert [*(tmp_path / "latency" / "run=1").iterdir()] == [done.place("latency")]
    assert read(tmp_path, "latency").num_rows == 1


class Killed(Exception):
    """The client's process ended here."""


class Server:
    """Goes on with what a client began that was killed: its tasks wait until they are let go, and
    write something else than others would."""

    def __init__(self, folder: Path) -> None:
        self._gate = folder / "gate"
        self._work: threading.Thread | None = None
        self._folder = folder
        os.mkfifo(self._gate)

    def gather(self, *args: Any) -> DataFrame:
        """As the step does that paths are gathered by; whoever asks is killed, and it goes on."""
        packs, attempt, *others = args
        frame = GATHER(self._held(packs), attempt, *others)
        place = self._folder / "tables" / "_work" / "run=1" / f"sums-{attempt.token}"
        self._work = threading.Thread(target=lambda: frame.write.parquet(str(place)))
        self._work.start()
        raise Killed

    def _held(self, packs: DataFrame) -> DataFrame:
        gate = str(self._gate)

        def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with open(gate) as way:
                way.read()
            yield next(iter(batches)).slice(0, 1)

        return packs.coalesce(1).mapInArrow(wait, packs.schema)

    def meets(self, other: Callable[[], None]) -> None:
        """Let another do something while a task is held, and then all of them go on to the end."""
        assert self._work is not None
        # Opened when a task has come to it, and shut when the other is done.
        with self._gate.open("w"):
            other()
        self._work.join()


def _failing(table: Table, *args: Any) -> int:
    if table.name == "paths":
        raise Killed
    return COMMIT(table, *args)


def told() -> list[Row]:
    """An hour of two nodes: messages through both, beats, two who come, go and come back."""
    world = World(Node("n1"), Node("n2"))
    for name in world.nodes:
        world.start(name, DAY)
        world.live(name, DAY, DAY + HOUR, every=10 * MINUTE)
    world.beat(DAY, DAY + HOUR, every=10 * MINUTE)
    for n in range(MESSAGES):
        at = DAY + n * MINUTE + MINUTE
        world.publish(at, [("n1", 0, 100), ("n2", 700, 200)])
        who = {"app": "a", "edge": "ws", "target": f"user/{n % 2}"}
        world.tell("n2", at, "session_opened", **who)
        world.tell("n2", at + 90 * SECOND, "session_closed", came=at, **who)
    return world.rows


@full_only("runs over Connect that are killed are tried elsewhere")
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_step_that_a_server_still_does_for_a_client_that_was_killed_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The next run does the same step while the server's tasks are held, and is killed before its
    commit; when the server has done its own, a third run finishes it. All in several pieces."""
    monkeypatch.setattr(work, "ROWS_PER_TASK", 50)
    monkeypatch.setattr(presence, "ROWS_PER_PIECE", 50)
    rows, events, tables = told(), tmp_path / "events", tmp_path / "tables"
    save(rows, events)
    server = Server(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(paths, "gather", server.gather)
        with pytest.raises(Killed):
            run(spark, [events], tables)

    def next_run() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Table, "commit", _failing)
            with pytest.raises(Killed):
                run(spark, [events], tables)

    server.meets(next_run)
    assert len([*(tables / "paths" / "run=1").iterdir()]) == 2
    run(spark, [events], tables)

    assert [len(row["hops"]) for row in read(tables, "paths").to_pylist()] == [2] * MESSAGES
    assert sum(read(tables, "delivery")["messages"].to_pylist()) == MESSAGES
    sessions = read(tables, "sessions")
    assert sum(sessions["opened"].to_pylist()) == MESSAGES
    assert sum(sessions["reconnects"].to_pylist()) == MESSAGES - 2
    assert sum(read(tables, "stays")["closed"].to_pylist()) == MESSAGES
    assert sorted(read(tables, "lives")["node"].to_pylist()) == ["n1", "n2"]
    serials = [(row["node"], row["serial"]) for row in rows if "message" not in row]
    found = read(tables, "events", ["node", "serial"]).to_pylist()
    assert sorted((row["node"], row["serial"]) for row in found) == sorted(serials)
    assert len(Table(tables, "events").files()) == -(-len(serials) // 50)
    assert not (tables / "_work").exists()
