"""Measure Chappe beside its peers: `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.bench import Bench, Measurement
from benchmarks.brokers import rabbitmq_version
from benchmarks.chart import charts, draw
from benchmarks.cluster import ClusterSpeed
from benchmarks.depth import Depth
from benchmarks.durability import Durability
from benchmarks.events import EventCost
from benchmarks.figure import Table
from benchmarks.keys import Keys
from benchmarks.latency import Latency
from benchmarks.load import Load, LoadError
from benchmarks.memory import Memory
from benchmarks.push import Push
from benchmarks.pushbytes import PushBytes
from benchmarks.queues import QueueSpeed
from benchmarks.rejoin import Rejoin
from benchmarks.report import compose, put_in
from benchmarks.roomgrowth import RoomGrowth
from benchmarks.rooms import RoomSpeed
from benchmarks.roomsize import RoomSize
from benchmarks.routing import RouteLookUp
from benchmarks.server import CHAPPE, Recipe, ServerError, recipes
from benchmarks.startup import StartUp
from benchmarks.tables import TableSpeed
from benchmarks.throughput import FAN_OUT, PAIRS, Throughput

MEASUREMENTS: tuple[Measurement, ...] = (
    Throughput("fan-out", FAN_OUT),
    Throughput("pairs", PAIRS),
    Memory(),
    Latency(),
    StartUp(),
    ClusterSpeed(),
    RouteLookUp(),
    Rejoin(),
    QueueSpeed(),
    Durability(),
    Depth(),
    EventCost(),
    TableSpeed(),
    RoomSpeed(),
    RoomSize(),
    RoomGrowth(),
    PushBytes(),
    Push(),
    Keys(),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurements, show them, and write them down if asked to."""
    options = _parse(arguments)
    console = Console()
    _raise_descriptor_limit()
    found = {recipe.name: recipe for recipe in recipes(options.chappe, options.peers)}
    chosen = [m for m in MEASUREMENTS if options.only in (None, m.name)]
    try:
        tables = _measure(console, chosen, found, options)
    except (LoadError, ServerError) as error:
        console.print(f"[red]{error}[/red]")
        return 1
    versions = {name: recipe.version() for name, recipe in found.items()}
    if options.peers and (rabbitmq := rabbitmq_version()):
        versions["rabbitmq"] = rabbitmq
    report = compose(tables, versions, quick=options.quick)
    console.print(Markdown(report))
    if options.write is not None:
        _write(options, report, tables)
    return 0


def _write(options: argparse.Namespace, report: str, tables: list[Table]) -> None:
    if options.only and not options.quick and options.write.exists():
        options.write.write_text(put_in(options.write.read_text(), tables))
        # Most charts are of all that there is.
        drawn = [chart for chart in charts(tables) if chart.whole]
    else:
        options.write.write_text(report)
        drawn = charts(tables)
    for chart in drawn:
        options.write.with_name(chart.file).write_text(draw(chart, tables))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("--only", choices=[m.name for m in MEASUREMENTS], help="measure just this")
    parser.add_argument("--quick", action="store_true", help="a fraction of the work, once")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="write the report and the charts; with --only, into the report that is there",
    )
    parser.add_argument(
        "--no-peers", dest="peers", action="store_false", help="measure Chappe alone"
    )
    parser.add_argument(
        "--chappe", default=CHAPPE, metavar="COMMAND", help="how to start Chappe (%(default)s)"
    )
    return parser.parse_args(arguments)


def _measure(
    console: Console,
    chosen: Sequence[Measurement],
    found: dict[str, Recipe],
    options: argparse.Namespace,
) -> list[Table]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        tempfile.TemporaryDirectory(prefix="chappe-benchmark-") as folder,
        Progress(*columns, console=console, transient=True, refresh_per_second=2) as progress,
    ):
        task = progress.add_task("building the load", total=None)

        def advance(what: str) -> None:
            progress.update(task, advance=1, description=what)

        bench = Bench(
            *(Load(Path(folder)), found, options.chappe, options.quick, advance),
            peers=options.peers,
        )
        progress.update(task, total=sum(m.steps(bench) for m in chosen))
        try:
            return [table for m in chosen for table in m.measure(bench)]
        finally:
            bench.stop()


def _raise_descriptor_limit() -> None:
    """Servers and load inherit it: idle connections need one descriptor each."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
