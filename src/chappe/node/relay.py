"""A relay: a node without clients, which has other roles of rooms: proxy, broker, router.

What it listens to is datagrams of rooms, and HTTP for those who watch it.
"""

from __future__ import annotations

import structlog

from chappe.clock import Clock
from chappe.cluster.options import read_secret
from chappe.edge.http.watch import WatchEdge
from chappe.errors import StorageError
from chappe.node.circle import Circle
from chappe.node.hubless import Hubless
from chappe.node.options import NodeOptions
from chappe.node.parts import ITS_OWN, Parts, kept_parts
from chappe.node.roles import check_alone, played
from chappe.node.rooming import Rooming
from chappe.registry.url import open_registry
from chappe.store.url import open_store

log = structlog.get_logger()


class Relay(Hubless):
    """Roles of rooms, on the running event loop."""

    def __init__(
        self, options: NodeOptions, clock: Clock | None = None, parts: Parts = ITS_OWN
    ) -> None:
        if parts.registry is None and options.registry == "memory":
            check_alone(played(options.roles))
        super().__init__(options, clock, parts)
        with self._data.released_on_error():
            self._store = parts.store or open_store(options.store, self._data.path)
            self._registry = parts.registry or open_registry(
                options.registry, options.leases, name=self.name
            )
            secret = parts.secret or read_secret(options.cluster.secret)
            self._part = self.rooming = Rooming(
                options,
                name=self.name,
                clock=self._clock,
                recorder=self.recorder,
                store=self._store,
                circle=Circle(registry=self._registry, secret=secret),
                shared_store=parts.store is not None or "store" not in kept_parts(options),
            )
        self.rooming.on_failed = self.fail
        self._http = WatchEdge(**self._watched())

    async def _take_part(self) -> None:
        await self.rooming.start(0)

    async def _let_go(self) -> None:
        try:
            await self._store.close()
        except StorageError as error:
            log.error("store.close", reason=str(error))
