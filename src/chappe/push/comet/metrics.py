"""What `/metrics` says of a comet. No client, app or topic is named here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from chappe.push.comet.comet import Comet
from chappe.wire.push import PushError


def metrics_of(comet: Comet) -> Iterator[Metric]:
    """All that a comet counts."""
    counters = comet.counters
    for name, documentation, level in (
        ("sessions", "Connections of devices", comet.sessions.count),
        ("clients", "Devices that have logged in", len(comet.audience.clients)),
        ("topics", "Topics that devices here subscribe to", len(comet.audience.topics)),
        ("acks_waiting", "Acknowledgements that are not settled", len(comet.ledger)),
        ("routes_waiting", "Clients that left and whose routes stand", len(comet.routes)),
        ("logins_waiting", "Devices that wait to be looked up", len(comet.logins)),
        ("handings_waiting", "Notes on their way to many devices", len(comet.handings)),
        ("cache_bytes", "Bodies of notes that are kept", comet.bodies.size),
        ("cache_notes", "Notes whose bodies are kept", len(comet.bodies)),
    ):
        yield GaugeMetricFamily(f"chappe_push_{name}", documentation, value=level)
    for name, documentation, count in (
        ("logins", "Devices that logged in", counters.logins),
        ("acks", "Acknowledgements that came", counters.acks),
        ("acks_dropped", "Acknowledgements for which there was no room", counters.acks_dropped),
        ("retracted", "Notes that devices were told to take back", counters.retracted),
        ("writes", "Writes to connections", counters.writes),
        ("sent_bytes", "Bytes to devices", counters.bytes_out),
        ("cache_hits", "Bodies that were kept when they were wanted", counters.cache_hits),
        ("cache_misses", "Bodies that were asked of the store", counters.cache_misses),
    ):
        yield CounterMetricFamily(f"chappe_push_{name}", documentation, value=count)
    errors = {PushError(code).name.lower(): count for code, count in counters.refused.items()}
    yield _by("handed", "Notes that devices were handed, by why", "why", counters.handed)
    yield _by("commands", "Commands of devices", "command", counters.commands)
    yield _by("errors", "Errors that devices were told", "error", errors)
    yield _by("closed", "Sessions that ended, by cause", "cause", counters.closed)
    yield _by("store_failures", "What the store did not do", "part", counters.store_failures)


def _by(name: str, documentation: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"chappe_push_{name}", documentation, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
