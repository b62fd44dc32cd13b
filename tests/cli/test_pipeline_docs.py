"""docs/pipeline.md: what it says to type works, and prints what it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from chappe.pipeline.hours import hour_name
from tests.cli.pipeline_tables import hop, path, put, put_day
from tests.cli.process import run_here

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
# 2026-05-01 13:00:00.120031 UTC, and the message that was born then.
BORN = 1_777_640_400_120_031
MESSAGE = 175_954_408_746_516_481


def blocks(language: str) -> list[str]:
    """The blocks of a language; a fence that closes one opens no other."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [block for name, block in fenced if name == language]


COMMANDS = [
    line.partition("#")[0].strip()
    for block in blocks("sh")
    for line in block.splitlines()
    if line.startswith("chappe ")
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the page takes it for granted: events all of which were taken, and tables."""
    (tmp_path / ".chappe" / "events").mkdir(parents=True)
    tables = tmp_path / "tables"
    put_day(tables)
    known = {"boot": 1, "serial": 1, "shift": 0}
    hops = [
        {"kind": "published", "node": "node-1", "at": BORN + 100, "came": BORN, "n": 1, "bytes": 12}
        | {"went_to": ["node-2", "node-3"]},
        {"kind": "published", "node": "node-2", "at": BORN + 1300, "came": BORN + 1000, "n": 3}
        | {"came_from": "node-1"},
        {"kind": "published", "node": "node-3", "at": BORN + 1500, "came_from": "node-1", "n": 2},
        {"kind": "dropped", "node": "node-3", "at": BORN + 1700, "reason": "slow_consumer", "n": 1},
    ]
    way = path(MESSAGE, "topic", hop("published", "node-1", 0), target="topic:news", app="default")
    way |= {"born": BORN, "ended": BORN + 1700, "hops": [known | one for one in hops]}
    put(tables, "paths", way | {"hour": hour_name(BORN)}, run=2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_holds_commands() -> None:
    assert {shlex.split(line)[1] for line in COMMANDS} == {"pipeline", "report", "trace"}
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_works_as_written(line: str, here: Path) -> None:
    done = run_here(*shlex.split(line)[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_trace_looks_as_shown(here: Path) -> None:
    done = run_here("trace", str(MESSAGE), "--tables", "tables")
    (shown,) = [block for block in blocks("") if block.startswith(str(MESSAGE))]
    assert [line.rstrip() for line in done.stdout.splitlines()] == shown.splitlines()


def test_tables_are_read_as_written(here: Path) -> None:
    (code,) = blocks("py")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
