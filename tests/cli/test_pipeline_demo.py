"""The demo: a cluster, a node that is killed, tables, a report, all with one command."""

from __future__ import annotations

import faulthandler
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from chappe.pipeline.table import read
from tests.pipeline import sparks
from tests.processes import kill, read_line
from tests.servers import RedisServer

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
# Each of its nodes says for two beats that it ends, one after the other.
BRISK = {"CHAPPE_ROOMS_BEAT_S": "0.5"}
LIMIT_S = 600


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 60)
def test_the_demo_does_what_it_says(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nodes of other tests record nothing; these do.
    monkeypatch.delenv("CHAPPE_EVENTS_ENABLED")
    # It has a limit of its own, above that of other tests.
    faulthandler.cancel_dump_traceback_later()
    folder = tmp_path / "demo"
    words = ("--seconds", "4", "--memory", "1g", "--folder", str(folder))
    done = subprocess.run(
        [sys.executable, DEMO, *words, "--registry", f"{redis_server.url}?prefix=demo"],
        env=os.environ | BRISK | sparks.environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "node-3 is killed" in done.stdout
    page = folder / "report.html"
    assert f"file://{page}" in done.stdout
    assert page.stat().st_size > 1_000_000
    tables = folder / "tables"
    families = set(read(tables, "delivery", ["family"])["family"].to_pylist())
    assert families == {"send", "topic", "room", "queue", "request", "push"}
    jobs = read(tables, "jobs", ["aimed", "arrived"]).to_pylist()
    assert sum(row["arrived"] for row in jobs) > 0
    assert all(row["arrived"] <= row["aimed"] for row in jobs)
    assert "room:plaza" in read(tables, "rooms", ["room"])["room"].to_pylist()
    roles = set(read(tables, "links", ["role"])["role"].to_pylist())
    assert {"publisher", "proxy", "broker"} <= roles
    # Both lives of the node that was killed are told of, and the first has no end in order.
    lives = read(tables, "lives", ["node", "boot", "stopped"]).to_pylist()
    of_third = {row["boot"]: row["stopped"] for row in lives if row["node"] == "node-3"}
    assert len(of_third) == 2
    assert of_third[min(of_third)] is None


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "to_all"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_demo_that_is_ended_leaves_no_process_behind(
    tmp_path: Path, redis_server: RedisServer, sent: signal.Signals, to_all: bool
) -> None:
    folder = tmp_path / "demo"
    registry = f"{redis_server.url}?prefix=ended-{sent.name}"
    demo = subprocess.Popen(
        [sys.executable, DEMO, "--folder", folder, "--registry", registry],
        env=os.environ | BRISK,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        assert demo.stdout is not None
        while not (line := read_line(demo.stdout)).startswith("everybody talks"):
            assert line
        # Nobody else may read what the nodes know each other by.
        assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600
        # Ctrl-C goes to everybody in a terminal, what others send to one.
        if to_all:
            os.killpg(demo.pid, sent)
        else:
            demo.send_signal(sent)
        said = demo.stdout.read()
        assert demo.wait(60) == 128 + sent, said
        assert b"Traceback" not in said
        with pytest.raises(ProcessLookupError):
            os.killpg(demo.pid, 0)
    finally:
        kill(demo)


def refused(folder: Path) -> str:
    """What a demo says that does not begin, as it may not have that folder."""
    done = subprocess.run(
        [sys.executable, DEMO, "--folder", folder, "--registry", "nowhere://"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize("name", ["thesis.txt", "secret"])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("years of work")
    said = refused(tmp_path)
    assert f"{tmp_path} holds something else" in said
    assert "Traceback" not in said
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_file_is_no_folder_for_a_demo(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert "is no folder" in refused(tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_demo_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    # There is no registry: what it does before is all that it does.
    assert "holds something else" not in refused(folder)
    (folder / "node-1" / "data").mkdir(parents=True)
    assert "holds something else" not in refused(folder)
    assert not (folder / "node-1" / "data").exists()
