"""`chappe pipeline run`: what it says before any Spark is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from chappe.cli.pipeline.stages import Stages
from chappe.cli.pipeline.telling import Telling
from chappe.events.record import AT, N
from chappe.pipeline.job import Counts
from chappe.pipeline.options import Options, agree
from tests.cli.process import run_here
from tests.events.test_parquet import Segment


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A folder of events without any."""
    folder = tmp_path / "events"
    folder.mkdir()
    return folder


def run(events: Path, tables: Path) -> tuple[int, str, str]:
    done = run_here("pipeline", "run", "--events", str(events), "--tables", str(tables))
    return done.returncode, " ".join(done.stdout.split()), " ".join(done.stderr.split())


def test_a_folder_without_events_is_no_error_and_named(events: Path, tmp_path: Path) -> None:
    code, said, _progress = run(events, tmp_path / "tables")
    assert code == 0
    assert f"no events in {events} yet" in said
    assert "events.seal_s" in said


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, _said, problem = run(tmp_path / "nowhere", tmp_path / "tables")
    assert code == 2
    assert f"--events: there is no folder {tmp_path / 'nowhere'}" in problem
    assert not (tmp_path / "tables").exists()


def test_a_node_s_whole_folder_is_no_folder_of_events(events: Path, tmp_path: Path) -> None:
    code, _said, problem = run(tmp_path, tmp_path / "tables")
    assert code == 2
    assert f"its events are in {events}" in problem


def test_what_cannot_be_read_in_journals_of_nodes_that_are_gone_is_told(
    events: Path, tmp_path: Path
) -> None:
    Segment(events / "_log/n1").add_raw(b"\xc1")
    Segment(events / "_log/n2").add(("dropped", 1, {AT: 1, N: "many"}, {}))
    code, _said, told = run(events, tmp_path / "tables")
    assert code == 0
    assert f"{events}: 1 places in journals could not be read" in told
    assert f"{events / '_log/n2'} could not be copied: events: Could not convert 'many'" in told


def test_machines_are_told_of_journals_of_nodes_that_are_gone(events: Path, tmp_path: Path) -> None:
    Segment(events / "_log/n1").add_raw(b"\xc1")
    Segment(events / "_log/n2").add(("dropped", 1, {AT: 1, N: "many"}, {}))
    places = ("--events", str(events), "--tables", str(tmp_path / "tables"))
    told = json.loads(run_here("pipeline", "run", *places, "--json").stdout)
    assert (told["ok"], told["damaged"]) == (True, 1)
    assert list(told["unsealed"]) == [str(events / "_log/n2")]
    # Whoever seals them by hand sees it, too.
    done = run_here("events", "seal", str(events))
    assert done.returncode == 1
    assert "n2: its log could not be copied" in done.stdout


@pytest.mark.parametrize("place", ["sub/..", "tables"])
def test_tables_are_not_among_events(events: Path, place: str) -> None:
    code, _said, problem = run(events, events / place)
    assert code == 2
    assert "tables need a folder of their own" in problem
    assert not list(events.iterdir())


@pytest.mark.parametrize("master", ["foo", "local[0]", "local[", "spark://", "k8s://"])
def test_a_master_that_is_none_is_named(events: Path, tmp_path: Path, master: str) -> None:
    places = ("--events", str(events), "--tables", str(tmp_path / "tables"))
    done = run_here("pipeline", "run", *places, "--master", master)
    assert done.returncode == 2
    assert f"--master: {master} is none of local" in " ".join(done.stderr.split())


@pytest.mark.parametrize("every", ["0", "nan", "inf", "86401"])
def test_an_interval_that_is_none_is_named(events: Path, tmp_path: Path, every: str) -> None:
    places = ("--events", str(events), "--tables", str(tmp_path / "tables"))
    done = run_here("pipeline", "run", *places, "--stream", "--every", every)
    assert done.returncode == 2
    assert f"--every: {every} is not above 0" in done.stderr


def test_tables_that_are_a_file_are_named(events: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    tables.write_text("years of work")
    code, _said, problem = run(events, tables)
    assert code == 2
    assert f"--tables: {tables} is not a folder" in problem
    assert tables.read_text() == "years of work"


def test_options_that_are_not_those_of_the_tables_are_refused(events: Path, tmp_path: Path) -> None:
    agree(tmp_path / "tables", Options(grace_ms=5_000))
    places = ("--events", str(events), "--tables", str(tmp_path / "tables"))
    done = run_here("pipeline", "run", *places, "--grace-ms", "7000")
    assert done.returncode == 2
    assert "--grace-ms:" in done.stderr
    assert "was made with 5000, and now it is 7000; leave --grace-ms out" in done.stderr
    for said in ((), ("--grace-ms", "5000")):
        assert run_here("pipeline", "run", *places, *said).returncode == 0


def tell(tmp_path: Path, *runs: Counts, as_json: bool, interrupted: bool = False) -> None:
    """Tell of runs of a stream."""
    (tmp_path / "paths").mkdir()
    stages = Stages(shown=False)
    telling = Telling([tmp_path], tmp_path, stages, as_json=as_json, each=True)
    with telling.to_the_end():
        for counts in runs:
            stages.ended("audit", counts.run)
            telling.done(counts)
        if interrupted:
            raise KeyboardInterrupt


FIRST, SECOND = Counts(1, 2, 30, 1, 1, 9, 0), Counts(2, 1, 10, 0, 1, 0, 1)


def test_a_stream_tells_machines_of_each_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(tmp_path, FIRST, SECOND, as_json=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["run"], one["files"], one["seconds"]) for one in told] == [
        (1, 2, {"audit": 1}),
        (2, 1, {"audit": 2}),
    ]


def test_a_stream_that_had_nothing_to_do_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(tmp_path, as_json=True)
    assert json.loads(capsys.readouterr().out)["files"] == 0


SPOILED = Counts(0, 0, 0, 0, 0, 0, 3)


def test_files_none_of_which_can_be_read_are_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(tmp_path, SPOILED, as_json=False)
    said = capsys.readouterr().out
    assert "3 files could not be read" in said
    assert "nothing new" in said


def test_a_stream_tells_machines_once_of_files_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(tmp_path, SPOILED, as_json=True)
    assert json.loads(capsys.readouterr().out)["spoiled"] == 3


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_stream_tells_people_in_the_end_what_all_of_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], interrupted: bool
) -> None:
    try:
        tell(tmp_path, FIRST, SECOND, as_json=False, interrupted=interrupted)
    except KeyboardInterrupt:
        assert interrupted
    said = capsys.readouterr().out
    assert re.findall("(?m)^ +([0-9]+)  ", said) == ["3", "40", "1", "2", "9"]
    assert "1 files could not be read" in said


@pytest.mark.parametrize(
    ("as_json", "said"), [(True, ""), (False, "interrupted: the next run goes on from here\n")]
)
def test_a_stream_that_is_interrupted_before_it_did_anything_tells_people_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool, said: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        tell(tmp_path, as_json=as_json, interrupted=True)
    assert capsys.readouterr().out == said
