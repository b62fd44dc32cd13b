"""`chappe pipeline compact` and `expire`, and who may work on tables at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chappe.cli.pipeline.holding import holding
from chappe.pipeline.hours import hour_name
from chappe.pipeline.table import Table, read
from tests.cli.pipeline_tables import BORN, hop, path, put, snowflake
from tests.cli.process import run_here

HOUR_US = 3_600_000_000


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Six runs' files of one hour, of a message each."""
    folder = tmp_path / "tables"
    for n in range(1, 7):
        put(folder, "paths", path(snowflake(n), "topic", hop("published", "one", n)), run=n)
    return folder


def messages(tables: Path) -> list[int]:
    return sorted(read(tables, "paths", ["message"])["message"].to_pylist())


def test_small_files_become_one_and_say_the_same(tables: Path) -> None:
    before = messages(tables)
    assert len(Table(tables, "paths").files()) == 6
    done = run_here("pipeline", "compact", "--tables", str(tables), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["ok"], told["files_before"], told["files_after"]) == (True, 6, 1)
    assert messages(tables) == before
    assert len(Table(tables, "paths").files()) == 1


def test_files_that_are_few_enough_stay(tables: Path) -> None:
    files = Table(tables, "paths").files()
    done = run_here("pipeline", "compact", "--tables", str(tables), "--files-max", "6")
    assert "6 files before, 6 now" in done.stdout
    assert Table(tables, "paths").files() == files


def test_what_is_older_is_forgotten_and_results_only_if_that_is_said(tables: Path) -> None:
    # Messages of ten years from now are not old yet.
    later = hour_name(BORN + 10 * 365 * 24 * HOUR_US)
    young = path(77, "topic", hop("published", "one", 1), hour=later)
    put(tables, "paths", young, run=7)
    put(tables, "delivery", {"app": "a", "family": "topic", "window": BORN, "messages": 1})
    # It depends on the day of this test how old they are: more than a thousandth of a day.
    common = ("pipeline", "expire", "--tables", str(tables), "--days", "0.001")
    done = run_here(*common)
    assert (done.returncode, done.stderr) == (0, "")
    assert messages(tables) == [77]
    assert read(tables, "delivery").num_rows == 1
    assert run_here(*common, "--results-days", "0.001").returncode == 0
    assert read(tables, "delivery").num_rows == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["compact", "--files-max", "0"], "--files-max"),
        (["expire", "--days", "0"], "--days"),
        (["expire", "--days", "nan"], "--days"),
        (["expire", "--days", "inf"], "--days"),
        (["expire", "--days", "1", "--results-days", "-1"], "--results-days"),
        (["expire", "--days", "1", "--events", "nowhere"], "--events"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(
    tables: Path, arguments: list[str], named: str
) -> None:
    done = run_here("pipeline", *arguments, "--tables", str(tables))
    assert done.returncode == 2
    assert named in done.stderr
    assert len(messages(tables)) == 6


@pytest.mark.parametrize("command", ["run", "compact", "expire"])
def test_a_second_command_is_told_that_another_is_at_work(
    tables: Path, tmp_path: Path, command: str
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    more = {"run": ["--events", str(events)], "compact": [], "expire": ["--days", "1"]}
    with holding(tables):
        done = run_here("pipeline", command, "--tables", str(tables), *more[command])
        # Whoever only reads is not held up.
        assert run_here("trace", str(snowflake(1)), "--tables", str(tables)).returncode == 0
    assert done.returncode == 1
    assert "another command is at work" in done.stderr.replace("\n", " ")


def test_a_run_that_finds_nothing_new_starts_no_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "events").mkdir()
    # There is no Java, and nobody misses it.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    places = ("--events", str(tmp_path / "events"), "--tables", str(tmp_path / "tables"))
    # A run that was killed at its very end left this.
    (tmp_path / "tables" / "_work" / "run=1").mkdir(parents=True)
    done = run_here("pipeline", "run", *places)
    assert done.returncode == 0, done.stderr
    assert "nothing new" in done.stdout
    assert not (tmp_path / "tables" / "_work").exists()
