"""`chappe pipeline run`: what it says before any Spark is needed."""

from __future__ import annotations

from pathlib import Path

from tests.cli.process import run_here


def run(events: Path, tables: Path) -> tuple[int, str, str]:
    done = run_here("pipeline", "run", "--events", str(events), "--tables", str(tables))
    return done.returncode, " ".join(done.stdout.split()), " ".join(done.stderr.split())


def test_a_folder_without_events_is_no_error_and_named(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    code, said, _progress = run(events, tmp_path / "tables")
    assert code == 0
    assert f"no events in {events} yet" in said
    assert "events.seal_s" in said


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, _said, problem = run(tmp_path / "nowhere", tmp_path / "tables")
    assert code == 2
    assert f"--events: there is no folder {tmp_path / 'nowhere'}" in problem
    assert not (tmp_path / "tables").exists()


def test_tables_that_are_a_file_are_named(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    tables.write_text("years of work")
    code, _said, problem = run(tmp_path, tables)
    assert code == 2
    assert f"--tables: {tables} is not a folder" in problem
    assert tables.read_text() == "years of work"
