"""Events: what recording costs a node, all of it and one in a hundred, beside none at all.

A node does the same work in lockstep (lockstep.py), and records in every other turn (switched.py):
so what is compared is one process with itself. Each repetition has processes of their own. One of
them records nothing in either: by how much its turns differ is what such a comparison cannot tell.
CPU time is that of the node with all its threads; what the process that copies needs, off the
messages' way and after everything else, is told by itself.

Such turns differ by more than is promised. So the node's instructions are counted, too
(instructions.py): they are what its own part of the CPU time goes by, and of the kernel's part
recording changes nothing. Where there is nothing to count with, the median of the ratios is judged.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import switched
from benchmarks.bench import Bench
from benchmarks.figure import Figure, Promise, Table, figure, ratio
from benchmarks.instructions import can_count, start_counted, switched_counts
from benchmarks.lockstep import Cost, Drill, cpu_ns, switched_costs
from benchmarks.server import Server, start_chappe

_REPETITIONS = 5
# In one repetition, of a process: so many that it records in, and as many that it does not. And as
# many messages in a turn as are written down at once.
_TURNS = 10
_MESSAGES = 9_000
# Of a fan-out, so many deliveries.
_DELIVERIES = 100_000
# Turns either way while instructions are counted.
_COUNTED_TURNS = 2
# How long nodes are watched that have nothing to do.
_REST_S = 10.0
_SECTIONS = {
    "nothing": "enabled = false",
    "1 in 100": "enabled = true\nshare = 0.01",
    "all": "enabled = true\nshare = 1.0",
}
_RECORDED = ("1 in 100", "all")
# Nothing is copied meanwhile: that is another process's work, and measured by itself. Nobody is
# asked for a sign of life: a node that is stopped, or counted, is late for it.
_LATER = "\nseal_s = 3600\nsegment_bytes = 268435456\n[hub]\nheartbeat_s = 3600.0\n"


@dataclass(frozen=True)
class Work:
    """What is done, and by how much recording may add to it: all, and one in 100."""

    title: str
    drill: Drill
    bounds: tuple[float, float]

    @property
    def messages(self) -> int:
        """How many a turn has at least."""
        fan = self.drill.shape == "fan"
        return _DELIVERIES // self.drill.count if fan else _MESSAGES


# Instructions of a delivery, off and on.
Counts = tuple[float, float]

FAN_OUT, PAIRS = (1.03, 1.03), (1.3, 1.02)
WORKS = (
    Work("fan-out to 100, pipelined, JSON on WebSocket", Drill("json", "fan", 100, 32), FAN_OUT),
    Work("fan-out to 100, pipelined, packed on TCP", Drill("packed", "fan", 100, 32), FAN_OUT),
    Work("fan-out to 1,000, one at a time, JSON", Drill("json", "fan", 1_000, 1), FAN_OUT),
    Work("100 pairs, pipelined, JSON on WebSocket", Drill("json", "pairs", 100, 32), PAIRS),
    Work("100 pairs, pipelined, packed on TCP", Drill("packed", "pairs", 100, 32), PAIRS),
    Work("100 pairs, one at a time, JSON on WebSocket", Drill("json", "pairs", 100, 1), PAIRS),
)


class EventCost:
    """Measures what recording adds to the CPU time of a node."""

    name = "events"

    def steps(self, bench: Bench) -> int:
        counted = len(WORKS) * len(_RECORDED) if can_count() else 0
        return len(WORKS) * self._repetitions(bench) + counted + 2

    def measure(self, bench: Bench) -> list[Table]:
        counts = self._count(bench) if can_count() else {}
        costs: dict[Work, dict[str, list[Cost]]] = {
            work: {what: [] for what in _SECTIONS} for work in WORKS
        }
        last = self._repetitions(bench) - 1
        for repetition in range(last + 1):
            with _servers() as (servers, folder):
                for work in WORKS:
                    bench.advance(f"recording: {work.title}")
                    for what, server in servers.items():
                        costs[work][what].append(self._measure_work(bench, work, server))
                if repetition == last:
                    bench.advance("nodes that record, at rest")
                    rest = _measure_rest(servers, _REST_S / 5 if bench.quick else _REST_S)
                    for server in servers.values():
                        server.process.terminate()
                        server.process.wait()
                    bench.advance("copying events")
                    copying = _measure_copying(folder)
        tables = [_tabulate(work, each, counts.get(work, {})) for work, each in costs.items()]
        return [*tables, rest, copying]

    def _repetitions(self, bench: Bench) -> int:
        return 1 if bench.quick else _REPETITIONS

    def _measure_work(self, bench: Bench, work: Work, server: Server) -> Cost:
        return switched_costs(server, work.drill, work.messages, 2 if bench.quick else _TURNS)

    def _count(self, bench: Bench) -> dict[Work, dict[str, Counts]]:
        """Of each work, by what is recorded, the instructions of a delivery."""
        counts: dict[Work, dict[str, Counts]] = {work: {} for work in WORKS}
        for what in _RECORDED:
            with _folder() as folder:
                place = folder / "node"
                server = start_counted(_command(folder, what), place)
                try:
                    for work in WORKS:
                        bench.advance(f"counting instructions: {work.title}")
                        counts[work][what] = switched_counts(
                            server, work.drill, work.messages, _COUNTED_TURNS
                        )
                finally:
                    server.kill()
        return counts


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="chappe-events-") as folder:
        yield Path(folder)


def _command(folder: Path, what: str) -> list[str]:
    """What starts a node that records so much."""
    config = folder / f"{what.replace(' ', '-')}.toml"
    config.write_text(f"[events]\n{_SECTIONS[what]}{_LATER}")
    return [sys.executable, switched.__file__, "--config", str(config)]


@contextmanager
def _servers() -> Iterator[tuple[dict[str, Server], Path]]:
    """A node for each share, and where the one that records all does so."""
    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        servers = {}
        for what in _SECTIONS:
            place = folder / what.replace(" ", "-")
            command = " ".join(_command(folder, what))
            servers[what] = start_chappe(command, place, events=True)
            stack.callback(servers[what].stop)
        yield servers, folder / "all" / "events"


def _tabulate(work: Work, costs: dict[str, list[Cost]], counts: dict[str, Counts]) -> Table:
    table = Table(
        f"Recording: {work.title}",
        "CPU time of the node per delivery when it records, and that divided by what the same "
        "process takes when it does not; instructions of the node's own per delivery, off and on; "
        "and by how much these let CPU time grow, as the kernel's part of it stays as it is.",
        ["recorded", "CPU us per delivery", "ratio", "instructions", "ratio by those"],
    )
    ratios: dict[str, Figure] = {}
    for what, each in costs.items():
        off, on = (figure([cost[n] for cost in each]) for n in range(2))
        ratios[what] = ratio(on, off)
        row = [what, on.show(3), ratios[what].show(3), "", ""]
        if what in counts:
            fewer, more = counts[what]
            user = median(cost.user for cost in each)
            ratios[what] = figure([1 + (more / fewer - 1) * user])
            row[3:] = [f"{fewer:,.0f} to {more:,.0f}", ratios[what].show(3)]
        table.rows.append(row)
    for what, bound in zip(("all", "1 in 100"), work.bounds, strict=True):
        promise = Promise(f"CPU when {what} is recorded, divided by none,", bound, at_most=True)
        table.verdicts.append(promise.judge(ratios[what]))
    return table


def _measure_rest(servers: dict[str, Server], seconds: float) -> Table:
    """What is done by the clock, a few times a second, whatever the load: signs of life."""
    began = {what: cpu_ns(server) for what, server in servers.items()}
    time.sleep(seconds)
    table = Table(
        "Recording: at rest",
        "CPU time of nodes that have nothing to do, in a second.",
        ["recorded", "CPU ms per second"],
    )
    for what, server in servers.items():
        table.rows.append([what, f"{(cpu_ns(server) - began[what]) / 1e6 / seconds:.2f}"])
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
