"""`chappe report --since --until`: a page of some time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.pipeline_tables import BORN, MINUTE, hop, path, put, put_day, snowflake
from tests.cli.process import run_here

# What is said of the most sessions.
PEAK = "sessions at the end of a minute, at most"


def text_of(tables: Path, out: Path, *words: str) -> str:
    """What a page says, without its tags."""
    done = run_here("report", "--tables", str(tables), "--out", str(out), *words)
    assert (done.returncode, done.stderr) == (0, "")
    page = re.sub(r"<(script|style)>?.*?</\1>", " ", out.read_text(), flags=re.DOTALL)
    told = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    # The command says the same as the page.
    [said] = re.findall(r"of (2026-.* UTC|no time at all)", done.stdout)
    assert said in told
    return told


def test_a_page_is_of_the_time_that_is_asked_for(tmp_path: Path) -> None:
    tables, out = tmp_path / "tables", tmp_path / "report.html"
    put_day(tables)
    words = ("--since", "2026-03-01T10:30", "--until", "2026-03-01T12:00+01:00")
    told = text_of(tables, out, *words)
    assert "2026-03-01 10:30 to 2026-03-01 11:00 UTC" in told
    # 30 minutes of 90, of 12 apps; see how it is of all of them.
    assert "36,000,000 messages" in told
    assert "60 dead letters" in told
    # All that the audit names was born before.
    assert "0 lost 0 duplicated 0 late 0 unknown" in told
    assert "Nothing to name" in told


def test_who_was_there_before_is_counted(tmp_path: Path) -> None:
    tables, out = tmp_path / "tables", tmp_path / "report.html"
    put(tables, "paths", path(snowflake(), "other", hop("dropped", "one", 1)))
    there = {"app": "main", "edge": "tcp", "window": BORN, "opened": 40, "online": 40}
    more = {"app": "main", "edge": "websocket", "window": BORN + 5 * MINUTE, "online": 2}
    put(tables, "sessions", there, more)
    assert f"42 {PEAK}" in text_of(tables, out, "--since", "2026-03-01T10:02")
    assert f"40 {PEAK}" in text_of(tables, out, "--until", "2026-03-01T10:02")
    assert f"0 {PEAK}" in text_of(tables, out, "--since", "2026-03-02")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--since", "yesterday"], "--since: 'yesterday' is not a time such as 2026-05-01"),
        (["--until", "9999-12-31"], "--until: 9999-12-31 is too far away"),
        (
            ["--since", "2026-05-02", "--until", "2026-05-01"],
            "--until: 2026-05-01 is not after 2026-05-02",
        ),
    ],
)
def test_a_time_that_makes_no_sense_is_named(tmp_path: Path, words: list[str], told: str) -> None:
    done = run_here("report", "--tables", str(tmp_path), *words)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())
