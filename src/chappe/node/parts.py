"""What a node may be given, instead of opening it by its options."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.edge.http.probes import Gather
from chappe.node.options import NodeOptions
from chappe.registry.registry import Registry
from chappe.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts that come from outside; what is None the node opens itself. It closes them all."""

    registry: Registry | None = None
    store: Store | None = None
    # Proves the nodes of a cluster to each other.
    secret: bytes | None = None
    # Puts what the workers beside it have counted beside what it has.
    gather: Gather | None = None
    # Whether others listen on the ports of its edges too.
    shared_ports: bool = False


ITS_OWN = Parts()


def kept_parts(options: NodeOptions) -> frozenset[str]:
    """Which parts are embedded, so that the workers need a keeper to share them."""
    embedded = {
        "registry": options.registry == "memory",
        "store": options.store == "memory" or options.store.startswith("sqlite:"),
    }
    return frozenset(name for name, is_embedded in embedded.items() if is_embedded)
