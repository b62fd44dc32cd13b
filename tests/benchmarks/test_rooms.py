"""Rooms are measured: the load speaks to several gateways, and every figure is of something."""

from __future__ import annotations

import shutil

import pytest
from benchmarks.bench import Bench
from benchmarks.chart import ROOMS, charts
from benchmarks.load import Load
from benchmarks.roomgrowth import RoomGrowth
from benchmarks.rooms import RoomSpeed, Work
from benchmarks.roomsize import RoomSize
from benchmarks.server import CHAPPE

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the load")


def a_bench(load: Load | None = None) -> Bench:
    return Bench(load, {}, CHAPPE, quick=True, advance=lambda _: None)  # type: ignore[arg-type]


@needs_gcc
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="Redis is measured beside it")
def test_a_room_over_gateways_is_measured_beside_redis_in_the_same_shape(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    bench = a_bench(Load(tmp_path_factory.mktemp("load")))
    speed = RoomSpeed([Work(40, 50)])
    (table,) = speed.measure(bench)
    assert speed.steps(bench) == len(table.rows) == 4
    ours, theirs = table.rows[:2], table.rows[2:]
    assert all(float(row[1]) > 0 and float(row[2]) > 0 for row in table.rows)
    # Nothing is lost, by nobody.
    assert {row[4] for row in table.rows} == {"0"}
    assert all(float(row[5]) > 0 and float(row[6]) > 0 for row in ours)
    assert all(row[5] == "" for row in theirs)
    assert len(table.verdicts) == 4
    assert charts([table]) == [ROOMS]


def test_rooms_are_filled_and_what_each_role_takes_is_told() -> None:
    size = RoomSize(200)
    (table,) = size.measure(a_bench())
    assert table.title == "Rooms: 200 rooms of 5 members"
    assert {row[0] for row in table.rows} == {
        *("gateway", "proxy", "broker", "router", "others", "all"),
    }
    costs = {row[0]: float(row[5]) for row in table.rows}
    assert all(costs[role] > 0 for role in ("gateway", "router", "broker"))
    assert len(table.verdicts) == 1


def test_twice_the_partitions_carry_twice_as_much() -> None:
    (table,) = RoomGrowth().measure(a_bench())
    assert [row[0] for row in table.rows] == ["1", "2", "4"]
    ratios = [float(row[2]) for row in table.rows]
    assert ratios == pytest.approx([1, 2, 4], rel=0.05)
    # Each process handles 200 a second, one broker as well.
    assert float(table.rows[0][1]) == pytest.approx(200, rel=0.05)
    assert all("**kept**" in verdict for verdict in table.verdicts)
