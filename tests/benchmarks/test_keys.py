"""Keys are measured: every message arrives at every session, and is paid for."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import pytest
from benchmarks.bench import Bench
from benchmarks.chart import KEYS, charts
from benchmarks.keyload import check
from benchmarks.keys import OWN, SOCKETIO, Keys, Work
from benchmarks.load import LoadError
from benchmarks.server import CHAPPE


@dataclass
class Counted:
    count: int
    total: int


def a_bench() -> Bench:
    return Bench(None, {}, CHAPPE, quick=True, advance=lambda _: None)  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="it is the bus")
def test_deliveries_by_key_are_measured_beside_a_peer_on_the_same_work() -> None:
    pytest.importorskip("socketio")
    subjects = [OWN, SOCKETIO]
    keys = Keys([Work(2, 2)], sessions=3, subjects=subjects)
    bench = a_bench()
    told, unheard = keys.measure(bench)
    assert keys.steps(bench) == len(subjects) + len(unheard.rows)
    assert [row[0] for row in told.rows] == [subject.label for subject in subjects]
    assert all(float(cell) > 0 for row in told.rows for cell in row[1:4])
    ratios = [row[5] for row in told.rows]
    assert all(float(cell) > 0 for cell in ratios[:-1])
    assert ratios[-1] == ""
    assert len(told.verdicts) == 1
    assert charts([told]) == [KEYS]
    # What is asked of Redis does not depend on the machine.
    other, at_once, same, peer = ([float(cell) for cell in row[2:]] for row in unheard.rows)
    assert other == [1, 0]
    assert 0 < at_once[0] < 0.1
    assert same == [0, 0]
    assert peer == [0, 1]
    assert all("**kept**" in verdict for verdict in unheard.verdicts)


@pytest.mark.parametrize(
    ("count", "total"), [(2, 3), (4, 10), (3, 7)], ids=["missing", "one more", "twice"]
)
def test_a_message_that_does_not_come_once_fails_the_run(count: int, total: int) -> None:
    right, wrong = Counted(3, 6), Counted(count, total)
    check([right], 3)
    with pytest.raises(LoadError):
        check([right, wrong], 3)
