"""A relay: a node without clients, which has other roles of rooms: proxy, broker, router.

It joins no mesh and keeps no queues. What it listens to is datagrams of rooms, and HTTP for those
who watch it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog
from prometheus_client.core import Metric

from chappe.clock import Clock, SystemClock
from chappe.cluster.options import read_secret
from chappe.edge.acceptor import AcceptCounters, Acceptor
from chappe.edge.http.watch import WatchEdge
from chappe.errors import ClusterError, ConfigError, StorageError
from chappe.node.copying import Copying
from chappe.node.folder import DataFolder
from chappe.node.lifetime import Lifetime, settle_collector
from chappe.node.options import NodeOptions
from chappe.node.parts import ITS_OWN, Parts, kept_parts
from chappe.node.recording import Recording
from chappe.node.roles import check_alone, played
from chappe.node.rooming import Circle, Rooming
from chappe.node.tls import server_context
from chappe.registry.url import open_registry
from chappe.store.url import open_store

log = structlog.get_logger()


class Relay(Lifetime):
    """Roles of rooms, on the running event loop."""

    def __init__(
        self, options: NodeOptions, clock: Clock | None = None, parts: Parts = ITS_OWN
    ) -> None:
        super().__init__()
        self._options = options
        self._parts = parts
        self._clock = clock or SystemClock()
        self._tls = server_context(options.tls) if options.tls else None
        self._listener: Acceptor | None = None
        self._accepts = AcceptCounters()
        if parts.registry is None and options.registry == "memory":
            check_alone(played(options.roles))
        self._data = DataFolder(Path(options.data))
        with self._data.released_on_error():
            self.name = options.name or self._data.name()
            self._recording = Recording(
                options.events,
                dev=options.dev,
                data=self._data.path,
                name=self.name,
                clock=self._clock,
            )
            self.recorder = self._recording.recorder
            self._copying = Copying(options.parquet, self._data.path)
            self._store = parts.store or open_store(options.store, self._data.path)
            self._registry = parts.registry or open_registry(
                options.registry, options.leases, name=self.name
            )
            secret = parts.secret or read_secret(options.cluster.secret)
            self.rooming = Rooming(
                options,
                name=self.name,
                clock=self._clock,
                recorder=self.recorder,
                store=self._store,
                circle=Circle(registry=self._registry, secret=secret),
                shared_store=parts.store is not None or "store" not in kept_parts(options),
            )
        self._http = WatchEdge(
            dev=options.dev,
            options=options.http,
            clock=self._clock,
            recorder=self.recorder,
            accept_counters=self._accepts,
            metrics=self._metrics,
            gather=parts.gather,
        )

    def _metrics(self) -> Iterator[Metric]:
        yield from self._recording.metrics()
        yield from self.rooming.metrics()

    async def start(self) -> None:
        """Take part in rooms and listen; raises ConfigError when a port cannot be had, ClusterError
        or StorageError when the registry or the store cannot."""
        options = self._options
        await self._http.start()
        try:
            await self._recording.open(self._copying, dict, dict)
            await self.rooming.start(0)
            self._listener = Acceptor(
                self._loop,
                self._http.protocol,
                options.host,
                options.http_port,
                self._tls,
                self._accepts,
                None,
                options.handshake_timeout_s,
                shared=self._parts.shared_ports,
            )
        except (ConfigError, ClusterError, StorageError):
            await self._stop()
            raise
        self._recording.begin()
        settle_collector()

    def addresses(self) -> dict[str, str]:
        """Where it is reached: for who watches it, and by datagrams."""
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        scheme = "https" if self._tls else "http"
        listening = self._listener
        watched = {"http": f"{scheme}://{host}:{listening.port}"} if listening else {}
        return watched | self.rooming.addresses()

    def counts(self) -> Iterable[Metric]:
        """What the node has counted, as `/metrics` tells it."""
        return self._http.collector.collect()

    async def drain(self) -> None:
        """Leave the registry, and stop: others take over what is not on its way yet."""
        log.info("drain.begin")
        self._http.draining = True
        await self._stop()
        log.info("drain.end")

    async def _stop(self) -> None:
        await self.rooming.stop()
        if self._listener is not None:
            self._listener.close()
        await self._http.stop()
        await self._recording.stop()
        await self._copying.stop()
        try:
            await self._registry.close()
        except ClusterError as error:
            log.warning("registry.close", reason=str(error))
        try:
            await self._store.close()
        except StorageError as error:
            log.error("store.close", reason=str(error))
        self._data.release()
