"""The benchmarks run: the load builds, does its work on a hub, and the report tells it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.bench import Bench
from benchmarks.brokers import JETSTREAM, STREAMS, find_brokers
from benchmarks.chart import CLUSTER, DELIVERIES, ROUTES, charts, draw
from benchmarks.cluster import HOME_RECEIVES, HOME_SENDS, ONE, TWO, WORKERS, ClusterSpeed, Work
from benchmarks.depth import Depth
from benchmarks.durability import FIRST, REPLICATED, VOLATILE, Durability
from benchmarks.figure import Promise, Table, best_ratio, figure, ratio
from benchmarks.load import Load
from benchmarks.queues import PAYLOAD_BYTES, QueueSpeed
from benchmarks.rejoin import join_crowds
from benchmarks.report import compose, put_in
from benchmarks.routing import RouteLookUp
from benchmarks.server import CHAPPE

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the load")


class Unused:
    """Stands for the load where none is put on anything."""


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of a cluster end at once: none is measured while it says for two beats that it does."""
    monkeypatch.setenv("CHAPPE_ROOMS_BEAT_S", "0.25")


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """The load, built once."""
    return Load(tmp_path_factory.mktemp("load"))


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
    assert (tmp_path / DELIVERIES.file).read_text().count("<rect") > 3


@needs_gcc
def test_a_server_that_cannot_start_is_an_error_not_a_figure(tmp_path: Path) -> None:
    report = tmp_path / "RESULTS.md"
    argv = ["--only", "pairs", "--quick", "--no-peers", "--chappe", "true"]
    assert main([*argv, "--write", str(report)]) == 1
    assert not report.exists()


@needs_gcc
def test_two_nodes_are_measured_beside_one(load: Load) -> None:
    works = [
        Work("pairs", "pairs", 10, 4, (ONE, TWO), ("packed-acknowledged",)),
        Work("fan", "fan", 10, 4, (ONE, WORKERS, HOME_SENDS, HOME_RECEIVES), ("json",)),
    ]
    seen: list[str] = []
    bench = Bench(load, {}, CHAPPE, quick=True, advance=seen.append)
    speed = ClusterSpeed(works)
    pairs, fan = speed.measure(bench)
    assert len(seen) == speed.steps(bench) == 6
    assert [row[0] for row in pairs.rows] == ["one node, packed", "two nodes, packed"]
    for row in (*pairs.rows[1:], *fan.rows[1:]):
        assert all(float(ratio) > 0 for ratio in row[3:])
    # Workers are told of, two nodes are held to a promise.
    assert (len(pairs.verdicts), len(fan.verdicts)) == (1, 2)


@needs_gcc
def test_a_queue_is_measured_from_the_send_to_the_last_acknowledgement(load: Load) -> None:
    bench = Bench(load, {}, CHAPPE, True, lambda _: None, peers=False)
    speed = QueueSpeed()
    (table,) = speed.measure(bench)
    assert speed.steps(bench) == 1
    ((server, rate, cost, against),) = table.rows
    assert (server, against) == ("Chappe", "")
    assert int(rate.replace(",", "")) > 0
    assert float(cost) > 0


def test_a_server_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.queues.find_brokers", lambda chappe, peers: {})
    bench = Bench(Unused(), {}, CHAPPE, quick=True, advance=lambda _: None)  # type: ignore[arg-type]
    (table,) = QueueSpeed().measure(bench)
    assert "| RabbitMQ, classic queue | not measured: rabbitmq-server is not" in table.markdown()
    assert len(table.rows) == 4


@needs_gcc
@pytest.mark.parametrize("protocol", ["nats", "redis"])
def test_the_load_on_queues_speaks_to_peers(load: Load, protocol: str) -> None:
    brokers = find_brokers(CHAPPE, peers=True)
    server = brokers[{"nats": JETSTREAM, "redis": STREAMS}[protocol]]()
    try:
        options = (PAYLOAD_BYTES, 8, 0.1, 0.2)
        figures = load.queue(server, protocol, "q", "work", *options)
    finally:
        server.stop()
    assert figures["messages"] >= 8
    assert figures["cpu_us_per_message"] > 0


