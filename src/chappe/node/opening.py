"""Which kind of node it is that some options describe.

Each kind is imported by who needs it: a comet is to be small.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

from chappe.node.lifetime import Lifetime
from chappe.node.options import NodeOptions
from chappe.node.parts import ITS_OWN, Parts
from chappe.node.roles import COMET, played

# A third of what a comet is made of, and not imported before one of these is spoken to.
_REDIS = ("chappe.push.state.redis", "chappe.registry.redis", "chappe.store.redis_server")


def open_node(options: NodeOptions, parts: Parts = ITS_OWN) -> Lifetime:
    """Make a node, not started yet; raises ConfigError."""
    return _kind_of(options)(options, parts=parts)


def load(options: NodeOptions) -> None:
    """Import what such a node is made of: whoever is forked from then on shares it."""
    _kind_of(options)
    if COMET in played(options.roles):
        import_module("chappe.edge.device")
    urls = (options.registry, options.store, *options.push.states.values())
    if options.has_push and any(url.startswith("redis") for url in urls):
        # Without it installed, whoever opens one of these says so.
        with suppress(ImportError):
            for name in _REDIS:
                import_module(name)


def _kind_of(options: NodeOptions) -> Callable[..., Lifetime]:
    if options.has_hub:
        from chappe.node.node import Node  # noqa: PLC0415

        return Node
    if options.has_push:
        from chappe.node.pushnode import PushNode  # noqa: PLC0415

        return PushNode
    from chappe.node.relay import Relay  # noqa: PLC0415

    return Relay
