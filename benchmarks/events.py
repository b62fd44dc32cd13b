"""Events: what recording costs a node, all of it and one in a hundred, beside none at all.

Three nodes are measured in turn, several times over, and each is compared with the one that records
nothing in the same round. CPU time is that of the node; what the process that copies needs, off the
messages' way and after everything else, is told by itself.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.figure import Figure, Promise, Table, figure, ratio
from benchmarks.server import Server, start_chappe

_REPETITIONS = 9
_WARM_S = 0.25
_SECONDS = 1.0
_COST = "cpu_us_per_delivery"
_SECTIONS = {
    "nothing": "enabled = false",
    "1 in 100": "enabled = true\nshare = 0.01",
    "all": "enabled = true\nshare = 1.0",
}
# Nothing is copied meanwhile: that is another process's work, and measured by itself.
_LATER = "\nseal_s = 3600\nsegment_bytes = 268435456\n"


@dataclass(frozen=True)
class Work:
    """Who sends how much to whom, and by how much recording may add to it: all, and one in 100."""

    title: str
    protocol: str
    shape: str
    connections: int
    window: int
    bounds: tuple[float, float]


WORKS = (
    Work("fan-out to 1,000, pipelined", "json", "fan", 1000, 64, (1.03, 1.02)),
    Work("fan-out to 1,000, one at a time", "json", "fan", 1000, 2, (1.03, 1.02)),
    Work("100 pairs, pipelined, JSON on WebSocket", "json", "pairs", 100, 64, (1.3, 1.02)),
    Work("100 pairs, pipelined, packed on TCP", "packed", "pairs", 100, 64, (1.3, 1.02)),
    Work("100 pairs, one at a time, JSON on WebSocket", "json", "pairs", 100, 1, (1.3, 1.02)),
)


class _Alone:
    """A server without the process that copies for it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.name = server.name
        self.ports: Mapping[str, str] = server.ports

    def pids(self) -> list[int]:
        return [self._server.process.pid]

    def settle(self) -> None:
        self._server.settle()


class EventCost:
    """Measures what recording adds to the CPU time of a node."""

    name = "events"

    def steps(self, bench: Bench) -> int:
        return len(WORKS) * len(_SECTIONS) * self._repetitions(bench) + 1

    def measure(self, bench: Bench) -> list[Table]:
        with _servers(bench) as (servers, folder):
            tables = [self._measure_work(bench, work, servers) for work in WORKS]
            for server in servers.values():
                server.process.terminate()
                server.process.wait()
            bench.advance("copying events")
            return [*tables, _measure_copying(folder)]

    def _repetitions(self, bench: Bench) -> int:
        return 1 if bench.quick else _REPETITIONS

    def _measure_work(self, bench: Bench, work: Work, servers: dict[str, Server]) -> Table:
        seconds = _SECONDS / 5 if bench.quick else _SECONDS
        options = (work.connections, 128, work.window, _WARM_S, seconds)
        costs: dict[str, list[float]] = {what: [] for what in servers}
        for _ in range(self._repetitions(bench)):
            for what, server in servers.items():
                bench.advance(f"{work.title}, recording {what}")
                target = _Alone(server)
                found = bench.load.run(target, work.protocol, work.shape, *options)
                costs[what].append(found[_COST])
        return _tabulate(work, {what: figure(values) for what, values in costs.items()})


@contextmanager
def _servers(bench: Bench) -> Iterator[tuple[dict[str, Server], Path]]:
    """A node for each share, and where the one that records all does so."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chappe-events-")))
        servers = {}
        for number, (what, section) in enumerate(_SECTIONS.items()):
            config = folder / f"{number}.toml"
            config.write_text(f"[events]\n{section}{_LATER}")
            data = folder / str(number)
            server = start_chappe(f"{bench.chappe} --config {config}", data, events=True)
            stack.callback(server.stop)
            servers[what] = server
        yield servers, folder / str(len(_SECTIONS) - 1) / "events"


def _tabulate(work: Work, costs: dict[str, Figure]) -> Table:
    table = Table(
        f"Recording: {work.title}",
        "CPU time of the node per delivery, and that divided by the node's that records nothing.",
        ["recorded", "CPU us per delivery", "ratio"],
    )
    none, some, every = costs["nothing"], costs["1 in 100"], costs["all"]
    for what, cost in costs.items():
        table.rows.append([what, cost.show(3), ratio(cost, none).show(3)])
    for what, cost, bound in (("all", every, work.bounds[0]), ("1 in 100", some, work.bounds[1])):
        promise = Promise(f"CPU when {what} is recorded, divided by none,", bound, at_most=True)
        table.verdicts.append(promise.judge(ratio(cost, none)))
    return table


def _measure_copying(events: Path) -> Table:
    """Copy once more what the node has copied at its end, and look at the clock."""
    from chappe.log.parquet.order import EVENTS, Order  # noqa: PLC0415, Arrow is an extra
    from chappe.node.eventtables import event_copier  # noqa: PLC0415

    count, size, began = 0, 0, time.process_time()
    with tempfile.TemporaryDirectory(prefix="chappe-events-") as folder:
        copier = event_copier(Path(folder))
        for log in sorted((events / "_log" / "node").glob("*.log")):
            base = int(log.stem, 16)
            order = Order("node", str(log), base, base + log.stat().st_size, EVENTS)
            count += copier.copy(order).records
            size += log.stat().st_size
        taken_s = time.process_time() - began
        written = sum(file.stat().st_size for file in Path(folder).rglob("*.parquet"))
    return Table(
        "Recording: copies as Parquet",
        "By a process of its own, which gives way to all others.",
        ["events", "CPU us per event", "bytes per event in the log", "in the table"],
        [
            [
                f"{count:,}",
                f"{taken_s / count * 1e6:.2f}",
                f"{size / count:.1f}",
                f"{written / count:.1f}",
            ]
        ],
    )
