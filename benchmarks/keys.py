"""Keys: a message from one replica of a web application to sessions on another, through a Redis."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec

from benchmarks.bench import Bench, Samples, Subject, pick
from benchmarks.chart import KEYS
from benchmarks.figure import Figure, Promise, Table, figure, ratio
from benchmarks.keyreplica import PAYLOAD_BYTES, Order
from benchmarks.keyservers import KeyLayout
from benchmarks.load import Figures
from benchmarks.push import cpu_s

_SESSIONS, _SESSIONS_QUICK = 500, 20
_REPETITIONS = 5
_WARM = 10
_TIMES_LESS = 5.0
_COST = "cpu_us_per_delivery"
# What a client asks of Redis by name; scripts do the rest.
_REQUESTS = ("evalsha", "eval", "publish", "spublish")

OWN = Subject("Chappe, own port", "chappe", "own")
UVICORN = Subject("Chappe, uvicorn", "chappe", "mounted")
FASTAPI = Subject("Chappe, FastAPI, uvicorn", "chappe", "fastapi")
WATCHED = Subject("Chappe, behind a middleware", "chappe", "watched")
SOCKETIO = Subject("python-socketio, uvicorn", "python-socketio", "socketio")
OURS = (OWN, UVICORN, FASTAPI, WATCHED)


@dataclass(frozen=True)
class Work:
    """How many messages are under way at once, and how often."""

    at_once: int
    times: int

    @property
    def title(self) -> str:
        pace = "one message at a time" if self.at_once == 1 else f"{self.at_once} messages at once"
        return f"Keys: {pace}"


@dataclass(frozen=True)
class Unheard:
    """Sends by a key that nobody has."""

    label: str
    subject: Subject
    order: Order
    # How many requests each may cost.
    bound: float | None = None


WORKS = (Work(1, 200), Work(16, 12))
UNHEARD = (
    Unheard("Chappe, another key each time", OWN, Order(count=500, nobody="other"), 1.0),
    Unheard(
        "Chappe, another key each time, 50 at once",
        OWN,
        Order(first=10_000, count=500, nobody="other", at_once=50),
        1.0,
    ),
    Unheard("Chappe, the same key", OWN, Order(count=500, nobody="same"), 0.0),
    Unheard("python-socketio", SOCKETIO, Order(count=500, nobody="same")),
)


class Keys:
    """Measures what a delivery costs both replicas together, and a send that reaches nobody."""

    name = "keys"

    def __init__(
        self,
        works: Sequence[Work] = WORKS,
        sessions: int = _SESSIONS,
        subjects: Sequence[Subject] = (*OURS, SOCKETIO),
    ) -> None:
        self._works = works
        self._sessions = sessions
        self._wanted = subjects

    def steps(self, bench: Bench) -> int:
        subjects = self._subjects(bench)
        unheard = sum(each.subject in subjects for each in UNHEARD)
        return len(self._works) * len(subjects) * _repetitions(bench) + unheard

    def measure(self, bench: Bench) -> list[Table]:
        sessions = min(self._sessions, _SESSIONS_QUICK) if bench.quick else self._sessions
        with ExitStack() as stack:
            layouts = {
                subject: stack.enter_context(KeyLayout(subject.protocol, sessions))
                for subject in self._subjects(bench)
            }
            tables = [_measure(bench, work, layouts, sessions) for work in self._works]
            return [*tables, _measure_unheard(bench, layouts)]

    def _subjects(self, bench: Bench) -> list[Subject]:
        peers = bench.peers and find_spec("socketio") is not None
        return [subject for subject in self._wanted if subject.ours or peers]


def _repetitions(bench: Bench) -> int:
    return 1 if bench.quick else _REPETITIONS


def _measure(
    bench: Bench, work: Work, layouts: Mapping[Subject, KeyLayout], sessions: int
) -> Table:
    times = min(work.times, 5) if bench.quick else work.times

    def once(subject: Subject) -> Figures:
        layout = layouts[subject]
        for _ in range(min(times, _WARM)):
            layout.tell(work.at_once)
        groups = (layout.pids(), layout.pids()[:1], layout.redis.pids(), layout.load_pids())
        before, begun = [cpu_s(pids) for pids in groups], time.monotonic()
        for _ in range(times):
            layout.tell(work.at_once)
        seconds = time.monotonic() - begun
        deliveries = times * work.at_once * sessions
        spent = [
            (cpu_s(pids) - mark) / deliveries * 1e6
            for pids, mark in zip(groups, before, strict=True)
        ]
        names = (_COST, "sender_us", "redis_us", "load_us")
        found = dict(zip(names, spent, strict=True))
        return {**found, "per_s": deliveries / seconds, "deliveries": deliveries}

    samples = bench.repeat(_repetitions(bench), list(layouts), work.title, once)
    return _tabulate(work, samples, sessions, times)


def _tabulate(work: Work, samples: Samples, sessions: int, times: int) -> Table:
    table = Table(
        work.title,
        f"Two replicas on one Redis; one sends by a key that {sessions} sessions on the other "
        f"have, {PAYLOAD_BYTES} bytes of text. {times} times {work.at_once}, each time when every "
        "session has all of the last: who misses one, or gets one twice, fails the run. "
        "On a port of its own: `hub.listen`. The others are in uvicorn with the same settings: "
        "`hub.asgi()` by itself, mounted in FastAPI, and behind a middleware that looks at what "
        "is sent, so that the server makes every frame anew. python-socketio: a room, joined by "
        "its `AsyncRedisManager`. No compression. CPU time is that of both replicas, the sender's "
        "part of it beside it, and Redis's apart. Ratios are python-socketio's divided by ours: "
        "above 1 is cheaper. The load reads raw sockets and takes the CPU time of the last column.",
        [
            *("server", "CPU us per delivery", "of the sender", "Redis, CPU us"),
            *("deliveries per second", "CPU", "load, CPU us"),
        ],
        bars={subject.label: pick(samples, subject, _COST).median for subject in samples},
        chart=KEYS,
    )
    for subject in samples:
        shown = [
            pick(samples, subject, _COST).show(),
            *(f"{pick(samples, subject, name).median:.2f}" for name in ("sender_us", "redis_us")),
            pick(samples, subject, "per_s").show(0),
        ]
        against = ""
        if subject.ours and SOCKETIO in samples:
            less = ratio(pick(samples, SOCKETIO, _COST), pick(samples, subject, _COST))
            against = less.show(1)
            table.verdicts += _judge(subject, less)
        load = f"{pick(samples, subject, 'load_us').median:.1f}"
        table.rows.append([subject.label, *shown, against, load])
    return table


def _judge(subject: Subject, less: Figure) -> list[str]:
    """Where a server makes each frame anew, that is what it costs."""
    if subject == WATCHED:
        return []
    what = f"CPU per delivery, {SOCKETIO.label} divided by {subject.label},"
    return [Promise(what, _TIMES_LESS).judge(less)]


def _measure_unheard(bench: Bench, layouts: Mapping[Subject, KeyLayout]) -> Table:
    table = Table(
        "Keys: a key that nobody has",
        "One after the other, or some at once, on the first of two replicas. A key whose owners "
        "were looked for in the last second is remembered. Requests are what Redis was asked for "
        "(`INFO commandstats`): look-ups by script, and messages. CPU time is that of both "
        "replicas.",
        ["sends", "CPU us per send", "look-ups per send", "publishes per send"],
    )
    for each in UNHEARD:
        if each.subject not in layouts:
            continue
        bench.advance(f"{table.title}: {each.label}")
        cpu_us, requests = _send_unheard(layouts[each.subject], each.order)
        published = requests["publish"] + requests["spublish"]
        looked = requests["evalsha"] + requests["eval"]
        table.rows.append([each.label, f"{cpu_us:.1f}", f"{looked:.3f}", f"{published:.3f}"])
        if each.bound is not None:
            promise = Promise(f"requests per send, {each.label},", each.bound, at_most=True)
            table.verdicts.append(promise.judge(figure([looked + published])))
    return table


def _send_unheard(layout: KeyLayout, order: Order) -> tuple[float, dict[str, float]]:
    """CPU time and requests of each send."""
    # Scripts are loaded, connections made, and what can be remembered is.
    layout.order(Order(first=1_000_000, count=1, nobody=order.nobody))
    before, cpu = layout.requests(), cpu_s(layout.pids())
    layout.order(order)
    cpu = cpu_s(layout.pids()) - cpu
    after = layout.requests()
    each = {name: (after.get(name, 0) - before.get(name, 0)) / order.count for name in _REQUESTS}
    return cpu / order.count * 1e6, each
