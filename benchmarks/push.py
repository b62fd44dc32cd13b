"""Push: very many devices that wait, all of them told something, and notes to one of them each."""

from __future__ import annotations

import base64
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.figure import Figure, Promise, Table, figure
from benchmarks.pushcrowd import Crowd, crowd, write_grants
from benchmarks.pushload import UNDER_WAY, Spec
from benchmarks.pushpeers import connect, publish
from benchmarks.pushsends import Sends, send_for
from benchmarks.pushservers import WORKERS, Mosquittos, PushLayout, proportional_sum
from benchmarks.server import which

_DEVICES = 70_000
_DEVICES_QUICK = 400
_LOADS = 4
_ROUNDS = 5
_SEND_S = 10.0
_PAYLOAD_BYTES = 128
_TOPIC = "news"
# Heartbeats go round in less.
_REST_S = 10.0
# What is done with acknowledgements is over when so little is done in half a second.
_QUIET_CORES = 0.05
_SETTLE_S = 60.0
_MB = 1e6


@dataclass(frozen=True)
class Work:
    """How all are told something: whether they acknowledge it, and whether it is encrypted."""

    label: str
    acknowledged: bool
    encrypted: bool
    ours: bool = False

    @property
    def share(self) -> int:
        """One in so many takes part: of those whose connections are slow to open."""
        return 4 if self.encrypted and not self.ours else 1


CHAPPE = Work("Chappe, handed over", acknowledged=False, encrypted=True, ours=True)
CHAPPE_ACKED = Work("Chappe, acknowledged", acknowledged=True, encrypted=True, ours=True)
PEERS = (
    Work("Mosquitto, QoS 0", acknowledged=False, encrypted=False),
    Work("Mosquitto, QoS 1", acknowledged=True, encrypted=False),
    Work("Mosquitto, TLS, QoS 0", acknowledged=False, encrypted=True),
    Work("Mosquitto, TLS, QoS 1", acknowledged=True, encrypted=True),
)


@dataclass
class Told:
    """What it took to tell all of them something, several times over."""

    per_s: list[float]
    cpu_us: float
    # Of Redis, where there is one.
    store_us: float
    load_us: float


@dataclass
class Held:
    """What connections that do nothing take."""

    before: int
    after: Mapping[str, int]
    redis: int
    each: float


