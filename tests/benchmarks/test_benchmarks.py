"""The benchmarks run: the load builds, does its work on a hub, and the report tells it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.figure import Promise, Table, figure, ratio
from benchmarks.report import CHART

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the load")


@needs_gcc
def test_a_quick_run_writes_a_report_with_figures_for_both_forms(tmp_path: Path) -> None:
    report = tmp_path / "RESULTS.md"
    assert main(["--only", "pairs", "--quick", "--no-peers", "--write", str(report)]) == 0
    text = report.read_text()
    for form in ("JSON on WebSocket", "packed on TCP", "packed, one op a frame"):
        row = re.search(rf"^\| Chappe, {form} \| ([\d.]+) \| ([\d,]+) \|", text, re.MULTILINE)
        assert row is not None, text
        cost, rate = float(row[1]), int(row[2].replace(",", ""))
        assert cost > 0
        assert rate > 0
    assert "A quick run" in text
    assert (tmp_path / CHART).read_text().count("<rect") > 3


@needs_gcc
def test_a_server_that_cannot_start_is_an_error_not_a_figure(tmp_path: Path) -> None:
    report = tmp_path / "RESULTS.md"
    argv = ["--only", "pairs", "--quick", "--no-peers", "--chappe", "true"]
    assert main([*argv, "--write", str(report)]) == 1
    assert not report.exists()


def test_a_figure_shows_its_median_and_its_spread() -> None:
    assert figure([3.0, 1.0, 2.0]).show() == "2.00 (1.00 to 3.00)"
    assert figure([2.0]).show() == "2.00"


def test_a_ratio_is_taken_repetition_by_repetition() -> None:
    # The second repetition was disturbed for both alike, which the ratio does not show.
    assert ratio(figure([1.0, 10.0]), figure([2.0, 20.0])).values == (0.5, 0.5)


@pytest.mark.parametrize(
    ("promise", "found", "verdict"),
    [
        (Promise("it", 1.0), 1.0, "kept"),
        (Promise("it", 1.0), 0.99, "NOT KEPT"),
        (Promise("it", 3.0, at_most=True), 3.0, "kept"),
        (Promise("it", 3.0, at_most=True), 3.01, "NOT KEPT"),
    ],
)
def test_a_promise_is_judged_on_its_side_of_the_bound(
    promise: Promise, found: float, verdict: str
) -> None:
    assert f"**{verdict}**" in promise.judge(figure([found]))


def test_a_table_puts_its_verdicts_below_its_rows() -> None:
    table = Table("T", "About.", ["server", "n"], [["a", "1"]], ["Promise: kept."])
    assert table.markdown().splitlines()[-3:] == ["| a | 1 |", "", "Promise: kept."]
