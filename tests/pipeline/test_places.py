"""`chappe pipeline run` wherever Spark is: on this machine, on a cluster, at a server of Connect.

All of them make the same tables of the same events, so they are compared with those of the session
that tests share: as batches, as a stream, killed and begun again somewhere else. D2
"""

from __future__ import annotations

import json
import os
import re
import select
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
from chappe.pipeline.table import Table, read
from tests.cli.process import CHAPPE
from tests.cli.process import environment as environment_of_ours
from tests.pipeline import sparks
from tests.pipeline.full import full_only
from tests.pipeline.pair import PATHS
from tests.processes import kill

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

RUN_S = 600
LOCAL = ("--master", "local[2]")
# What is told of a stage that is over.
STAGE = re.compile(r" *\d+\.\d s  .+")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return environment_of_ours() | sparks.environment(tmp_path)


def words(events: tuple[Path, ...], tables: Path, *more: str) -> list[str]:
    folders = [word for folder in events for word in ("--events", str(folder))]
    return [CHAPPE, "pipeline", "run", *folders, "--tables", str(tables), *more]


def run_there(
    environment: dict[str, str], events: tuple[Path, ...], tables: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    """Run the pipeline to its end."""
    done = subprocess.run(
        words(events, tables, *more),
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


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


@full_only("starts Java six times")
def test_a_cluster_of_two_workers_makes_the_same_tables(
    environment: dict[str, str], folders: tuple[Path, Path], whole: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    with sparks.cluster(tmp_path) as url:
        run_there(environment, folders, tables, "--master", url)
    assert_same(tables, whole)
    # Both workers had a part in it.
    assert all(list((tmp_path / f"work-{n}").glob("app-*/*")) for n in (1, 2))


def test_a_server_of_connect_makes_the_same_tables_and_a_run_says_what_it_did(
    connect: str,
    environment: dict[str, str],
    folders: tuple[Path, Path],
    whole: Path,
    tmp_path: Path,
) -> None:
    tables = tmp_path / "tables"
    done = run_there(environment, folders, tables, "--remote", connect, "--json")
    assert_same(tables, whole)
    told = json.loads(done.stdout)
    assert told["ok"]
    assert told["paths"] == PATHS
    assert (told["files"], told["quarantined"], told["hours"]) == (2, 0, 1)
    assert told["seconds"].keys() >= {"start of Spark", "paths", "audit"}
    again = run_there(environment, folders, tables, "--remote", connect)
    assert "nothing new" in again.stdout
    assert "start of Spark" not in again.stderr
    assert_same(tables, whole)


@full_only("streams of other tests tell less")
def test_a_stream_says_what_its_runs_did_and_goes_on_with_another_folder_over_connect(
    connect: str,
    environment: dict[str, str],
    folders: tuple[Path, Path],
    whole: Path,
    tmp_path: Path,
) -> None:
    tables, once = tmp_path / "tables", ("--stream", "--once")
    done = run_there(environment, folders[:1], tables, *LOCAL, *once, "--json")
    # Java has nothing to say of itself.
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert (told["ok"], told["run"], told["files"], told["hours"]) == (True, 1, 1, 1)
    assert told["seconds"].keys() >= {"start of Spark", "paths", "audit"}

    done = run_there(environment, folders, tables, "--remote", connect, *once)
    assert f"{1:>12}  files taken\n" in done.stdout
    assert f"{PATHS:>12}  messages put together anew\n" in done.stdout
    assert_same(tables, whole)

    done = run_there(environment, folders, tables, "--remote", connect, *once, "--json")
    told = json.loads(done.stdout)
    assert (told["ok"], told["run"], told["files"]) == (True, 0, 0)


class Stream:
    """A stream in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def wait_until_told(self, stage: str) -> None:
        """Wait until it has told of the end of a stage."""
        deadline = time.monotonic() + RUN_S
        while f"s  {stage}\n" not in self.told():
            assert self._process.poll() is None, self.told()
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.05)  # a log file gives no sign when it grows

    def told(self) -> str:
        """What it wrote to standard error."""
        return self._log.read_text()

    def tells_stages_alone(self) -> bool:
        """Whether nobody else, such as Java, had something to say."""
        return all(STAGE.fullmatch(line) for line in self.told().splitlines())

    def kill(self) -> int:
        """Kill it; how it ended."""
        return kill(self._process)

    def interrupt(self) -> int:
        """Ctrl-C: all processes of a terminal hear of it; how the command ended."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self._process.wait(RUN_S)


Streaming = Callable[..., Any]


@pytest.fixture
def streaming(tmp_path: Path, environment: dict[str, str]) -> Streaming:
    log = tmp_path / "log"

    @contextmanager
    def start(folders: tuple[Path, ...], *where: str) -> Iterator[Stream]:
        """Look for files in folders every second, in a session like that of a terminal; it is
        gone in the end."""
        with log.open("wb") as errors:
            process = subprocess.Popen(
                words(folders, tmp_path / "tables", "--stream", "--every", "1", *where),
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        javas: list[int] = []
        try:
            yield Stream(process, log)
        finally:
            javas = [os.pidfd_open(pid) for pid in children(process.pid)]
            kill(process)
        for java in javas:
            # It ends by itself when nobody is there to tell it what to do.
            ended = select.poll()
            ended.register(java, select.POLLIN)
            assert ended.poll(60_000)
            os.close(java)

    return start


def children(pid: int) -> list[int]:
    """The processes that one has started; none if it is gone."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def bring(source: Path, folder: Path) -> None:
    """Let files come as nodes write them: whole at once."""
    for file in source.rglob("*.parquet"):
        place = folder / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_name(f".{place.name}")
        shutil.copyfile(file, aside)
        aside.replace(place)


@full_only("a stream over Connect is tried with upkeep, too")
@pytest.mark.parametrize("ended", ["interrupt", "kill"])
def test_a_stream_that_ends_between_two_tables_is_gone_on_with_over_connect(
    connect: str,
    streaming: Streaming,
    folders: tuple[Path, Path],
    whole: Path,
    tmp_path: Path,
    ended: str,
) -> None:
    tables, one, two = (tmp_path / name for name in ("tables", "one", "two"))
    bring(folders[0], one)
    with streaming((one,), *LOCAL, "--memory", "1g") as stream:
        stream.wait_until_told("latency")
        code = stream.interrupt() if ended == "interrupt" else stream.kill()
        assert code == (130 if ended == "interrupt" else -signal.SIGKILL)
        assert stream.tells_stages_alone(), stream.told()
    assert (Table(tables, "latency").run(), Table(tables, "audit").run()) == (1, 0)
    # With another folder, or the same as before.
    more = two if ended == "interrupt" else one
    more.mkdir(exist_ok=True)
    with streaming((one, more), "--remote", connect) as stream:
        stream.wait_until_told("audit")
        # What was begun comes again.
        stream.wait_until_told("batch 0")
        bring(folders[1], more)
        stream.wait_until_told("batch 1")
        assert stream.interrupt() == 130
        assert "Traceback" not in stream.told()
    assert Table(tables, "audit").run() == 2
    assert_same(tables, whole)