class Push:
    """Measures memory, logins, broadcasts and sends, of one crowd of devices."""

    name = "push"

    def __init__(self, devices: int = _DEVICES) -> None:
        self._devices = devices

    def steps(self, bench: Bench) -> int:
        ours = _LOADS + 2 * _rounds(bench) + 3
        return ours + len(_peers(bench)) * (_LOADS + _rounds(bench))

    def measure(self, bench: Bench) -> list[Table]:
        count = min(self._devices, _DEVICES_QUICK) if bench.quick else self._devices
        told: dict[Work, Told] = {}
        with tempfile.TemporaryDirectory(prefix="chappe-push-") as folder:
            grants = Path(folder) / "grants"
            layout = PushLayout(bench.chappe)
            try:
                tables = [*_measure(bench, layout, count, grants, told)]
            finally:
                layout.stop()
        for work in _peers(bench):
            told[work] = _tell_peers(bench, work, -(-count // work.share))
        tables.insert(2, _tabulate_told(count, told))
        return tables


def _rounds(bench: Bench) -> int:
    return 1 if bench.quick else _ROUNDS


def _peers(bench: Bench) -> tuple[Work, ...]:
    return PEERS if bench.peers and which("mosquitto") is not None else ()


def _measure(
    bench: Bench, layout: PushLayout, count: int, grants: Path, told: dict[Work, Told]
) -> Iterator[Table]:
    before = proportional_sum(layout.pids())
    bench.advance("push: grants for all devices")
    clients = write_grants(layout, count, _TOPIC, grants)
    cpu, store = cpu_s(layout.pids()), cpu_s(layout.redis.pids())
    with _devices(bench, layout, count, grants) as (devices, shares):
        logins_us = (cpu_s(layout.pids()) - cpu) / count * 1e6
        store_us = (cpu_s(layout.redis.pids()) - store) / count * 1e6
        bench.advance("push: all of them wait")
        bench.rest(_REST_S)
        yield _tabulate_held(count, _hold(layout, count, before))
        yield _tabulate_logins(count, devices, logins_us, store_us)
        told[CHAPPE_ACKED] = _tell_ours(bench, layout, CHAPPE_ACKED, devices, shares)
        bench.advance("push: notes to one device each")
        yield _tabulate_sends(count, _send(bench, layout, clients))
        told[CHAPPE] = _tell_ours(bench, layout, CHAPPE, devices, shares)


@contextmanager
def _devices(
    bench: Bench, layout: PushLayout, count: int, grants: Path
) -> Iterator[tuple[Crowd, list[int]]]:
    spec = Spec(
        protocol="push",
        ports=[layout.port],
        first=0,
        count=count,
        grants=str(grants),
        identity=base64.b64decode(layout.identity).hex(),
    )
    with crowd(count, _LOADS, spec, lambda: bench.advance("push: devices log in")) as found:
        yield found


def _hold(layout: PushLayout, count: int, before: int) -> Held:
    after = {name: proportional_sum(pids) for name, pids in layout.parts().items()}
    redis = proportional_sum(layout.redis.pids())
    return Held(before, after, redis, (sum(after.values()) - before) / count / 1024)


def _tell_ours(
    bench: Bench, layout: PushLayout, work: Work, devices: Crowd, shares: list[int]
) -> Told:
    content = base64.b64encode(b"x" * _PAYLOAD_BYTES).decode()
    store = layout.redis.pids()

    def tell(_: int) -> None:
        layout.broadcast(_TOPIC, content)

    return _tell(bench, work, layout.pids(), store, devices, shares, tell)


def _tell_peers(bench: Bench, work: Work, count: int) -> Told:
    servers = Mosquittos(tls=work.encrypted)
    try:
        spec = Spec(
            protocol="mqtt",
            ports=servers.ports,
            first=0,
            count=count,
            acknowledge=work.acknowledged,
            certificate=servers.certificate,
        )

        def advance() -> None:
            bench.advance(f"push: subscribers connect: {work.label}")

        with crowd(count, _LOADS, spec, advance) as (subscribers, shares):
            publishers = [_publisher(servers, port) for port in servers.ports]

            def tell(number: int) -> None:
                said = publish(b"x" * _PAYLOAD_BYTES, int(work.acknowledged), number)
                for publisher in publishers:
                    publisher.sendall(said)

            try:
                return _tell(bench, work, servers.pids(), [], subscribers, shares, tell)
            finally:
                for publisher in publishers:
                    publisher.close()
    finally:
        servers.stop()


def _publisher(servers: Mosquittos, port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if servers.certificate:
        tls = ssl.create_default_context(cafile=servers.certificate)
        made = tls.wrap_socket(made, server_hostname="localhost")
    made.sendall(connect("publisher"))
    made.recv(4)
    return made


def _tell(
    bench: Bench,
    work: Work,
    servers: list[int],
    store: list[int],
    devices: Crowd,
    shares: list[int],
    tell: Callable[[int], None],
) -> Told:
    """Tell all of them something, and again when all have it; until all is settled."""
    count, rates = sum(shares), []
    marks = [cpu_s(pids) for pids in (servers, store, devices.pids)]
    for number in range(1, _rounds(bench) + 1):
        bench.advance(f"push: all are told something: {work.label}")
        devices.expect(shares, acknowledge=work.acknowledged)
        begun = time.monotonic()
        tell(number)
        devices.taken()
        rates.append(count / (time.monotonic() - begun))
    _settle(servers)
    spent = [cpu_s(pids) for pids in (servers, store, devices.pids)]
    deliveries = count * len(rates)
    us = [(after - mark) / deliveries * 1e6 for after, mark in zip(spent, marks, strict=True)]
    return Told(rates, *us)


def _settle(pids: list[int]) -> None:
    """Wait until servers are done."""
    end, before = time.monotonic() + _SETTLE_S, cpu_s(pids)
    while time.monotonic() < end:
        time.sleep(0.5)
        now = cpu_s(pids)
        if now - before < _QUIET_CORES / 2:
            return
        before = now


def cpu_s(pids: list[int]) -> float:
    """The CPU time of processes, to the nanosecond: as `clock_getcpuclockid` names their clocks."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


def _send(bench: Bench, layout: PushLayout, clients: list[str]) -> Sends:
    marks = {name: cpu_s(pids) for name, pids in layout.parts().items()}
    store = cpu_s(layout.redis.pids())
    sends = send_for(layout, clients, 0.5 if bench.quick else _SEND_S, _PAYLOAD_BYTES)
    _settle(layout.pids())
    for name, pids in layout.parts().items():
        sends.cpu_us[name] = (cpu_s(pids) - marks[name]) / sends.count * 1e6
    sends.cpu_us["redis"] = (cpu_s(layout.redis.pids()) - store) / sends.count * 1e6
    return sends


def _tabulate_held(count: int, held: Held) -> Table:
    table = Table(
        f"Push: {count:,} devices that wait",
        f"`chappe serve --roles comet --workers {WORKERS}` and a process that is web and admin; "
        "registry and states in a Redis, which is listed apart. Devices have logged in with a "
        "token each, agreed on a key, subscribe to a topic, and give a sign of life every 100 "
        "seconds. Memory is the proportional set size of all processes, in MB of 10^6 bytes.",
        ["processes", "MB"],
    )
    table.rows = [[name, f"{size / _MB:,.1f}"] for name, size in held.after.items()]
    total = sum(held.after.values())
    table.rows += [
        ["all", f"{total / _MB:,.1f}"],
        ["all, before the first device", f"{held.before / _MB:,.1f}"],
        ["more for each device, in kB of 1,024 bytes", f"{held.each:,.2f}"],
        ["Redis", f"{held.redis / _MB:,.1f}"],
    ]
    if count >= _DEVICES:
        promise = Promise(f"GB for {count:,} devices that wait", 0.5, 0.35, at_most=True)
        table.verdicts.append(promise.judge(figure([total / 1e9])))
    return table


def _tabulate_logins(count: int, devices: Crowd, cpu_us: float, store_us: float) -> Table:
    table = Table(
        "Push: devices log in",
        f"All {count:,}, {_LOADS * UNDER_WAY} of them under way at a time: from "
        "connecting to the list of what waits, token, key agreement and signature included. CPU "
        "time is that of all processes of Chappe, per login; Redis's is beside it.",
        ["logins per second", "CPU us", "Redis, CPU us", "p50 ms", "p99 ms"],
    )
    ms = devices.logins_ms
    p50, p99 = ms[len(ms) // 2], ms[len(ms) * 99 // 100]
    rate = f"{count / devices.seconds:,.0f}"
    table.rows = [[rate, f"{cpu_us:,.0f}", f"{store_us:,.0f}", f"{p50:,.0f}", f"{p99:,.0f}"]]
    return table


def _tabulate_told(count: int, told: Mapping[Work, Told]) -> Table:
    table = Table(
        f"Push: {count:,} devices are told something",
        f"A note of {_PAYLOAD_BYTES} bytes to a topic, and another when all have it, "
        f"{len(next(iter(told.values())).per_s)} times. Chappe: {WORKERS} comets, each note "
        "encrypted for each device; devices acknowledge each, or none. How far each has got "
        f"is written to Redis, whose CPU time is listed apart. Mosquitto: {WORKERS} of them with "
        "as many subscribers each as a comet in the clear, a fourth of that over TLS, whose "
        "connections take long to open; nothing is written down. "
        "CPU time is that of all server processes, until all is settled. The ratios are theirs "
        "divided by ours, of those that do the same work: above 1 is cheaper. The load is the same "
        "program for both, in as many processes, and takes the CPU time of the last column.",
        [
            *("server", "CPU us per delivery", "Redis, CPU us", "deliveries per second"),
            *("CPU, TLS", "CPU, in the clear", "load, CPU us"),
        ],
    )
    for work, found in told.items():
        ratios = ["", ""]
        if work.ours:
            ratios = [_ratio(told, work, encrypted) for encrypted in (True, False)]
        store = f"{found.store_us:.2f}" if work.ours else ""
        shown = [f"{found.cpu_us:.2f}", store, figure(found.per_s).show(0)]
        table.rows.append([work.label, *shown, *ratios, f"{found.load_us:.1f}"])
    return table


def _ratio(told: Mapping[Work, Told], ours: Work, encrypted: bool) -> str:
    """What the peer that does as much takes, divided by what we take."""
    for work, found in told.items():
        if not work.ours and (work.acknowledged, work.encrypted) == (ours.acknowledged, encrypted):
            return f"{found.cpu_us / told[ours].cpu_us:.2f}"
    return ""


def _tabulate_sends(count: int, sends: Sends) -> Table:
    names = list(sends.cpu_us)
    table = Table(
        "Push: notes to one device each",
        f"`POST /v1/push/send` to one process that is web and admin, each request signed and to "
        f"another of {count:,} connected devices, which acknowledge; {sends.connections} "
        "connections, each of which sends again when it is answered. CPU time per note is told by "
        "processes.",
        ["notes per second", "p50 ms", "p99 ms", *(f"{name}, CPU us" for name in names)],
    )
    p50, p99 = (_show(sends.took_ms, share) for share in (50, 99))
    cpu = [f"{sends.cpu_us[name]:,.0f}" for name in names]
    table.rows = [[f"{sends.count / sends.seconds:,.0f}", p50, p99, *cpu]]
    return table


def _show(values: list[float], share: int) -> str:
    found: Figure = figure([sorted(values)[len(values) * share // 100]])
    return found.show(1)
