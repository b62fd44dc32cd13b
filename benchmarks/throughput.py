"""Throughput: what a delivery costs a server, in fan-out and between pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.bench import (
    JSON,
    MOSQUITTO,
    NATS,
    PACKED,
    REDIS,
    SINGLE,
    SUBJECTS,
    Bench,
    Samples,
    Subject,
    pick,
)
from benchmarks.chart import DELIVERIES
from benchmarks.figure import Figure, Promise, Table, ratio
from benchmarks.load import Figures

_REPETITIONS = 5
_WARM_S = 0.25
_SECONDS = 1.0
_COST = "cpu_us_per_delivery"


@dataclass(frozen=True)
class Work:
    """Work for one server: who sends how much to whom, with how many messages under way."""

    title: str
    shape: str
    connections: int
    payload_bytes: int
    window: int
    # What is promised of a subject against another; against None is against the best peer.
    promises: Sequence[tuple[Subject, Subject | None, float, float | None]] = ()
    subjects: Sequence[Subject] = SUBJECTS


FAN_OUT = (
    Work("fan-out to 1,000, pipelined", "fan", 1000, 128, 64, [(JSON, None, 1.0, 1.3)]),
    Work("fan-out to 1,000, one at a time", "fan", 1000, 128, 2, [(JSON, None, 1.0, 1.3)]),
    Work("fan-out of 1 kB to 300", "fan", 300, 1024, 64, [(JSON, None, 1.5, None)]),
)
PAIRS = (
    Work(
        *("100 pairs, pipelined", "pairs", 100, 128, 64),
        [(JSON, None, 0.3, None), (PACKED, NATS, 0.7, 1.0)],
        (JSON, PACKED, SINGLE, NATS, REDIS, MOSQUITTO),
    ),
    Work(
        *("100 pairs, one at a time", "pairs", 100, 128, 1),
        [(JSON, None, 0.3, None), (PACKED, NATS, 0.7, 1.0)],
    ),
)


@dataclass(frozen=True)
class Throughput:
    """Measures several works of one kind."""

    name: str
    works: Sequence[Work] = field(default_factory=tuple)

    def steps(self, bench: Bench) -> int:
        subjects = sum(len(bench.present(work.subjects)) for work in self.works)
        return subjects * self._repetitions(bench)

    def measure(self, bench: Bench) -> list[Table]:
        return [self._measure_work(bench, work) for work in self.works]

    def _repetitions(self, bench: Bench) -> int:
        return 1 if bench.quick else _REPETITIONS

    def _measure_work(self, bench: Bench, work: Work) -> Table:
        def once(subject: Subject) -> Figures:
            seconds = _SECONDS / 5 if bench.quick else _SECONDS
            options = (work.connections, work.payload_bytes, work.window, _WARM_S, seconds)
            server = bench.server(subject)
            return bench.load.run(server, subject.protocol, work.shape, *options)

        subjects = bench.present(work.subjects)
        return _tabulate(work, bench.repeat(self._repetitions(bench), subjects, work.title, once))


def _tabulate(work: Work, samples: Samples) -> Table:
    costs = {subject: pick(samples, subject, _COST) for subject in samples}
    peers = [subject for subject in costs if not subject.ours]
    best = min(peers, key=lambda peer: costs[peer].median, default=None)
    table = Table(
        f"{work.title[0].upper()}{work.title[1:]}",
        f"{work.payload_bytes}-byte payloads, at most {work.window} under way per sender. "
        "The ratio is the best peer's CPU time per delivery divided by the server's own: "
        "above 1 is cheaper than the best peer.",
        ["server", "CPU us per delivery", "deliveries per second", "ratio"],
        bars={subject.label: cost.median for subject, cost in costs.items()},
        chart=DELIVERIES,
    )
    for subject, cost in costs.items():
        rate = pick(samples, subject, "deliveries_per_s")
        against = ratio(costs[best], cost).show() if best and subject.ours else ""
        if subject is best:
            against = "best peer"
        digits = 3 if cost.median < 1 else 2
        table.rows.append([subject.label, cost.show(digits), f"{rate.median:,.0f}", against])
    table.verdicts = _judge(work, costs, best)
    return table


def _judge(work: Work, costs: dict[Subject, Figure], best: Subject | None) -> list[str]:
    verdicts = []
    for subject, named, bound, aim in work.promises:
        other = named or best
        if other in costs and other is not None:
            who = other.label if named else f"the best peer's ({other.label})"
            what = f"CPU per delivery, {who} divided by {subject.label},"
            verdicts.append(Promise(what, bound, aim).judge(ratio(costs[other], costs[subject])))
    return verdicts
