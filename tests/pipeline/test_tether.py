"""A stream at a server of Spark Connect ends with its client, and is seen while it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chappe.cli.pipeline.holding import holding
from chappe.errors import ChappeError
from chappe.pipeline.tether import ClientGone, Tether, held
from tests.processes import kill, read_line

CLIENT = """
import sys
from pathlib import Path
from chappe.pipeline.tether import Tether
print(Tether.tie(Path(sys.argv[1])).token, flush=True)
sys.stdin.read()
"""


def test_a_batch_begins_while_the_client_lives_and_not_when_it_was_killed(tmp_path: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(tmp_path)], **pipes)
    try:
        tether = Tether(tmp_path, read_line(client.stdout).strip())
        with tether.batch():
            pass
    finally:
        kill(client)
    with pytest.raises(ClientGone), tether.batch():
        pass


def test_a_stream_that_another_one_followed_takes_nothing_more(tmp_path: Path) -> None:
    old, new = Tether.tie(tmp_path), Tether.tie(tmp_path)
    with pytest.raises(ClientGone), old.batch():
        pass
    with new.batch():
        pass


def test_no_command_begins_while_a_batch_is_under_way(tmp_path: Path) -> None:
    tether = Tether.tie(tmp_path)
    with (
        tether.batch(),
        pytest.raises(ChappeError, match="a stream is still at work"),
        holding(tmp_path),
    ):
        pass
    with held(tmp_path), pytest.raises(ChappeError), tether.batch():
        pass
    with holding(tmp_path):
        pass


def test_the_client_hears_once_of_each_run_and_of_none_of_another_client_s(tmp_path: Path) -> None:
    old = Tether.tie(tmp_path)
    assert list(old.reports()) == []
    for run in (10, 9, 0, 0):
        old.report(run, {"run": run})
    assert list(old.reports()) == [{"run": 0}, {"run": 0}, {"run": 9}, {"run": 10}]
    assert list(old.reports()) == []
    old.report(11, {"run": 11})
    assert list(Tether.tie(tmp_path).reports()) == []
