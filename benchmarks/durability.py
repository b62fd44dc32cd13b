"""Durability: what each promise that a queue can make costs, side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.bench import Bench, Samples, Subject, pick
from benchmarks.brokers import Together, start_streams
from benchmarks.figure import Table, ratio
from benchmarks.load import Target
from benchmarks.nodes import NAMES, Nodes
from benchmarks.queues import COST, PAYLOAD_BYTES, RATE, WINDOW, measure_queues, repetitions
from benchmarks.server import start_chappe

_FLUSHES, _REDIS = ("always", "interval", "never"), "redis"
FIRST = Subject("flush always", "always", "packed")
VOLATILE = Subject("in memory only", "always", "packed-volatile")
REPLICATED = Subject("flush always, a replica that is waited for", "acknowledged", "packed")
SUBJECTS = (
    FIRST,
    Subject("flush interval (1 s)", "interval", "packed"),
    Subject("flush never", "never", "packed"),
    VOLATILE,
    Subject("on Redis, appendfsync always", _REDIS, "packed"),
    Subject("flush always, a replica that follows", "async", "packed"),
    REPLICATED,
)


class Durability:
    """Measures the same work on queues of one, and of two nodes, kept in different ways."""

    name = "durability"

    def __init__(self, subjects: Sequence[Subject] = SUBJECTS) -> None:
        self._subjects = list(subjects)

    def steps(self, bench: Bench) -> int:
        return repetitions(bench) * len(self._subjects)

    def measure(self, bench: Bench) -> list[Table]:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chappe-flush-")))
            names = dict.fromkeys(subject.server for subject in self._subjects)
            targets = {name: _start(bench, stack, folder, name) for name in names}
            return [_tabulate(measure_queues(bench, "durability", self._subjects, targets))]


def _start(bench: Bench, stack: ExitStack, folder: Path, name: str) -> Target:
    if name == _REDIS:
        redis = start_streams()
        stack.callback(redis.stop)
        node = start_chappe(f"{bench.chappe} --queues redis://127.0.0.1:{redis.ports['redis']}")
        stack.callback(node.stop)
        return Together(name, (node, redis))
    config = folder / f"{name}.toml"
    command = f"{bench.chappe} --config {config}"
    if name in _FLUSHES:
        config.write_text(f'[journal]\nflush = "{name}"\n')
        node = start_chappe(command)
        stack.callback(node.stop)
        return node
    config.write_text(f'[replication]\nreplicas = 1\nmode = "{name}"\n')
    nodes = Nodes(command)
    stack.callback(nodes.stop)
    return Together(name, [nodes.node(one) for one in NAMES])


def _tabulate(samples: Samples) -> Table:
    table = Table(
        "Queues: what durability costs",
        f"One producer with {WINDOW} under way, one consumer, {PAYLOAD_BYTES}-byte messages, as "
        "above. CPU time is that of everything that keeps the messages: of both nodes where there "
        "is a replica, of the node and of Redis where they are kept there. The ratios are taken "
        "with flush always.",
        ["kept", "messages per second", "CPU us per message", "rate ratio", "CPU ratio"],
    )
    rates = {subject: pick(samples, subject, RATE) for subject in samples}
    costs = {subject: pick(samples, subject, COST) for subject in samples}
    for subject in samples:
        row = [subject.label, rates[subject].show(0), costs[subject].show(1)]
        against = ["", ""]
        if subject is not FIRST:
            against = [
                ratio(rates[subject], rates[FIRST]).show(),
                ratio(costs[subject], costs[FIRST]).show(),
            ]
        table.rows.append([*row, *against])
    return table
