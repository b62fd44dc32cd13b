"""The cluster: what a delivery costs when it passes from one node to another, or among workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.bench import Bench, Samples, Subject, pick
from benchmarks.chart import CLUSTER
from benchmarks.figure import Figure, Promise, Table, best_ratio, figure
from benchmarks.load import Figures, Target
from benchmarks.nodes import Nodes
from benchmarks.server import start_chappe

_REPETITIONS = 4
_WARM_S = 0.2
_SECONDS = 0.5
_PAYLOAD_BYTES = 128
_COST, _RATE = "cpu_us_per_delivery", "deliveries_per_s"

ONE, WORKERS, TWO = "one node", "two workers", "two nodes"
HOME_SENDS, HOME_RECEIVES = "two nodes, home sends", "two nodes, home receives"
_FORMS = {"json": "JSON", "packed": "packed"}
_NOTES = {
    "fan": "One publisher, 1,000 subscribers. Two workers share one port: the kernel spreads the "
    "subscribers over them. Of two nodes, one has the publisher and the other all subscribers; "
    "the topic lives on the publisher's (home sends) or on the subscribers' (home receives).",
    "pairs": "100 senders, each with a receiver of its own; of two nodes, one has all senders and "
    "the other all receivers. Acknowledged: each message asks for an answer, and the answers make "
    "room for more.",
}


@dataclass(frozen=True)
class Work:
    """One kind of traffic, in several places."""

    title: str
    shape: str
    connections: int
    window: int
    places: tuple[str, ...]
    protocols: tuple[str, ...] = ("json", "packed")

    def subjects(self) -> list[Subject]:
        """Every place in every form; within a form, one node comes first."""
        return [
            Subject(f"{place}, {_FORMS[form.partition('-')[0]]}", place, form)
            for form in self.protocols
            for place in self.places
        ]


_ANYWHERE = (ONE, WORKERS, HOME_SENDS, HOME_RECEIVES)
_APART = (ONE, TWO)
_ACKNOWLEDGED = ("json-acknowledged", "packed-acknowledged")
WORKS = (
    Work("cluster: fan-out to 1,000, pipelined", "fan", 1000, 64, _ANYWHERE),
    Work("cluster: fan-out to 1,000, one at a time", "fan", 1000, 2, _ANYWHERE),
    Work("cluster: 100 pairs, pipelined", "pairs", 100, 64, _APART),
    Work("cluster: 100 pairs, one at a time", "pairs", 100, 1, _APART),
    Work("cluster: 100 pairs, pipelined, acknowledged", "pairs", 100, 64, _APART, _ACKNOWLEDGED),
    Work("cluster: 100 pairs, one at a time, acknowledged", "pairs", 100, 1, _APART, _ACKNOWLEDGED),
)


class ClusterSpeed:
    """Measures two workers and two nodes beside one node."""

    name = "cluster"

    def __init__(self, works: Sequence[Work] = WORKS) -> None:
        self._works = works

    def steps(self, bench: Bench) -> int:
        return sum(len(work.subjects()) for work in self._works) * _repetitions(bench)

    def measure(self, bench: Bench) -> list[Table]:
        with ExitStack() as stack:
            one, workers = (start_chappe(bench.chappe + more) for more in ("", " --workers 2"))
            stack.callback(one.stop)
            stack.callback(workers.stop)
            nodes = Nodes(bench.chappe)
            stack.callback(nodes.stop)
            targets: dict[str, Target] = {ONE: one, WORKERS: workers}
            targets |= {HOME_SENDS: nodes.home_sends(), HOME_RECEIVES: nodes.home_receives()}
            targets[TWO] = targets[HOME_SENDS]
            return [_measure(bench, work, targets) for work in self._works]


def _repetitions(bench: Bench) -> int:
    return 1 if bench.quick else _REPETITIONS


def _measure(bench: Bench, work: Work, targets: dict[str, Target]) -> Table:
    def once(subject: Subject) -> Figures:
        seconds = _SECONDS / 5 if bench.quick else _SECONDS
        options = (work.connections, _PAYLOAD_BYTES, work.window, _WARM_S, seconds)
        return bench.load.run(targets[subject.server], subject.protocol, work.shape, *options)

    samples = bench.repeat(_repetitions(bench), work.subjects(), work.title, once)
    return _tabulate(work, samples)


def _tabulate(work: Work, samples: Samples) -> Table:
    table = Table(
        f"{work.title[0].upper()}{work.title[1:]}",
        f"{_NOTES[work.shape]} {_PAYLOAD_BYTES}-byte payloads, at most {work.window} under way per "
        "sender. CPU time is that of all processes of all nodes together. The ratios are the best "
        "of the repetitions divided by the best of one node's in the same form.",
        ["server", "CPU us per delivery", "deliveries per second", "CPU ratio", "rate ratio"],
        bars={subject.label: pick(samples, subject, _COST).median for subject in samples},
        chart=CLUSTER,
    )
    for subject in samples:
        cost, rate = pick(samples, subject, _COST), pick(samples, subject, _RATE)
        row = [subject.label, cost.show(3 if cost.median < 1 else 2), f"{max(rate.values):,.0f}"]
        if subject.server == ONE:
            alone = (cost, rate)
            table.rows.append([*row, "", ""])
            continue
        ratios = best_ratio(cost, alone[0], min), best_ratio(rate, alone[1], max)
        table.rows.append([*row, *(f"{one:.2f}" for one in ratios)])
        table.verdicts += _judge(work, subject, *ratios)
    return table


def _judge(work: Work, subject: Subject, cost: float, rate: float) -> list[str]:
    found: Figure
    if subject.server == WORKERS:
        return []
    if work.shape == "fan":
        promise = Promise(
            f"CPU per delivery, {subject.label} divided by one node,", 1.25, None, True
        )
        found = figure([cost])
    else:
        promise = Promise(f"messages per second, {subject.label} divided by one node,", 0.6)
        found = figure([rate])
    return [promise.judge(found)]
