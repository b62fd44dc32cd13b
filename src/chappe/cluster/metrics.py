"""What `/metrics` says of a node's place in its cluster."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from chappe.cluster.cluster import Cluster
from chappe.cluster.mesh import Mesh
from chappe.hub.hub import Hub


class ClusterMetrics:
    """Reads counters that others keep, when somebody scrapes them."""

    def __init__(self, hub: Hub, cluster: Cluster, mesh: Mesh | None) -> None:
        self._hub = hub
        self._cluster = cluster
        self._mesh = mesh

    def __call__(self) -> Iterator[Metric]:
        apps, peers = self._hub.apps.values(), self._cluster.peers
        for name, documentation, value in (
            ("links", "Nodes linked to this one", len(peers)),
            ("routes", "Users known to be on other nodes", sum(len(a.routes) for a in apps)),
            ("topics_watched", "Topics at home here, watched from other nodes",
             sum(len(a.watchers) for a in apps)),
            ("link_waiting_bytes", "Bytes that wait for other nodes",
             sum(peer.waiting_bytes for peer in peers)),
            ("verdicts_pending", "Messages whose verdict other nodes owe",
             sum(len(peer.pending) for peer in peers)),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"chappe_{name}", documentation, value=value)
        yield CounterMetricFamily(
            "chappe_finds",
            "Users that every node was asked for",
            value=self._cluster.forwarding.finds,
        )
        if self._mesh is not None:
            yield from self._links(self._mesh)

    def _links(self, mesh: Mesh) -> Iterator[Metric]:
        counters, links = mesh.counters, list(mesh.links.values())
        resets = CounterMetricFamily(
            "chappe_link_resets", "Links lost, by reason", labels=("reason",)
        )
        for reason, count in counters.resets.items():
            resets.add_metric((reason,), count)
        yield resets
        for name, documentation, value in (
            ("link_opens", "Links that came up", counters.opened),
            ("link_refusals", "Handshakes that failed", counters.refused.total()),
            ("link_received_bytes", "Bytes from other nodes",
             counters.bytes_in + sum(link.bytes_in for link in links)),
            ("link_sent_bytes", "Bytes to other nodes",
             counters.bytes_out + sum(link.bytes_out for link in links)),
        ):  # fmt: skip
            yield CounterMetricFamily(f"chappe_{name}", documentation, value=value)
