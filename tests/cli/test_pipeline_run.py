"""`chappe pipeline run` on every kind of Spark: this machine's, a cluster's, a server's of Connect.

All of them make the same tables of the same events, so they are compared with each other. Each is
started from the package that pip installs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chappe.pipeline.making import Making
from chappe.pipeline.table import read
from tests.cli.process import CHAPPE
from tests.cli.process import environment as environment_of_ours
from tests.pipeline import sparks
from tests.pipeline.traffic import DAY, MINUTE, SECOND, Node, World, save
from tests.processes import kill

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

RUN_S = 600
MESSAGES, JOBS = 40, 20
LOCAL = ("--master", "local[2]")


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two nodes' folders: topics that travel, a queue that is worked off, a request."""
    world = World(Node("one"), Node("two", ahead=3 * SECOND))
    for name in ("one", "two"):
        world.start(name, DAY)
        world.live(name, DAY, DAY + 5 * MINUTE)
    world.beat(DAY, DAY + 5 * MINUTE)
    for n in range(MESSAGES):
        world.publish(DAY + MINUTE + n * SECOND, [("one", 0, 100), ("two", 700, 200)])
    for n in range(JOBS):
        at = DAY + 2 * MINUTE + n * SECOND
        job = world.store("one", at)
        world.work("one", at + 2000, job, "lent")
        world.work("one", at + 5000, job, "acked")
    world.ask("two", DAY + 3 * MINUTE, "two.1", 900)
    for name in ("one", "two"):
        world.tell(name, DAY + 5 * MINUTE, "node_stopped")
    folders = []
    for name in ("one", "two"):
        folders.append(tmp_path_factory.mktemp(name))
        save([row for row in world.rows if row["node"] == name], folders[-1])
    return folders[0], folders[1]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment_of_ours() | sparks.environment(tmp_path_factory.mktemp("spark"))


def words(events: tuple[Path, ...], tables: Path, *more: str) -> list[str]:
    folders = [word for folder in events for word in ("--events", str(folder))]
    return [CHAPPE, "pipeline", "run", *folders, "--tables", str(tables), "--memory", "1g", *more]


