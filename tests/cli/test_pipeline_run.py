"""`chappe pipeline run` on every kind of Spark: this machine's, a cluster's, a server's of Connect.

All of them make the same tables of the same events, so they are compared with each other. Each is
started from the package that pip installs.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark
import pytest

from chappe.pipeline.schema import TABLES
from chappe.pipeline.table import read
from tests.cli.process import CHAPPE, environment, started
from tests.pipeline.traffic import DAY, MINUTE, SECOND, Node, World, save
from tests.processes import kill

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

HOME = Path(pyspark.__file__).parent
RUN_S = 600
MESSAGES, JOBS = 40, 20
GOLD = ("latency", "delivery", "links", "queues", "sessions", "audit", "paths")


def be_patient() -> None:
    """Have no limit but those of what is started here: Spark is slow to start, and slower where
    others work."""
    faulthandler.cancel_dump_traceback_later()


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


def run(events: tuple[Path, ...], tables: Path, *where: str) -> subprocess.CompletedProcess[str]:
    """Run the pipeline to its end."""
    be_patient()
    folders = [word for folder in events for word in ("--events", str(folder))]
    return subprocess.run(
        [CHAPPE, "pipeline", "run", *folders, "--tables", str(tables), "--memory", "1g", *where],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


def rows(tables: Path) -> dict[str, list[Any]]:
    """What the gold tables hold, in an order of its own."""
    found = {}
    for name in GOLD:
        columns = [field.name for field in TABLES[name]]
        lines = read(tables, name, columns=columns).to_pylist()
        found[name] = sorted(json.dumps(line, sort_keys=True) for line in lines)
    return found


@pytest.fixture(scope="module")
def here(
    events: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """The tables that Spark makes on this machine, and what was told of the run."""
    tables = tmp_path_factory.mktemp("tables")
    done = run(events, tables, "--master", "local[2]", "--json")
    assert done.returncode == 0, done.stderr
    return tables, json.loads(done.stdout)


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
    here: tuple[Path, dict[str, Any]], events: tuple[Path, Path]
) -> None:
    tables, _told = here
    before = rows(tables)
    done = run(events, tables, "--master", "local[2]")
    assert done.returncode == 0, done.stderr
    assert "nothing new" in done.stdout
    assert "start of Spark" in done.stderr
    assert rows(tables) == before


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def spark_process(stack: ExitStack, folder: Path, *command: str | Path) -> subprocess.Popen[bytes]:
    """A process of Spark's that ends with the stack."""
    settings = {
        "SPARK_HOME": str(HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (folder / "spark.log").open("ab") as log:
        process = subprocess.Popen(
            list(map(str, command)),
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    stack.callback(kill, process)
    return process


def wait_until_said(folder: Path, word: str, times: int = 1, limit_s: float = 240) -> None:
    """Wait until what Spark logs holds a word so many times."""
    deadline = time.monotonic() + limit_s
    log = folder / "spark.log"
    while log.read_text().count(word) < times:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)  # a log file gives no sign when it grows


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A standalone cluster: a master and two workers."""
    url = f"spark://127.0.0.1:{free_port()}"
    launch = HOME / "bin" / "spark-class"
    port = url.rpartition(":")[2]
    with ExitStack() as stack:
        master = "org.apache.spark.deploy.master.Master"
        at = ("--host", "127.0.0.1")
        spark_process(stack, tmp_path, launch, master, *at, "--port", port, "--webui-port", "0")
        wait_until_said(tmp_path, "I have been elected leader")
        worker = "org.apache.spark.deploy.worker.Worker"
        size = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        for n in ("1", "2"):
            work = ("--work-dir", str(tmp_path / f"work-{n}"))
            spark_process(stack, tmp_path, launch, worker, *at, *size, *work, url)
        wait_until_said(tmp_path, "Successfully registered with master", times=2)
        yield url


def test_a_cluster_makes_the_same_tables(
    cluster: str,
    events: tuple[Path, Path],
    here: tuple[Path, dict[str, Any]],
    tmp_path: Path,
) -> None:
    tables = tmp_path / "tables"
    done = run(events, tables, "--master", cluster, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == here[1]["events"]
    assert rows(tables) == rows(here[0])
    # Both workers had a part in it.
    assert all(list((tmp_path / f"work-{n}").glob("app-*/*")) for n in (1, 2))


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[str]:
    """A server of Spark Connect."""
    port = free_port()
    with ExitStack() as stack:
        spark_process(
            stack,
            tmp_path,
            HOME / "bin" / "spark-submit",
            "--master",
            "local[2]",
            "--driver-memory",
            "1g",
            "--class",
            "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--conf",
            f"spark.connect.grpc.binding.port={port}",
            "--conf",
            "spark.connect.grpc.binding.address=127.0.0.1",
            "--conf",
            "spark.ui.enabled=false",
            "spark-internal",
        )
        wait_until_said(tmp_path, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


def test_a_server_of_connect_makes_the_same_tables(
    connect: str,
    events: tuple[Path, Path],
    here: tuple[Path, dict[str, Any]],
    tmp_path: Path,
) -> None:
    tables = tmp_path / "tables"
    done = run(events, tables, "--remote", connect, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == here[1]["events"]
    assert rows(tables) == rows(here[0])


def test_a_stream_makes_the_same_tables_and_goes_on_with_what_comes(
    events: tuple[Path, Path], here: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    be_patient()
    folder, tables, log = tmp_path / "events", tmp_path / "tables", tmp_path / "log"
    folder.mkdir()
    words = ("--events", str(folder), "--tables", str(tables), "--master", "local[2]")
    with started("pipeline", "run", *words, "--memory", "1g", "--stream", "--every", "1", log=log):
        for n, source in enumerate(events, start=1):
            for file in source.rglob("*.parquet"):
                place = folder / file.relative_to(source)
                place.parent.mkdir(parents=True, exist_ok=True)
                # Whole at once, as nodes do it.
                aside = place.with_name(f".{place.name}")
                aside.write_bytes(file.read_bytes())
                aside.replace(place)
            deadline = time.monotonic() + RUN_S
            while log.read_text().count("audit") < n:
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)  # a log file gives no sign when it grows
    assert rows(tables) == rows(here[0])
