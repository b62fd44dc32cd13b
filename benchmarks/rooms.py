"""Rooms: a large one, whose members are on several gateways, beside Redis in the same shape."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.bench import Bench, Samples, Subject, pick
from benchmarks.chart import ROOMS
from benchmarks.figure import Figure, Promise, Table, figure, ratio
from benchmarks.load import Figures, Target
from benchmarks.roomservers import RedisTree, RoomLayout
from benchmarks.server import which

_GATEWAYS = 4
_REPETITIONS = 3
_WARM_S = 1.0
_SECONDS = 5.0
_PAYLOAD_BYTES = 200
_COST, _P99 = "cpu_us_per_delivery", "p99_us"

JSON = Subject("Chappe, JSON on WebSocket", "chappe", "json-room")
PACKED = Subject("Chappe, packed on TCP", "chappe", "packed-room")
TREE = Subject("Redis, a master and 4 replicas", "redis tree", "redis")
ONE = Subject("Redis, one server", "redis", "redis")


@dataclass(frozen=True)
class Work:
    """One room, and how often somebody says something there."""

    members: int
    per_s: int
    # What is promised is promised of this one.
    promised: bool = True

    @property
    def title(self) -> str:
        return f"Rooms: one room, {self.members:,} members, {self.per_s} messages a second"


WORKS = (Work(10_000, 100), Work(10_000, 10, promised=False))


class RoomSpeed:
    """Measures what a delivery costs and how long it takes, all processes together."""

    name = "rooms"

    def __init__(self, works: Sequence[Work] = WORKS) -> None:
        self._works = works

    def steps(self, bench: Bench) -> int:
        return len(self._works) * len(_subjects(bench)) * _repetitions(bench)

    def measure(self, bench: Bench) -> list[Table]:
        with ExitStack() as stack:
            layout = RoomLayout(bench.chappe, _GATEWAYS)
            stack.callback(layout.stop)
            targets: dict[str, Target] = {"chappe": layout}
            if TREE in _subjects(bench):
                for name, replicas in ((TREE.server, _GATEWAYS), (ONE.server, 0)):
                    redis = RedisTree(replicas)
                    stack.callback(redis.stop)
                    targets[name] = redis
            return [_measure(bench, work, targets) for work in self._works]


def _subjects(bench: Bench) -> tuple[Subject, ...]:
    redis = bench.peers and which("redis-server") is not None
    return (JSON, PACKED, TREE, ONE) if redis else (JSON, PACKED)


def _repetitions(bench: Bench) -> int:
    return 1 if bench.quick else _REPETITIONS


def _measure(bench: Bench, work: Work, targets: dict[str, Target]) -> Table:
    def once(subject: Subject) -> Figures:
        warm_s, seconds = (0.2, 0.5) if bench.quick else (_WARM_S, _SECONDS)
        options = (work.members, _PAYLOAD_BYTES, work.per_s, warm_s, seconds)
        return bench.load.run(targets[subject.server], subject.protocol, "latency", *options)

    samples = bench.repeat(_repetitions(bench), _subjects(bench), work.title, once)
    return _tabulate(work, samples)


def _tabulate(work: Work, samples: Samples) -> Table:
    table = Table(
        work.title,
        f"{_PAYLOAD_BYTES}-byte payloads, {work.members:,} connections. Chappe: `chappe rooms up`, "
        f"one proxy, broker and router, {_GATEWAYS} gateways with a fourth of the members each; "
        "who publishes is at the first of them. Redis: who publishes is at the master, a fourth of "
        "the subscribers at each of its replicas, which get every message by replication; or all "
        "at one server. CPU time is that of all server processes together, those too that keep the "
        "registry and the store. Milliseconds are from writing a publish to having read the "
        "delivery, over all members. The ratios are with the master and its replicas: CPU theirs "
        "divided by ours, above 1 is cheaper; p99 ours divided by theirs, below 1 is faster. The "
        "load is one process, of which the last column says how much of a core it had.",
        ["server", "CPU us per delivery", "p50 ms", "p99 ms", "lost", "CPU", "p99", "load"],
        bars={subject.label: pick(samples, subject, _COST).median for subject in samples},
        chart=ROOMS,
    )
    for subject in samples:
        cost = pick(samples, subject, _COST)
        p50, p99 = (_milliseconds(samples, subject, name) for name in ("p50_us", _P99))
        lost = sum(f["expected"] - f["deliveries"] for f in samples[subject])
        ratios = ["", ""]
        if subject.ours and TREE in samples:
            found = _ratios(samples, subject)
            ratios = [each.show() for each in found]
            table.verdicts += _judge(subject, *found) if work.promised else []
        busy = pick(samples, subject, "load_cores").median
        shown = [cost.show(3 if cost.median < 1 else 2), p50.show(1), p99.show(1)]
        table.rows.append([subject.label, *shown, f"{lost:.0f}", *ratios, f"{busy:.2f}"])
    return table


def _milliseconds(samples: Samples, subject: Subject, name: str) -> Figure:
    return figure([value / 1000 for value in pick(samples, subject, name).values])


def _ratios(samples: Samples, subject: Subject) -> tuple[Figure, Figure]:
    cost = ratio(pick(samples, TREE, _COST), pick(samples, subject, _COST))
    return cost, ratio(pick(samples, subject, _P99), pick(samples, TREE, _P99))


def _judge(subject: Subject, cost: Figure, late: Figure) -> list[str]:
    cheap = Promise(f"CPU per delivery, {TREE.label} divided by {subject.label},", 0.8)
    soon = Promise(f"p99, {subject.label} divided by {TREE.label},", 1.5, at_most=True)
    return [cheap.judge(cost), soon.judge(late)]