class Runs:
    """Runs the pipeline to its end."""

    def __init__(self, events: tuple[Path, ...], environment: dict[str, str]) -> None:
        self._events = events
        self._environment = environment

    def __call__(self, tables: Path, *more: str) -> subprocess.CompletedProcess[str]:
        sparks.be_patient()
        done = subprocess.run(
            words(self._events, tables, *more),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture(scope="module")
def run(events: tuple[Path, Path], environment: dict[str, str]) -> Runs:
    return Runs(events, environment)


def content(tables: Path) -> dict[str, list[str]]:
    """What every table holds, in an order of its own."""
    return {
        name: sorted(json.dumps(line, sort_keys=True) for line in read(tables, name).to_pylist())
        for name in Making.ORDER
    }


def assert_same(tables: Path, others: Path) -> None:
    found, wanted = content(tables), content(others)
    for name in Making.ORDER:
        assert found[name] == wanted[name], name


@pytest.fixture(scope="module")
def here(run: Runs, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The tables that Spark makes on this machine, and what was told of the run."""
    tables = tmp_path_factory.mktemp("tables")
    return tables, json.loads(run(tables, *LOCAL, "--json").stdout)


def test_a_run_says_what_it_did(here: tuple[Path, dict[str, Any]]) -> None:
    tables, told = here
    assert told["ok"]
    assert told["paths"] == MESSAGES + JOBS + 1
    assert (told["quarantined"], told["hours"]) == (0, 1)
    assert told["seconds"].keys() >= {"start of Spark", "paths", "audit"}
    delivered = {row["family"]: 0 for row in read(tables, "delivery").to_pylist()}
    for row in read(tables, "delivery").to_pylist():
        delivered[row["family"]] += row["delivered"]
    assert delivered == {"topic": MESSAGES, "queue": JOBS, "request": 1}


def test_a_second_run_takes_nothing_and_a_person_is_told_so(
    here: tuple[Path, dict[str, Any]], run: Runs
) -> None:
    tables, _told = here
    before = content(tables)
    done = run(tables, *LOCAL)
    assert "nothing new" in done.stdout
    assert "start of Spark" not in done.stderr
    assert content(tables) == before


def test_a_cluster_makes_the_same_tables(
    run: Runs, here: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    with sparks.cluster(tmp_path) as url:
        told = json.loads(run(tmp_path / "tables", "--master", url, "--json").stdout)
    assert told["events"] == here[1]["events"]
    assert_same(tmp_path / "tables", here[0])
    # Both workers had a part in it.
    assert all(list((tmp_path / f"work-{n}").glob("app-*/*")) for n in (1, 2))


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with sparks.connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


def test_a_server_of_connect_makes_the_same_tables(
    connect: str, run: Runs, here: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    told = json.loads(run(tmp_path / "tables", "--remote", connect, "--json").stdout)
    assert told["events"] == here[1]["events"]
    assert_same(tmp_path / "tables", here[0])


class Stream:
    """A stream in a process of its own, over a folder that files come into."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log

    def wait_until_told(self, stage: str, times: int = 1) -> None:
        """Wait until it has told of the end of a stage so many times."""
        self._wait(lambda: self.told().count(f"s  {stage}\n") >= times)

    def told(self) -> str:
        """What it wrote to standard error."""
        return self._log.read_text()

    def _wait(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + RUN_S
        while not ready():
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.05)  # a log file gives no sign when it grows


@pytest.fixture
def streaming(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Any]:
    @contextmanager
    def start(*where: str) -> Iterator[Stream]:
        """Look for files below `events` every second, in a session like that of a terminal."""
        sparks.be_patient()
        log = tmp_path / "log"
        folder = tmp_path / "events"
        folder.mkdir(exist_ok=True)
        with log.open("wb") as errors:
            process = subprocess.Popen(
                words((folder,), tmp_path / "tables", "--stream", "--every", "1", *where),
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        try:
            yield Stream(process, log)
        finally:
            kill(process)

    return start


def bring(source: Path, folder: Path) -> None:
    """Let files come as nodes write them: whole at once."""
    for file in source.rglob("*.parquet"):
        place = folder / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_name(f".{place.name}")
        shutil.copyfile(file, aside)
        aside.replace(place)


def interrupt(stream: Stream) -> int:
    """Ctrl-C: all processes of a terminal hear of it; how the command ended."""
    os.killpg(stream.process.pid, signal.SIGINT)
    return stream.process.wait(60)


def test_a_stream_that_is_killed_goes_on_and_makes_the_same_tables(
    streaming: Callable[..., Any],
    events: tuple[Path, Path],
    here: tuple[Path, dict[str, Any]],
    tmp_path: Path,
) -> None:
    bring(events[0], tmp_path / "events")
    with streaming(*LOCAL) as stream:
        # Between the commits of two tables; `kill -9` follows.
        stream.wait_until_told("latency")
    assert read(tmp_path / "tables", "latency").num_rows
    with streaming(*LOCAL) as stream:
        stream.wait_until_told("audit")
        assert "s  latency\n" not in stream.told()
        bring(events[1], tmp_path / "events")
        stream.wait_until_told("audit", 2)
        assert interrupt(stream) == 130
        assert "Traceback" not in stream.told()
    assert_same(tmp_path / "tables", here[0])


def test_a_stream_over_connect_makes_the_same_tables_and_ends_with_its_client(
    connect: str,
    streaming: Callable[..., Any],
    events: tuple[Path, Path],
    here: tuple[Path, dict[str, Any]],
    tmp_path: Path,
) -> None:
    bring(events[0], tmp_path / "events")
    with streaming("--remote", connect) as stream:
        stream.wait_until_told("batch 0")
        bring(events[1], tmp_path / "events")
        stream.wait_until_told("batch 1")
        assert interrupt(stream) == 130
        assert "Traceback" not in stream.told()
    assert_same(tmp_path / "tables", here[0])
