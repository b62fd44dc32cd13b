"""Latency: from publish to delivery, with many subscribers and little traffic."""

from __future__ import annotations

from benchmarks.bench import JSON, NATS, PACKED, Bench, Samples, Subject, pick
from benchmarks.figure import Table, ratio
from benchmarks.load import Figures

_SUBJECTS = (JSON, PACKED, NATS)
_SUBSCRIBERS = 1000
_PER_S = 50
_PAYLOAD_BYTES = 128
_REPETITIONS = 3
_WARM_S = 0.5
_SECONDS = 3.0


class Latency:
    """Measures latency over all subscribers of one topic."""

    name = "latency"

    def steps(self, bench: Bench) -> int:
        return len(bench.present(_SUBJECTS)) * (1 if bench.quick else _REPETITIONS)

    def measure(self, bench: Bench) -> list[Table]:
        def once(subject: Subject) -> Figures:
            seconds = 0.5 if bench.quick else _SECONDS
            options = (_SUBSCRIBERS, _PAYLOAD_BYTES, _PER_S, _WARM_S, seconds)
            return bench.load.run(bench.server(subject), subject.protocol, "latency", *options)

        times = 1 if bench.quick else _REPETITIONS
        return [_tabulate(bench.repeat(times, bench.present(_SUBJECTS), "latency", once))]


def _tabulate(samples: Samples) -> Table:
    table = Table(
        "Latency, 1,000 subscribers, 50 messages a second",
        "Milliseconds from writing a publish to having read the delivery, over all subscribers, "
        "by the load's one clock. The load reads all subscribers in one thread, so the time that "
        "takes is in every figure alike. The ratio is NATS's p99 divided by the server's own; "
        "above 1 is faster.",
        ["server", "p50 ms", "p99 ms", "max ms", "lost", "ratio"],
    )
    for subject in samples:
        times = [pick(samples, subject, f"{name}_us") for name in ("p50", "p99", "max")]
        shown = [type(t)(tuple(v / 1000 for v in t.values)).show() for t in times]
        lost = sum(f["expected"] - f["deliveries"] for f in samples[subject])
        against = ""
        if subject.ours and NATS in samples:
            against = ratio(pick(samples, NATS, "p99_us"), times[1]).show()
        table.rows.append([subject.label, *shown, f"{lost:.0f}", against])
    return table
