"""Routing: what it costs to find the node of a receiver, with few and with many in the table."""

from __future__ import annotations

import asyncio
import os
import time
from random import Random
from typing import Any, cast

from benchmarks.bench import Bench
from benchmarks.chart import ROUTES
from benchmarks.figure import Promise, Table, figure
from chappe.access.dev import DEV_APP, DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.clock import SystemClock
from chappe.cluster.cluster import Cluster
from chappe.cluster.link import Link
from chappe.endpoints.application import Application
from chappe.events.counting import CountingRecorder
from chappe.hub.hub import Hub
from chappe.hub.options import HubOptions
from chappe.ids import Snowflake
from chappe.wire.encoding import STREAM
from chappe.wire.limits import Limits
from chappe.wire.ops import PACKED, Hello, Send

_SIZES = (100, 10_000, 1_000_000)
_SIZES_QUICK = (100, 10_000)
_SAMPLE = 10_000
# A tick's worth: what is gathered for the other node is encoded in between, as in a real one.
_TICK = 500
_REPETITIONS = 7
_PAYLOAD = b"x" * 128


class RouteLookUp:
    """Measures look-ups in a node's routing table, in this process."""

    name = "routes"

    def steps(self, bench: Bench) -> int:
        return 1 if bench.quick else _REPETITIONS

    def measure(self, bench: Bench) -> list[Table]:
        return asyncio.run(_measure(bench, self.steps(bench)))


class Rig:
    """A hub with one sender, and a table of users who are all on one other node."""

    def __init__(self, size: int) -> None:
        loop, clock = asyncio.get_running_loop(), SystemClock()
        self.hub = Hub(
            loop=loop,
            clock=clock,
            ids=Snowflake(0, clock.wall_ms),
            entropy=os.urandom,
            authenticator=DevAuthenticator(TokenAuthenticator([], clock)),
            recorder=CountingRecorder(),
            options=HubOptions(),
            limits=Limits(),
        )
        application = Application.embedded(self.hub, loop)
        self._cluster = Cluster(hub=self.hub, application=application, loop=loop, name="here")
        self._cluster.start()
        self._cluster.link_up(cast(Link, _Nowhere()))
        self._session = self.hub.open("benchmark", STREAM, _Nowhere(), "here")
        self.hub.admit(self._session, Hello(as_="user:sender"))
        (peer,) = self._cluster.peers
        self.size = size
        self._get = self.hub.apps[DEV_APP].routes.get
        self.hub.apps[DEV_APP].routes.update((_user(n), peer.alone) for n in range(size))

    def look_up(self, users: list[str]) -> float:
        """Nanoseconds of a look-up in the table alone."""
        get = self._get
        begun = time.process_time_ns()
        for user in users:
            get(user)
        return (time.process_time_ns() - begun) / len(users)

    async def send(self, users: list[str]) -> float:
        """Nanoseconds of a message from the decoded op to the frame for the other node."""
        make: Any = PACKED[Send]
        ops = [make(to=user, data=_PAYLOAD, data64=True) for user in users]
        receive, session, taken = self.hub.receive, self._session, 0
        for start in range(0, len(ops), _TICK):
            some = ops[start : start + _TICK]
            begun = time.process_time_ns()
            for op in some:
                receive(session, op)
            await asyncio.sleep(0)
            taken += time.process_time_ns() - begun
        return taken / len(ops)

    def stop(self) -> None:
        self._cluster.stop()


class _Nowhere:
    """Takes whatever is written, be it of a session or of a link."""

    name = "there"
    paused = False

    def write(self, data: bytes) -> None: ...

    def ping(self) -> None: ...

    def close(self, code: int, reason: str) -> None: ...

    def abort(self) -> None: ...

    def reset(self, reason: str) -> None:
        raise AssertionError(reason)


def _user(number: int) -> str:
    return f"user:{number:07d}"


def _sample(rng: Random, among: int) -> list[str]:
    """Receivers as they come from the wire: new strings, whose hash is not known yet."""
    return [_user(rng.randrange(among)) for _ in range(_SAMPLE)]


async def _measure(bench: Bench, times: int) -> list[Table]:
    rigs = [Rig(size) for size in (_SIZES_QUICK if bench.quick else _SIZES)]
    await asyncio.sleep(0)
    rng = Random(1)  # the same receivers in every run
    found: dict[int, list[list[float]]] = {rig.size: [] for rig in rigs}
    for _ in range(times):
        bench.advance("routes")
        for rig in rigs:
            few, any_of_them = (min(100, rig.size), rig.size)
            figures = [rig.look_up(_sample(rng, among)) for among in (few, any_of_them)]
            figures += [await rig.send(_sample(rng, among)) for among in (few, any_of_them)]
            found[rig.size].append(figures)
    for rig in rigs:
        rig.stop()
    return _tabulate({size: [min(c) for c in zip(*f, strict=True)] for size, f in found.items()})


def _tabulate(best: dict[int, list[float]]) -> list[Table]:
    alone = Table(
        "Cluster: finding the node of a receiver",
        "CPU nanoseconds of a look-up in the routing table alone, the best of the repetitions. To "
        "100 receivers, the same in every size, shows what the table costs; to any of them, what "
        "is added by memory that is not in the processor's caches.",
        ["endpoints in the table", "to 100 of them", "to any of them"],
    )
    whole = Table(
        "Cluster: a send to another node",
        "CPU nanoseconds of a message from the decoded op to the encoded frame for the other "
        "node, no two in a row to one receiver; the best of the repetitions.",
        ["endpoints in the table", "to 100 of them", "to any of them"],
    )
    smallest, largest = min(best), max(best)
    for table, first in ((alone, 0), (whole, 2)):
        table.chart = ROUTES
        table.rows = [
            [f"{size:,}", *(f"{f:,.0f}" for f in best[size][first:][:2])] for size in best
        ]
        table.bars = {f"{size:,}": figures[first] for size, figures in best.items()}
        what = f"{table.title.partition(': ')[2]} with {largest:,} divided by {smallest:,},"
        growth = best[largest][first] / best[smallest][first]
        table.verdicts = [Promise(what, 1.25, at_most=True).judge(figure([growth]))]
    return [alone, whole]
