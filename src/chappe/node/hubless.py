"""A node without a hub: what all such have in common, whatever part they play.

It joins no mesh of nodes and keeps no queues. It has a data folder, records what happens, finds the
others in the registry, and has HTTP at least for those who watch it.
"""

from __future__ import annotations

import ssl
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import structlog
from prometheus_client.core import Metric

from chappe.clock import Clock, SystemClock
from chappe.edge.acceptor import AcceptCounters, Acceptor, Listener, ProtocolFactory
from chappe.edge.door import Door
from chappe.edge.http.watch import WatchEdge
from chappe.errors import ClusterError, ConfigError, StorageError
from chappe.node.copying import Copying
from chappe.node.folder import DataFolder
from chappe.node.lifetime import Lifetime, settle_collector
from chappe.node.options import NodeOptions
from chappe.node.parts import ITS_OWN, Parts
from chappe.node.recording import Recording
from chappe.node.tls import server_context
from chappe.registry.registry import Registry

log = structlog.get_logger()


class Playing(Protocol):
    """The part that such a node plays."""

    def addresses(self) -> dict[str, str]:
        """Where it is reached."""
        ...

    def metrics(self) -> Iterable[Metric]:
        """What it has counted."""
        ...

    def failures(self) -> list[str]:
        """What it does no more, by mistake."""
        ...

    async def stop(self) -> None:
        """Say goodbye, and let go."""
        ...


class Hubless(Lifetime):
    """What is around a part, on the running event loop; which part that is, and what HTTP it has,
    whoever is made of it says."""

    _part: Playing
    _http: WatchEdge

    def __init__(
        self, options: NodeOptions, clock: Clock | None = None, parts: Parts = ITS_OWN
    ) -> None:
        super().__init__()
        self._options = options
        self._parts = parts
        self._clock = clock or SystemClock()
        self._tls = server_context(options.tls) if options.tls else None
        self._listener: Listener | None = None
        self._accepts = AcceptCounters()
        self._door = Door(options.access.connects_per_s, self._clock)
        self._registry: Registry | None = None
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

    @abstractmethod
    async def _take_part(self) -> None:
        """Begin; raises ConfigError, ClusterError or StorageError."""

    @abstractmethod
    async def _let_go(self) -> None:
        """Let go of what it had for its part, which has ended."""

    def _watched(self) -> dict[str, Any]:
        """What whoever is watched over HTTP has to be told."""
        return {
            "dev": self._options.dev,
            "options": self._options.http,
            "clock": self._clock,
            "recorder": self.recorder,
            "accept_counters": self._accepts,
            "metrics": self._metrics,
            "failures": self._part.failures,
            "gather": self._parts.gather,
        }

    def _metrics(self) -> Iterator[Metric]:
        yield from self._recording.metrics()
        yield from self._part.metrics()

    async def start(self) -> None:
        """Play its part and listen; raises ConfigError when a port cannot be had, ClusterError or
        StorageError when the registry or the store cannot."""
        options = self._options
        await self._http.start()
        try:
            await self._recording.open(self._copying, dict, dict)
            await self._take_part()
            self._listener = self._accept_on(
                self._http.protocol, options.host, options.http_port, self._tls
            )
        except (ConfigError, ClusterError, StorageError):
            await self._stop()
            raise
        self._recording.begin()
        settle_collector()

    def _accept_on(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None
    ) -> Listener:
        return Acceptor(
            self._loop,
            factory,
            host,
            port,
            tls,
            self._accepts,
            self._door,
            self._options.handshake_timeout_s,
            shared=self._parts.shared_ports,
        )

    def addresses(self) -> dict[str, str]:
        """Where it is reached: over HTTP, and as its part is."""
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        scheme = "https" if self._tls else "http"
        listening = self._listener
        asked = {"http": f"{scheme}://{host}:{listening.port}"} if listening else {}
        return asked | self._part.addresses()

    def counts(self) -> Iterable[Metric]:
        """What the node has counted, as `/metrics` tells it."""
        return self._http.collector.collect()

    async def drain(self) -> None:
        """Leave, and stop: others take over what is not on its way yet."""
        log.info("drain.begin")
        self._http.draining = True
        await self._stop()
        log.info("drain.end")

    async def _stop(self) -> None:
        await self._part.stop()
        if self._listener is not None:
            self._listener.close()
        await self._http.stop()
        await self._recording.stop()
        await self._copying.stop()
        await self._let_go()
        if self._registry is not None:
            try:
                await self._registry.close()
            except ClusterError as error:
                log.warning("registry.close", reason=str(error))
        self._data.release()
