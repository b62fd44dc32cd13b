"""Runs one after another, interrupted, repeated, as a stream: always the same tables. D2"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from chappe.errors import ConfigError
from chappe.pipeline import work
from chappe.pipeline.bronze import Ledger
from chappe.pipeline.job import Counts, due, finish, run
from chappe.pipeline.making import Making
from chappe.pipeline.options import Options, agree
from chappe.pipeline.stream import stream
from chappe.pipeline.table import Table, read
from tests.pipeline.day import Day
from tests.pipeline.full import FULL, full_only
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, Row, World, hour, save

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# Files that are read twice have rows that are put aside twice. What was written down twice, and in
# which run, decides how a path is looked at, not what is found.
SAME = [name for name in Making.ORDER if name not in {"quarantine", "odd"}]
WEEK = 7 * 24 * HOUR
# Where a run is interrupted: between tables that are made of one another; for the proof, before the
# first table and between any two.
STAGES = ("plan", *Making.ORDER)
STOPS = STAGES[:-1] if FULL else ("flows",)


def content(tables: Path, name: str) -> list[str]:
    """A table's rows, whatever their order; numbers that are sums of shares, rounded."""
    return sorted(repr(_plain(row)) for row in read(tables, name).to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value


def versions(tables: Path) -> dict[str, int]:
    return {name: DeltaTable(tables / name).version() for name in ("ledger", *Making.ORDER)}


def pieces(day: Day, seed: int) -> list[list[Row]]:
    """The day in two, in no order of time; some rows are in two of them, or twice in one."""
    random = Random(seed)
    parts: list[list[Row]] = [[], []]
    place = {}
    for row in day.rows:
        # What one node tells in half an hour is mostly in one file; a few rows come late.
        file = (row["node"], (row["at"] or DAY) // (30 * MINUTE))
        mine = place.setdefault(file, random.randrange(2))
        parts[random.randrange(2) if random.random() < 0.02 else mine].append(row)
    for n in range(2):
        parts[n] += parts[n - 1][::41] + parts[n][::53]
    return parts


class Interrupted(Exception):
    """The process ended here."""


class Interruption:
    """Ends a run after a stage, the first time that it comes to its end: once after each."""

    def __init__(self, *stages: str) -> None:
        self.left = list(stages)

    def __call__(self, stage: str, _seconds: float) -> None:
        if stage in self.left:
            self.left.remove(stage)
            raise Interrupted


def test_runs_over_files_in_no_order_that_are_interrupted_make_the_same_tables(
    spark: SparkSession,
    day: Day,
    tables: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """One as a stream, one that is interrupted between tables and within one; in the second, hours
    are split into pieces."""
    events, mine = tmp_path / "events", tmp_path / "tables"
    first, second = pieces(day, seed=1)
    save(first, events, tag="0")
    stream(spark, [events], mine, day.options).wait()

    save(second, events, tag="1")
    monkeypatch.setattr(work, "ROWS_PER_TASK", 400)
    interruption = Interruption(*STOPS)
    for _stage in STOPS:
        with pytest.raises(Interrupted):
            run(spark, [events], mine, day.options, interruption)
    assert not interruption.left
    with monkeypatch.context() as patch:
        # What was written and not committed is nobody's.
        patch.setattr(Table, "commit", _failing(Table.commit, STAGES[-1]))
        with pytest.raises(Interrupted):
            run(spark, [events], mine, day.options)
    assert due([events], mine)
    run(spark, [events], mine, day.options)
    for name in SAME:
        assert content(mine, name) == content(tables, name), name
    assert _problems(mine) == _problems(tables)

    before = versions(mine)
    assert not due([events], mine)
    assert run(spark, [events], mine, day.options).files == 0
    assert versions(mine) == before


def _failing(commit: Callable[..., int], place: str) -> Callable[..., int]:
    def fail(table: Table, *args: Any) -> int:
        if table.name == place:
            raise Interrupted
        return commit(table, *args)

    return fail


def _problems(tables: Path) -> set[tuple[str, str]]:
    rows = read(tables, "quarantine").to_pylist()
    return {(row["problem"], row["row"]) for row in rows}


def test_what_is_told_after_the_watermark_is_put_aside(spark: SparkSession, tmp_path: Path):
    events, mine = tmp_path / "events", tmp_path / "tables"
    options = Options(watermark_ms=HOUR // 1000)
    world = World(Node("n1"), Node("fast", 20 * WEEK))
    begin = DAY - 2 * WEEK
    for name in world.nodes:
        world.start(name, begin)
    letter = world.store("n1", begin + 9 * HOUR)
    world.tell("n1", begin + 12 * HOUR, "node_alive")
    save(world.rows, events, "0")
    # A clock that is months ahead makes nothing late: the file was written before.
    for file in events.glob("*/*/*.parquet"):
        os.utime(file, ns=((begin + 12 * HOUR) * 1000,) * 2)
    run(spark, [events], mine, options)
    assert _problems(mine) == set()

    # A message may be older than the watermark: what is told of it is not.
    world.work("n1", begin + 11 * HOUR + SECOND, letter, "lent")
    world.work("n1", begin + 11 * HOUR - SECOND, letter, "acked")
    world.tell("n1", begin + 1, "session_opened", app="a", edge="tcp", target="user/u")
    save(world.rows[-3:], events, "1")
    with pytest.raises(Interrupted):
        run(spark, [events], mine, options, Interruption("plan"))
    # What comes before it is done again changes nothing of it.
    save([world.tell("n1", begin + 15 * HOUR, "node_alive")], events, "2")
    assert finish(spark, mine, options).events == 3
    reason = f"late: before {hour(begin + 11 * HOUR)}:00:00"
    assert Counter(row["problem"] for row in read(mine, "quarantine").to_pylist()) == {reason: 2}
    [hops] = [path["hops"] for path in read(mine, "paths").to_pylist() if path["message"] == letter]
    assert [hop["kind"] for hop in hops] == ["stored", "lent"]
    assert read(mine, "sessions").num_rows == 0


@full_only("one over Connect does so, too")
def test_a_stream_goes_on_with_other_folders_and_takes_nothing_twice(
    spark: SparkSession, folders: tuple[Path, Path], whole: Path, tmp_path: Path
):
    did: list[Counts] = []
    one, two = folders
    # The same folder twice is one.
    for some in ([one], [one, two, two / ".." / two.name], [one, two], [two]):
        stream(spark, some, tmp_path, done=did.append).wait()
    assert [(counts.run, counts.files) for counts in did] == [(1, 1), (2, 1)]
    assert len(list((tmp_path / "_stream").iterdir())) == 1
    for name in SAME:
        assert content(tmp_path, name) == content(whole, name), name


def test_a_run_with_other_options_than_those_before_is_refused(
    spark: SparkSession, folders: tuple[Path, Path], tmp_path: Path
):
    agree(tmp_path, Options(sla_ms=50))
    with pytest.raises(ConfigError, match=r"--sla-ms: .* made with 50, and now it is 60"):
        run(spark, folders, tmp_path, Options(sla_ms=60))
    # It has not even begun.
    assert Ledger(tmp_path).run() == 0


def test_a_file_says_nothing_of_times_after_it_was_written(tmp_path: Path):
    world = World(Node("n1"))
    world.start("n1", DAY)
    save(world.rows, tmp_path / "events")
    [file] = (tmp_path / "events").glob("*/*/*.parquet")
    os.utime(file, ns=((DAY - WEEK) * 1000, (DAY - WEEK) * 1000))
    ledger = Ledger(tmp_path / "tables")
    assert ledger.plan([file]) is not None
    assert read(tmp_path / "tables", "ledger", ["at"]).to_pylist() == [{"at": DAY - WEEK}]
