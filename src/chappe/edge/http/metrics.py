"""Metrics: plain counters that others keep, read when somebody scrapes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from chappe.edge.acceptor import AcceptCounters
from chappe.events.counting import CountingRecorder
from chappe.hub.hub import Hub

_edge = attrgetter("edge")


def sessions_by_edge(hub: Hub) -> dict[str, int]:
    """How many sessions each edge holds."""
    return dict(Counter(map(_edge, hub.sessions.values())))


class HubCollector(Collector):
    """What `/metrics` says about a node."""

    def __init__(
        self,
        hub: Hub,
        recorder: CountingRecorder,
        accepts: AcceptCounters,
        uptime_s: Callable[[], float],
        http: Callable[[], Mapping[str, int]],
        others: Callable[[], Iterable[Metric]] = tuple,
    ) -> None:
        self._hub = hub
        self._recorder = recorder
        self._accepts = accepts
        self._uptime_s = uptime_s
        self._http = http
        self._others = others

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield from self._counters()
        yield from self._others()

    def _gauges(self) -> Iterator[Metric]:
        hub = self._hub
        apps = hub.apps.values()
        sessions = sessions_by_edge(hub)
        yield _labelled(GaugeMetricFamily, "sessions", "Sessions open now", "edge", sessions)
        for name, documentation, value in (
            ("apps", "Apps with a session", len(apps)),
            ("endpoints", "Users online", sum(len(app.endpoints) for app in apps)),
            ("topics", "Topics with a subscriber", sum(len(app.topics) for app in apps)),
            ("outbox_held_bytes", "Bytes that wait for slow readers", hub.outboxes.held_bytes),
            ("outbox_held_sessions", "Sessions that bytes wait for", len(hub.outboxes.held)),
            ("draining", "1 while the node sends its clients elsewhere", int(hub.draining)),
            ("uptime_seconds", "Seconds since the start", self._uptime_s()),
            ("http_connections", "HTTP connections open now", self._http()["connections"]),
        ):
            yield GaugeMetricFamily(f"chappe_{name}", documentation, value=value)

    def _counters(self) -> Iterator[Metric]:
        kept = self._recorder
        for name, documentation, label, values in (
            ("sessions_opened", "Sessions that said hello", "edge", kept.opened),
            ("sessions_closed", "Sessions that ended, by close code", "code", kept.closed),
            ("messages", "Messages taken", "op", kept.messages),
            ("deliveries", "Messages put into outboxes", "op", kept.deliveries),
            ("refusals", "Requests answered with an error", "error", kept.refusals),
            ("drops", "Messages lost on their way out", "reason", kept.drops),
            ("users", "Users found to be gone, or to have come", "event", kept.users),
            ("hooks", "Notices to apps' own servers", "outcome", kept.hooks),
        ):
            yield _labelled(CounterMetricFamily, name, documentation, label, values)
        for name, documentation, value in (
            ("accepted", "Connections accepted", self._accepts.accepted),
            ("accept_failures", "Connections lost while opening", self._accepts.failed),
            ("accept_pauses", "Times descriptors ran out", self._accepts.pauses),
            ("turned_away", "Connections above an address's rate", self._accepts.turned_away),
            ("http_requests", "HTTP requests answered", self._http()["requests"]),
        ):
            yield CounterMetricFamily(f"chappe_{name}", documentation, value=value)


def _labelled(
    family: type[Any], name: str, documentation: str, label: str, values: Mapping[Any, int]
) -> Metric:
    metric: Any = family(f"chappe_{name}", documentation, labels=(label,))
    for key, value in values.items():
        metric.add_metric((str(key),), value)
    return metric  # type: ignore[no-any-return]