@needs_gcc
def test_ways_to_keep_a_queue_are_measured_beside_each_other(load: Load) -> None:
    seen: list[str] = []
    bench = Bench(load, {}, CHAPPE, quick=True, advance=seen.append)
    durability = Durability((FIRST, VOLATILE, REPLICATED))
    (table,) = durability.measure(bench)
    assert len(seen) == durability.steps(bench) == len(table.rows) == 3
    assert table.rows[0][3:] == ["", ""]
    assert all(float(ratio) > 0 for row in table.rows[1:] for ratio in row[3:])


@needs_gcc
def test_a_queue_is_filled_and_found_again_by_a_node_that_was_killed(load: Load) -> None:
    bench = Bench(load, {}, CHAPPE, quick=True, advance=lambda _: None)
    depth = Depth((2_048,))
    (table,) = depth.measure(bench)
    assert depth.steps(bench) == 1
    ((messages, _, filled, ready_s, back),) = table.rows
    assert messages == "2,048"
    assert all(float(figure) > 0 for figure in (filled, ready_s, back))


def test_a_node_that_joins_a_crowd_is_ready_when_it_knows_all_of_it() -> None:
    bench = Bench(Unused(), {}, CHAPPE, quick=True, advance=lambda _: None)  # type: ignore[arg-type]
    counts = [count for count, ready_s, size in join_crowds(bench) if ready_s > 0 and size > 1]
    assert counts == [1, 1_000]


def test_looking_up_routes_is_measured_for_each_size(tmp_path: Path) -> None:
    bench = Bench(Unused(), {}, CHAPPE, quick=True, advance=lambda _: None)  # type: ignore[arg-type]
    for table in RouteLookUp().measure(bench):
        assert [row[0] for row in table.rows] == ["100", "10,000"]
        assert all(float(cell.replace(",", "")) > 0 for row in table.rows for cell in row[1:])


def test_a_chart_shows_the_bars_of_its_own_tables_only() -> None:
    tables = [
        Table("A", "", ["x"], bars={"Chappe": 1.0, "other": 2.0}, chart=DELIVERIES),
        Table("B", "", ["x"], bars={"two nodes": 3.0}, chart=CLUSTER),
        Table("C", "", ["x"], chart=ROUTES),
    ]
    assert charts(tables) == [DELIVERIES, CLUSTER]
    assert draw(CLUSTER, tables).count("<rect") == 2  # its ground, and one bar
    report = compose(tables, {}, quick=False)
    assert report.index(CLUSTER.file) > report.index("## A")


def test_tables_measured_by_themselves_take_the_place_of_those_in_a_report() -> None:
    first = [Table(title, "", ["what"], [[f"old {title}"]]) for title in ("A", "B")]
    report = compose(first, {"nats": "1"}, quick=False)
    then = [Table(title, "", ["what"], [[f"new {title}"]]) for title in ("B", "C")]
    put = put_in(report, then)
    assert put.partition("## ")[0] == report.partition("## ")[0]
    assert re.findall("(?m)^## .+", put) == ["## A", "## B", "## C", "## How to read this"]
    assert "old A" in put
    assert "old B" not in put
    assert put.count("*Measured by itself: ") == 2
    # As often as one likes.
    assert re.sub("Measured.+", "", put_in(put, then)) == re.sub("Measured.+", "", put)


def test_the_best_is_divided_by_the_best() -> None:
    assert best_ratio(figure([4.0, 2.0]), figure([1.0, 3.0]), min) == 2.0
    assert best_ratio(figure([4.0, 2.0]), figure([1.0, 2.0]), max) == 2.0


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
