"""Start-up: how soon a server takes traffic, and how fast it takes connections in."""

from __future__ import annotations

from benchmarks.bench import JSON, NATS, PACKED, Bench, Samples, Subject, pick
from benchmarks.figure import Table, ratio
from benchmarks.load import Figures

_SUBJECTS = (JSON, PACKED, NATS)
_CONNECTIONS = 5000
_CONNECTIONS_QUICK = 200
_UNDER_WAY = 64
_REPETITIONS = 3


class StartUp:
    """Measures starts and connects, introductions included."""

    name = "startup"

    def steps(self, bench: Bench) -> int:
        times = self._repetitions(bench)
        return times * (len(bench.present(_SUBJECTS)) + len(bench.present((JSON, NATS))))

    def measure(self, bench: Bench) -> list[Table]:
        times = self._repetitions(bench)
        starts = bench.repeat(
            times, bench.present((JSON, NATS)), "start", lambda subject: _start(bench, subject)
        )
        connects = bench.repeat(
            times, bench.present(_SUBJECTS), "connects", lambda subject: _connect(bench, subject)
        )
        return [_starts_table(starts), _connects_table(connects)]

    def _repetitions(self, bench: Bench) -> int:
        return 1 if bench.quick else _REPETITIONS


def _start(bench: Bench, subject: Subject) -> Figures:
    server = bench.recipes[subject.server].start()
    server.stop()
    return {"ready_s": server.ready_s}


def _connect(bench: Bench, subject: Subject) -> Figures:
    connections = _CONNECTIONS_QUICK if bench.quick else _CONNECTIONS
    with bench.load.idle(bench.server(subject), subject.protocol, connections, _UNDER_WAY) as found:
        return found


def _starts_table(samples: Samples) -> Table:
    table = Table(
        "Start",
        "Seconds from starting the process until it takes traffic: Chappe's `ready` line, the "
        "first connection that NATS accepts. Chappe's is mostly Python importing.",
        ["server", "seconds"],
    )
    for subject in samples:
        label = "Chappe" if subject.ours else subject.label
        table.rows.append([label, pick(samples, subject, "ready_s").show()])
    return table


def _connects_table(samples: Samples) -> Table:
    table = Table(
        "Connects",
        f"Connections opened and introduced (hello answered), {_UNDER_WAY} at a time. The ratio "
        "is NATS's CPU time per connect divided by the server's own.",
        ["server", "connects per second", "CPU us per connect", "ratio"],
    )
    for subject in samples:
        cost = pick(samples, subject, "cpu_us_per_connect")
        rate = pick(samples, subject, "connects_per_s")
        against = ""
        if subject.ours and NATS in samples:
            against = ratio(pick(samples, NATS, "cpu_us_per_connect"), cost).show()
        table.rows.append([subject.label, f"{rate.median:,.0f}", cost.show(0), against])
    return table
