"""Which kind of node it is that some options describe."""

from __future__ import annotations

from chappe.node.lifetime import Lifetime
from chappe.node.node import Node
from chappe.node.options import NodeOptions
from chappe.node.parts import ITS_OWN, Parts
from chappe.node.relay import Relay


def open_node(options: NodeOptions, parts: Parts = ITS_OWN) -> Lifetime:
    """Make a node, not started yet; raises ConfigError."""
    return Node(options, parts=parts) if options.has_hub else Relay(options, parts=parts)
