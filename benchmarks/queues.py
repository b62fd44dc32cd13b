"""Queues: what it costs to keep a message, hand it out and see it acknowledged, beside peers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

from benchmarks.bench import Bench, Samples, Subject, pick
from benchmarks.brokers import CHAPPE, JETSTREAM, PACKAGES, RABBITMQ, STREAMS, find_brokers
from benchmarks.chart import QUEUES
from benchmarks.figure import Promise, Table, ratio
from benchmarks.load import Figures, Target
from benchmarks.nodes import NAMES, home_of

PAYLOAD_BYTES = 128
WINDOW = 256
COST, RATE = "cpu_us_per_message", "messages_per_s"
_REPETITIONS = 5
_WARM_S = 0.5
_SECONDS = 2.0
_PROMISE = Promise("messages per second divided by the best peer's,", 1.0, 2.0)

OURS = Subject("Chappe", CHAPPE, "packed")
SUBJECTS = (
    OURS,
    Subject("RabbitMQ, classic queue", RABBITMQ, "amqp"),
    Subject("RabbitMQ, quorum queue", RABBITMQ, "amqp-quorum"),
    Subject("NATS JetStream", JETSTREAM, "nats"),
    Subject("Redis Streams", STREAMS, "redis"),
)
_numbers = count()


class QueueSpeed:
    """Measures one producer and one consumer on a durable queue."""

    name = "queues"

    def steps(self, bench: Bench) -> int:
        found = find_brokers(bench.chappe, bench.peers)
        return repetitions(bench) * sum(subject.server in found for subject in SUBJECTS)

    def measure(self, bench: Bench) -> list[Table]:
        with _start(bench) as targets:
            present = [subject for subject in SUBJECTS if subject.server in targets]
            samples = measure_queues(bench, "queues", present, targets)
        table = _tabulate(samples)
        if bench.peers:
            table.rows += [_missing(s) for s in SUBJECTS if s.server not in targets and not s.ours]
        return [table]


def repetitions(bench: Bench) -> int:
    """How often each subject has its turn."""
    return 1 if bench.quick else _REPETITIONS


def new_name() -> str:
    """A queue that no server knows yet; of two nodes, the first is its home."""
    names = (f"q{number}" for number in _numbers)
    return next(name for name in names if home_of(f"queue:{name}") == NAMES[0])


def measure_queues(
    bench: Bench, title: str, subjects: list[Subject], targets: dict[str, Target]
) -> Samples:
    """One producer and one consumer on a new queue of each subject, several times over."""

    def once(subject: Subject) -> Figures:
        seconds = _SECONDS / 10 if bench.quick else _SECONDS
        options = (PAYLOAD_BYTES, WINDOW, _WARM_S, seconds)
        target = targets[subject.server]
        return bench.load.queue(target, subject.protocol, new_name(), "work", *options)

    return bench.repeat(repetitions(bench), subjects, title, once)


@contextmanager
def _start(bench: Bench) -> Iterator[dict[str, Target]]:
    with ExitStack() as stack:
        targets: dict[str, Target] = {}
        for name, start in find_brokers(bench.chappe, bench.peers).items():
            server = start()
            stack.callback(server.stop)
            targets[name] = server
        yield targets


def _missing(subject: Subject) -> list[str]:
    return [subject.label, f"not measured: {PACKAGES[subject.server]} is not installed", "", ""]


def _tabulate(samples: Samples) -> Table:
    rates = {subject: pick(samples, subject, RATE) for subject in samples}
    peers = [subject for subject in rates if not subject.ours]
    best = max(peers, key=lambda peer: rates[peer].median, default=None)
    table = Table(
        "Queues: one producer, one consumer",
        f"{PAYLOAD_BYTES}-byte messages. The producer has at most {WINDOW} that are not confirmed; "
        f"the consumer holds at most {WINDOW} and acknowledges each. What is confirmed is synced "
        "to the disk: flush `always` (Chappe), durable queues, persistent messages, publisher "
        "confirms (RabbitMQ), file storage, `sync_interval: always`, explicit acknowledgements "
        "(JetStream), `appendfsync always` (Redis). The time ends when the last message is "
        "acknowledged. The ratio is the server's rate divided by the best peer's; above 1 is "
        "faster.",
        ["server", "messages per second", "CPU us per message", "ratio"],
        bars={subject.label: rate.median for subject, rate in rates.items()},
        chart=QUEUES,
    )
    for subject, rate in rates.items():
        against = "best peer" if subject is best else ""
        if best and subject.ours:
            against = ratio(rate, rates[best]).show()
            table.verdicts.append(_PROMISE.judge(ratio(rate, rates[best])))
        cost = pick(samples, subject, COST)
        table.rows.append([subject.label, rate.show(0), cost.show(1), against])
    return table
