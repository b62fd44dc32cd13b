"""Push is measured: what it takes of Redis, and what very many devices take of it."""

from __future__ import annotations

import shutil

import pytest
from benchmarks.bench import Bench
from benchmarks.push import CHAPPE as HANDED
from benchmarks.push import CHAPPE_ACKED, PEERS, Push
from benchmarks.pushbytes import DOCUMENT_GB, PushBytes
from benchmarks.server import CHAPPE


def test_bytes_of_every_kind_of_record_are_told() -> None:
    told: list[str] = []
    bench = Bench(None, {}, CHAPPE, quick=True, advance=told.append)  # type: ignore[arg-type]
    measured = PushBytes(500)
    (table,) = measured.measure(bench)
    assert len(told) == measured.steps(bench)
    kinds = [row for row in table.rows if row[1] != "all"]
    assert len(kinds) == 7
    assert all(float(row[2]) > 5 for row in kinds)
    assert {row[0]: int(row[5]) for row in table.rows if row[1] == "all"} == DOCUMENT_GB
    assert len(table.verdicts) == len(DOCUMENT_GB)


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="comets share a Redis")
def test_devices_log_in_wait_and_are_told_beside_mosquitto() -> None:  # P13
    told: list[str] = []
    bench = Bench(None, {}, CHAPPE, quick=True, advance=told.append)  # type: ignore[arg-type]
    measured = Push(60)
    held, logins, broadcasts, sends = measured.measure(bench)
    assert len(told) == measured.steps(bench)
    sizes = {row[0]: float(row[1].replace(",", "")) for row in held.rows}
    whole = sizes["comets"] + sizes["supervisor"] + sizes["web and admin"]
    assert sizes["all"] == pytest.approx(whole, abs=0.2)
    assert sizes["all"] > sizes["all, before the first device"] > 50
    # What is promised of 70,000 is not judged by 60.
    assert not held.verdicts
    assert all(float(figure.replace(",", "")) > 0 for figure in logins.rows[0])
    peers = PEERS if shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto") else ()
    labels = [work.label for work in (CHAPPE_ACKED, HANDED, *peers)]
    assert [row[0] for row in broadcasts.rows] == labels
    assert all(float(row[1]) > 0 for row in broadcasts.rows)
    # Two ratios of each of ours: with who encrypts, and with who does not.
    assert all(float(cell) > 0 for row in broadcasts.rows[:2] for cell in row[4:6] if peers)
    assert float(sends.rows[0][0].replace(",", "")) > 0
