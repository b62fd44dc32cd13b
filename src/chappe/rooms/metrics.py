"""What `/metrics` says of rooms: roles, datagrams, probes, links, alarms. No room is named here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from chappe.rooms.dispatch import Dispatch
from chappe.rooms.linkstats import End, Link, LinkStats
from chappe.rooms.post import LocalPost, Post
from chappe.rooms.prober import Prober
from chappe.rooms.pulse import Pulses
from chappe.rooms.roll import Roll
from chappe.rooms.status import counts_of, partition_of_role, replicas_of
from chappe.rooms.survey import BOUNDS_S, Survey

# With more links than that, the worst are told: a scrape has to stay small.
LINKS_MAX = 1_000
# What roles count that can become less; all else only grows.
_LEVELS = frozenset({
    "entries",
    "flows",
    "gateways",
    "members",
    "modulus",
    "partitions",
    "pending",
    "queued",
    "rooms",
    "rows",
    "served",
    "subscribers",
    "telling",
    "waiting",
})  # fmt: skip
_LINK = ("tail", "tail_role", "head", "head_role", "partition")
_QUANTILES = (0.5, 0.9, 0.99)
_US = 1_000_000


class Measured(Protocol):
    """A process, as far as it is measured."""

    dispatch: Dispatch
    post: LocalPost

    @property
    def roll(self) -> Roll:
        """Who takes part."""
        ...

    @property
    def prober(self) -> Prober | None:
        """What tries out links."""
        ...


def metrics_of(process: Measured, *, links: bool = True) -> Iterator[Metric]:
    """All that a process counts; `links` name nodes, which not everybody is to know."""
    yield from _roll(process.roll)
    yield from _roles(process.dispatch)
    yield from _post(process.post, process.dispatch)
    if process.prober is not None:
        yield from _probes(process.prober)
        if links:
            yield from _links(process.prober.survey)


def _roll(roll: Roll) -> Iterator[Metric]:
    for name, documentation, value in (
        ("partition_num", "Partitions of brokers", roll.partitions),
        ("partition_wanted", "Partitions that there are to be", roll.wanted),
        ("router_partition_num", "Partitions of independent routers", roll.router_partitions),
    ):
        yield GaugeMetricFamily(f"chappe_rooms_{name}", documentation, value=value)
    seats = GaugeMetricFamily(
        "chappe_rooms_seats", "Roles in the registry", labels=("role", "state")
    )
    counted: dict[tuple[str, str], int] = {}
    for replica in replicas_of(roll):
        key = (replica.role, replica.state)
        counted[key] = counted.get(key, 0) + 1
    for labels, count in counted.items():
        seats.add_metric(labels, count)
    yield seats


def _roles(dispatch: Dispatch) -> Iterator[Metric]:
    """What each role counts, by the words that it has for it."""
    families: dict[str, Metric] = {}
    for role in dispatch.roles():
        if role is dispatch.prober:
            continue
        partition = partition_of_role(role)
        labels = (role.kind.name.lower(), "" if partition is None else str(partition))
        for key, count in counts_of(role).items():
            word, _, reason = key.partition("_") if key.startswith("dropped_") else (key, "", "")
            family = families.get(word)
            if family is None:
                family = families[word] = _family(word)
            family.add_metric((*labels, reason) if reason else labels, count)  # type: ignore[attr-defined]
    yield from families.values()
    yield _stalls(dispatch)


def _stalls(dispatch: Dispatch) -> Metric:
    stalls = CounterMetricFamily(
        "chappe_rooms_stalls",
        "How often a role passed over somebody who answered, but took nothing",
        labels=("role", "partition"),
    )
    for role in dispatch.roles():
        pulses = getattr(role, "pulses", None)
        if isinstance(pulses, Pulses):
            partition = partition_of_role(role)
            name = role.kind.name.lower()
            stalls.add_metric((name, "" if partition is None else str(partition)), pulses.stalls)
    return stalls


def _family(word: str) -> Metric:
    labels: tuple[str, ...] = ("role", "partition")
    if word == "dropped":
        return CounterMetricFamily(
            "chappe_rooms_dropped", "What a role dropped", labels=(*labels, "reason")
        )
    if word in _LEVELS:
        return GaugeMetricFamily(f"chappe_rooms_{word}", f"What a role has: {word}", labels=labels)
    return CounterMetricFamily(f"chappe_rooms_{word}", f"What a role did: {word}", labels=labels)


def _post(post: LocalPost, dispatch: Dispatch) -> Iterator[Metric]:
    yield _by("ops_dropped", "What was said and not sent, by cause", "cause", post.dropped)
    yield CounterMetricFamily(
        "chappe_rooms_misdirected",
        "What came for roles that this process has not",
        value=dispatch.misdirected,
    )
    if not isinstance(post, Post):
        return
    yield _by("datagrams_refused", "Datagrams not taken, by cause", "cause", post.refused)
    for name, documentation, value in (
        ("datagrams_received", "Datagrams that came", post.datagrams_in),
        ("datagrams_sent", "Datagrams that left", post.datagrams_out),
        ("received_bytes", "Bytes of datagrams that came", post.bytes_in),
        ("sent_bytes", "Bytes of datagrams that left", post.bytes_out),
        ("pieces_given_up", "Messages in pieces that never were whole", post.pieces_given_up),
    ):
        yield CounterMetricFamily(f"chappe_rooms_{name}", documentation, value=value)
    peers = GaugeMetricFamily(
        "chappe_rooms_peers", "Processes that datagrams go to and come from", labels=("way",)
    )
    for way, count in zip(("out", "in"), post.peers, strict=True):
        peers.add_metric((way,), count)
    yield peers


def _probes(prober: Prober) -> Iterator[Metric]:
    survey = prober.survey
    yield _by("probes", "Probes, by what became of them", "outcome", prober.counts)
    labels = ("tail_role", "head_role")
    delays = HistogramMetricFamily(
        "chappe_rooms_probe_seconds", "What probes took over links", labels=labels
    )
    failures = CounterMetricFamily(
        "chappe_rooms_probe_failures", "Probes that links lost", labels=labels
    )
    for roles, hop in survey.hops.items():
        names = tuple(role.name.lower() for role in roles)
        bounds = (*map(str, BOUNDS_S), "+Inf")
        buckets = list(zip(bounds, accumulate(hop.buckets), strict=True))
        delays.add_metric(names, buckets, hop.sum_us / _US)
        failures.add_metric(names, hop.failed)
    yield from (delays, failures)
    yield GaugeMetricFamily(
        "chappe_rooms_alarms", "Alarms that are not over", value=len(survey.alarms)
    )
    raised = CounterMetricFamily(
        "chappe_rooms_alarms_raised", "Alarms of links, by cause", labels=(*labels, "cause")
    )
    for key, count in survey.alarms.raised.items():
        raised.add_metric(key, count)
    yield raised


def _links(survey: Survey) -> Iterator[Metric]:
    delay = GaugeMetricFamily(
        "chappe_rooms_link_delay_seconds",
        "What the last probes took over a link",
        labels=(*_LINK, "quantile"),
    )
    share = GaugeMetricFamily(
        "chappe_rooms_link_share", "Of the last probes over a link, how many came", labels=_LINK
    )
    came = CounterMetricFamily("chappe_rooms_link_probes", "Probes that came", labels=_LINK)
    lost = CounterMetricFamily("chappe_rooms_link_failures", "Probes it lost", labels=_LINK)
    for link, stats in _worst(survey.stats()):
        labels = _labels(link)
        for part in _QUANTILES:
            delay_us = stats.quantile_us(part)
            if delay_us is not None:
                delay.add_metric((*labels, str(part)), delay_us / _US)
        share.add_metric(labels, stats.share)
        came.add_metric(labels, stats.arrived)
        lost.add_metric(labels, stats.failed)
    yield from (delay, share, came, lost)


def _worst(links: Mapping[Link, LinkStats]) -> Iterable[tuple[Link, LinkStats]]:
    if len(links) <= LINKS_MAX:
        return links.items()
    return sorted(links.items(), key=lambda each: each[1].share)[:LINKS_MAX]


def _labels(link: Link) -> tuple[str, ...]:
    tail, head = link
    partition = _partition(tail) or _partition(head)
    return tail.name, tail.role.name.lower(), head.name, head.role.name.lower(), partition


def _partition(end: End) -> str:
    return "" if end.partition is None else str(end.partition)


def _by(name: str, documentation: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"chappe_rooms_{name}", documentation, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
