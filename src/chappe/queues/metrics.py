"""What `/metrics` says of the queues that live on a node."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from chappe.queues.local import LocalStorage
from chappe.queues.ops import Queues

# A node with more queues tells of the deepest: a scrape has to stay small.
QUEUES_MAX = 1_000


class QueueMetrics:
    """Reads what queues know, when somebody scrapes it."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def __call__(self) -> Iterator[Metric]:
        yield from self._each()
        yield from self._journals()

    def _each(self) -> Iterator[Metric]:
        labels = ("app", "queue")
        depth = GaugeMetricFamily(
            "chappe_queue_depth", "Messages that wait or are in hand", labels=labels
        )
        held = GaugeMetricFamily("chappe_queue_bytes", "Their payloads' bytes", labels=labels)
        dead = GaugeMetricFamily("chappe_queue_dead_letters", "Dead letters", labels=labels)
        delayed = GaugeMetricFamily("chappe_queue_delayed", "Delayed messages", labels=labels)
        stored = CounterMetricFamily(
            "chappe_queue_stored", "Messages that were given a place in a lane", labels=labels
        )
        by_group = (*labels, "group")
        lag = GaugeMetricFamily(
            "chappe_queue_lag", "Messages that a group is not done with", labels=by_group
        )
        in_hand = GaugeMetricFamily(
            "chappe_queue_in_hand", "Messages that a group has begun with", labels=by_group
        )
        waiting = GaugeMetricFamily(
            "chappe_queue_consumers_waiting", "Consumers in line for a message", labels=by_group
        )
        found = [
            (queue.state.depth(), *key, queue)
            for broker in self._queues.brokers()
            for key, queue in broker.queues.items()
        ]
        found.sort(key=lambda each: (-each[0], each[1], each[2]))
        for deep, app, address, queue in found[:QUEUES_MAX]:
            name, state = (app, address.removeprefix("queue:")), queue.state
            depth.add_metric(name, deep)
            held.add_metric(name, state.waiting_bytes())
            dead.add_metric(name, queue.letters.count)
            delayed.add_metric(name, len(state.delayed))
            stored.add_metric(name, sum(state.heads[lane] for lane in state.lanes))
            for group in state.readers():
                lags = sum(group.at(lane).lag(state.heads[lane]) for lane in state.lanes)
                lag.add_metric((*name, group.name), lags)
                here = queue.groups.get(group.name)
                if here is not None:
                    in_hand.add_metric((*name, group.name), here.in_hand)
                    waiting.add_metric((*name, group.name), here.waiting)
        yield from (depth, held, dead, delayed, stored, lag, in_hand, waiting)

    def _journals(self) -> Iterator[Metric]:
        labels = ("broker",)
        size = GaugeMetricFamily("chappe_journal_bytes", "Bytes of a journal", labels=labels)
        flushes = CounterMetricFamily(
            "chappe_journal_flushes", "Times a journal was written to the disk", labels=labels
        )
        failed = GaugeMetricFamily(
            "chappe_journal_failed", "Whether a journal takes nothing any more", labels=labels
        )
        damages = GaugeMetricFamily(
            "chappe_journal_damages", "Places where a journal cannot be read", labels=labels
        )
        for name, broker in self._queues.durable.items():
            if isinstance(broker.storage, LocalStorage):
                journal = broker.storage.journal
                size.add_metric((name,), journal.end - journal.start)
                flushes.add_metric((name,), journal.flushes)
                failed.add_metric((name,), float(journal.failed is not None))
                damages.add_metric((name,), len(journal.damages))
        for name in self._queues.broken:
            failed.add_metric((name,), 1.0)
        yield from (size, flushes, failed, damages)
