"""The cast: makes the roles of a process."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from chappe.clock import Clock
from chappe.events.recorder import Recorder
from chappe.rooms.broker import Broker
from chappe.rooms.gateway import Audience, Gateway
from chappe.rooms.independent import IndependentRouter
from chappe.rooms.options import RoomsOptions
from chappe.rooms.prober import Prober
from chappe.rooms.proxy import Proxy
from chappe.rooms.publisher import Publisher
from chappe.rooms.role import Post
from chappe.rooms.router import Router
from chappe.wire.rooms import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """All that roles are made of."""

    options: RoomsOptions
    post: Post
    clock: Clock
    name: str
    recorder: Recorder
    rng: Random

    def publisher(self) -> Publisher:
        """Make the role that takes messages of this node's clients."""
        return Publisher(
            options=self.options,
            post=self.post,
            clock=self.clock,
            name=self.name,
            recorder=self.recorder,
            rng=self.rng,
        )

    def proxy(self) -> Proxy:
        """Make the entry for messages."""
        return Proxy(
            options=self.options,
            post=self.post,
            clock=self.clock,
            name=self.name,
            recorder=self.recorder,
            rng=self.rng,
        )

    def broker(self, partition: int) -> Broker:
        """Make a replica of a partition."""
        return Broker(
            options=self.options,
            post=self.post,
            clock=self.clock,
            name=self.name,
            recorder=self.recorder,
            partition=partition,
        )

    def router(self, partition: int) -> Router | IndependentRouter:
        """Make a router; partitions are those of independent ones."""
        if not self.options.independent_routers:
            return Router(
                options=self.options,
                post=self.post,
                clock=self.clock,
                name=self.name,
                recorder=self.recorder,
            )
        return IndependentRouter(
            options=self.options,
            post=self.post,
            clock=self.clock,
            name=self.name,
            recorder=self.recorder,
            partition=partition,
        )

    def gateway(self, card: Card, audience: Audience) -> Gateway:
        """Make the role that has members."""
        return Gateway(
            options=self.options,
            post=self.post,
            clock=self.clock,
            name=self.name,
            card=card,
            audience=audience,
            recorder=self.recorder,
        )

    def prober(self, card: Card, gateway: Gateway) -> Prober:
        """Make the role that tries out links."""
        return Prober(
            options=self.options,
            post=self.post,
            clock=self.clock,
            name=self.name,
            card=card,
            recorder=self.recorder,
            gateway=gateway,
        )
