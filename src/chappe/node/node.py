"""A node: the one place that joins the parts, and their life from start to drain."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import SystemRandom

import structlog
from prometheus_client.core import Metric

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.clock import Clock, SystemClock
from chappe.cluster.options import read_secret
from chappe.edge.acceptor import AcceptCounters, Acceptor, Listen, Listener, ProtocolFactory
from chappe.edge.door import Door
from chappe.edge.http.edge import HttpEdge
from chappe.edge.origin import Origins
from chappe.edge.tcp import TcpConnection
from chappe.edge.websocket import WebSocketEdge
from chappe.endpoints.application import Application
from chappe.endpoints.directory import Directory
from chappe.endpoints.notes import Notes
from chappe.endpoints.revocation import DirectoryRevocations
from chappe.errors import CloseCode, ClusterError, ConfigError, StorageError
from chappe.hub.hub import Hub
from chappe.ids import Snowflake
from chappe.node.circle import Circle
from chappe.node.floor import FileFloor
from chappe.node.folder import DataFolder
from chappe.node.lifetime import Lifetime, settle_collector
from chappe.node.neighbourhood import Neighbourhood, Place
from chappe.node.options import NodeOptions
from chappe.node.parts import ITS_OWN, Parts, kept_parts
from chappe.node.pushing import Pushing
from chappe.node.queueing import Queueing, lone_name
from chappe.node.recording import Recording
from chappe.node.rooming import Rooming
from chappe.node.tls import server_context
from chappe.queues.metrics import QueueMetrics
from chappe.registry.url import open_registry
from chappe.store.url import open_store

log = structlog.get_logger()

# Sessions come back spread over this time, so that a node that goes does not make a stampede.
_RECONNECT_SPREAD_MS = 2000


class Node(Lifetime):
    """A hub with its edges, on the running event loop."""

    def __init__(
        self,
        options: NodeOptions,
        clock: Clock | None = None,
        listen: Listen | None = None,
        parts: Parts = ITS_OWN,
    ) -> None:
        super().__init__()
        self._options = options
        self._parts = parts
        self._open_listener = listen or self._accept_on
        self._clock = clock or SystemClock()
        self._tls = server_context(options.tls) if options.tls else None
        self._listeners: dict[str, Listener] = {}
        self.accept_counters = AcceptCounters()
        self._door = Door(options.access.connects_per_s, self._clock)
        origins = Origins(options.access.origins, loopback=options.dev)
        self._data = DataFolder(Path(options.data))
        with self._data.released_on_error():
            place = self._place()
            self.name = place.name if place else lone_name(self._data.path, options.name)
            self._recording = Recording(
                options.events,
                dev=options.dev,
                data=self._data.path,
                name=self.name,
                clock=self._clock,
            )
            self.recorder = self._recording.recorder
            self._store = parts.store or open_store(options.store, self._data.path)
            ids = Snowflake(
                options.number or 0, self._clock.wall_ms, FileFloor(self._data.path / "ids.floor")
            )
            self._directory = Directory(ids=ids, clock=self._clock, store=self._store)
            revocations = DirectoryRevocations(self._directory)
            tokens = TokenAuthenticator(options.access.keys, self._clock, revocations)
        authenticator = DevAuthenticator(tokens) if options.dev else tokens
        self.hub = Hub(
            loop=self._loop,
            clock=self._clock,
            ids=ids,
            entropy=os.urandom,
            authenticator=authenticator,
            recorder=self.recorder,
            options=options.hub,
            limits=options.limits,
        )
        revocations.close_with(self.hub.close_token)
        self._application = Application(
            self.hub, self._directory, self._loop, self.name, options.queue_limits, options.rooms
        )
        self.neighbourhood = Neighbourhood(
            options,
            hub=self.hub,
            application=self._application,
            store=self._store,
            clock=self._clock,
            recorder=self.recorder,
            name=self.name,
            place=place,
        )
        self._queueing = Queueing(
            options,
            hub=self.hub,
            application=self._application,
            cluster=self.neighbourhood.cluster,
            registry=place.registry if place is not None else None,
            data=self._data.path,
            name=self.name,
            clock=self._clock,
            rng=SystemRandom(),
            tail=self._recording.tail,
        )
        with self._data.released_on_error():
            self.rooming = Rooming(
                options,
                name=self.name,
                clock=self._clock,
                recorder=self.recorder,
                store=self._store,
                circle=Circle(registry=place.registry, secret=place.secret) if place else None,
                shared_store=parts.store is not None or "store" not in kept_parts(options),
                lobby=self._application.lobby,
            )
            self.pushing = Pushing(
                options,
                name=self.name,
                data=self._data.path,
                clock=self._clock,
                recorder=self.recorder,
                circle=Circle(registry=place.registry, secret=place.secret) if place else None,
                listen=self._open_listener,
                listen_links=self._accept_links,
                tls=self._tls,
                notes=Notes(self.hub, self._application),
            )
        self._queue_metrics = QueueMetrics(self._application.queues)
        self._websocket = WebSocketEdge(
            self.hub,
            origins,
            loop=self._loop,
            deflate=options.deflate,
            echo=options.dev,
            handshake_timeout_s=options.handshake_timeout_s,
        )
        self._http = HttpEdge(
            self.hub,
            authenticator,
            tokens,
            origins,
            dev=options.dev,
            recorder=self.recorder,
            accept_counters=self.accept_counters,
            addresses=self.addresses,
            options=options.http,
            elsewhere=self.neighbourhood.cluster.visits,
            links=self.neighbourhood.links,
            metrics=self._metrics,
            gather=parts.gather,
            queues=self._queues_of,
            rooms=self.rooming.report,
            push=self.pushing.desk,
            failures=self._failures,
        )
        self.neighbourhood.cluster.visits.serve = self._http.relayed
        self._ports: dict[str, int] = {}
        self.neighbourhood.on_replaced = self._replaced
        self.rooming.on_failed = self.pushing.on_failed = self.fail

    def _replaced(self, by: str) -> None:
        self.fail(f"name: another node has become {by}")

    def _metrics(self) -> Iterator[Metric]:
        """What the parts beside the hub have to tell."""
        if self._options.dev or self._options.queue_metrics:
            yield from self._queue_metrics()
            yield from self._queueing.copying.metrics()
        yield from self._recording.metrics()
        yield from self.rooming.metrics()
        yield from self.pushing.metrics()
        if self._options.dev or self._options.cluster.metrics:
            yield from self.neighbourhood.metrics()

    def _failures(self) -> list[str]:
        """What this node does no more, by mistake."""
        return self.rooming.failures() + self.pushing.failures()

    def _queues_of(self, app: str) -> Iterator[str]:
        """The addresses of an app's queues, wherever they live."""
        return (record.address for record in self._directory.records(app, "queue"))

    def _place(self) -> Place | None:
        """The node's place in a cluster, unless it is alone; raises ConfigError."""
        options, parts = self._options, self._parts
        if parts.registry is None and options.registry == "memory":
            return None
        name = options.name or self._data.name()
        registry = parts.registry or open_registry(options.registry, options.leases, name=name)
        if registry.kind == "kubernetes":
            from chappe.registry.kubernetes import node_name  # noqa: PLC0415, an extra

            # DNS knows addresses only: there, that is what others call a node.
            name = node_name(options.cluster.advertise or options.cluster.host)
        return Place(
            name=name,
            registry=registry,
            secret=parts.secret or read_secret(options.cluster.secret),
            listen=self._accept_links,
            identity=self._data.name(),
        )

    async def start(self) -> None:
        """Remember, join, and listen on every edge; raises ConfigError when a port cannot be had,
        ClusterError or StorageError when the registry or the store cannot."""
        options = self._options
        await self._http.start()
        self.hub.start()
        try:
            queueing = self._queueing
            await self._recording.open(queueing.copying, queueing.positions, queueing.epochs)
            await self._directory.load()
            self._queueing.prepare()
            await self.neighbourhood.start()
            await self._queueing.start()
            # An id: those of a later life are larger, whatever the clock says.
            await self.rooming.start(self.hub.ids.next())
            await self.pushing.start(self.hub.ids.node)
            self._listen("websocket", self._websocket.protocol, options.port)
            self._listen("http", self._http.protocol, options.http_port)
            self._listen("tcp", lambda: TcpConnection(self.hub), options.tcp_port)
            self.neighbourhood.opened()
        except (ConfigError, ClusterError, StorageError):
            await self._stop()
            raise
        self._recording.begin()
        settle_collector()

    def _listen(self, edge: str, factory: ProtocolFactory, port: int) -> None:
        listener = self._open_listener(factory, self._options.host, port, self._tls)
        self._listeners[edge] = listener
        self._ports[edge] = listener.port

    def _accept_on(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None
    ) -> Listener:
        return Acceptor(
            self._loop,
            factory,
            host,
            port,
            tls,
            self.accept_counters,
            self._door,
            self._options.handshake_timeout_s,
            shared=self._parts.shared_ports,
        )

    def _accept_links(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None
    ) -> Listener:
        """Links are not the public's: neither its counters and door nor its shared ports."""
        timeout_s = self._options.handshake_timeout_s
        return Acceptor(self._loop, factory, host, port, tls, AcceptCounters(), None, timeout_s)

    def addresses(self) -> dict[str, str]:
        """Where each edge is reached."""
        s = "s" if self._tls else ""
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        schemes = {"websocket": f"ws{s}", "http": f"http{s}", "tcp": "tls" if self._tls else "tcp"}
        paths = {"websocket": "/ws"}
        return {
            edge: f"{schemes[edge]}://{host}:{port}{paths.get(edge, '')}"
            for edge, port in self._ports.items()
        } | (self.rooming.addresses() | self.pushing.addresses())

    def counts(self) -> Iterable[Metric]:
        """What the node has counted, as `/metrics` tells it."""
        return self._http.collector.collect()

    async def drain(self) -> None:
        """Take nobody new, send everybody elsewhere, flush, and stop.

        Clients have `drain_s` to leave by themselves before they are closed.
        """
        log.info("drain.begin", sessions=len(self.hub.sessions))
        # HTTP stays until the end: polled sessions collect what they were promised, and whoever
        # asks is told that this node is not ready.
        self._stop_listening("websocket", "tcp")
        self.pushing.stop_listening()
        self.hub.drain("this node is going away", _RECONNECT_SPREAD_MS)
        deadline = self._loop.time() + self._options.drain_s
        while self.hub.sessions and (left := deadline - self._loop.time()) > 0:
            await self.hub.wait_for_leave(left)
        for session in list(self.hub.sessions.values()):
            self.hub.close(session, CloseCode.SERVICE_RESTART, "this node is going away")
        await self._stop()
        log.info("drain.end")

    def _stop_listening(self, *edges: str) -> None:
        for edge in edges:
            if (listener := self._listeners.pop(edge, None)) is not None:
                listener.close()

    async def _stop(self) -> None:
        self._stop_listening("websocket", "tcp", "http")
        await self._http.stop()
        # First of what others know of: until they have heard of it, they send messages here.
        await self.rooming.stop()
        await self.pushing.stop()
        self.hub.stop()
        self._application.stop()
        await self._queueing.stop()
        await self.neighbourhood.stop()
        await self._recording.stop()
        await self._queueing.copying.stop()
        for part in (self._directory, self._store):
            try:
                await part.close()
            except StorageError as error:
                log.error("store.close", reason=str(error))
        self._data.release()
