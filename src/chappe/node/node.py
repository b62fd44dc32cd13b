"""A node: the one place that joins the parts, and their life from start to drain."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import ssl
from pathlib import Path

import structlog

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.clock import Clock, SystemClock
from chappe.edge.acceptor import AcceptCounters, Acceptor, Listen, Listener, ProtocolFactory
from chappe.edge.door import Door
from chappe.edge.http.edge import HttpEdge
from chappe.edge.origin import Origins
from chappe.edge.tcp import TcpConnection
from chappe.edge.websocket import WebSocketEdge
from chappe.errors import CloseCode, ConfigError
from chappe.events.recorder import CountingRecorder
from chappe.hub.hub import Hub
from chappe.ids import Snowflake
from chappe.node.floor import FileFloor
from chappe.node.options import NodeOptions, Tls
from chappe.node.parts import ITS_OWN, Parts

log = structlog.get_logger()

# Sessions come back spread over this time, so that a node that goes does not make a stampede.
_RECONNECT_SPREAD_MS = 2000


class Node:
    """A hub with its edges, on the running event loop."""

    def __init__(
        self,
        options: NodeOptions,
        clock: Clock | None = None,
        listen: Listen | None = None,
        parts: Parts = ITS_OWN,
    ) -> None:
        self._options = options
        self._parts = parts
        self._open_listener = listen or self._accept_on
        self._loop = asyncio.get_running_loop()
        self._clock = clock or SystemClock()
        self._tls = _server_context(options.tls) if options.tls else None
        self._listeners: dict[str, Listener] = {}
        self.accept_counters = AcceptCounters()
        self._door = Door(options.access.connects_per_s, self._clock)
        self.recorder = CountingRecorder()
        tokens = TokenAuthenticator(options.access.keys, self._clock)
        authenticator = DevAuthenticator(tokens) if options.dev else tokens
        origins = Origins(options.access.origins, loopback=options.dev)
        # Last of what may be refused: a folder once taken is held until the node stops.
        self._data = DataFolder(Path(options.data))
        self.hub = Hub(
            loop=self._loop,
            clock=self._clock,
            ids=Snowflake(
                options.number, self._clock.wall_ms, FileFloor(self._data.path / "ids.floor")
            ),
            entropy=os.urandom,
            authenticator=authenticator,
            recorder=self.recorder,
            options=options.hub,
            limits=options.limits,
        )
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
        )
        self._ports: dict[str, int] = {}

    async def start(self) -> None:
        """Listen on every edge; raises ConfigError when a port cannot be had."""
        options = self._options
        await self._http.start()
        self.hub.start()
        try:
            self._listen("websocket", self._websocket.protocol, options.port)
            self._listen("http", self._http.protocol, options.http_port)
            self._listen("tcp", lambda: TcpConnection(self.hub), options.tcp_port)
        except ConfigError:
            await self._stop()
            raise
        # What lives now lives for ever: the collector need not look at it again, and with it out
        # of the way, collections are rare enough not to show in the latency of messages.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)

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

    def addresses(self) -> dict[str, str]:
        """Where each edge is reached."""
        s = "s" if self._tls else ""
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        schemes = {"websocket": f"ws{s}", "http": f"http{s}", "tcp": "tls" if self._tls else "tcp"}
        paths = {"websocket": "/ws"}
        return {
            edge: f"{schemes[edge]}://{host}:{port}{paths.get(edge, '')}"
            for edge, port in self._ports.items()
        }

    async def drain(self) -> None:
        """Take nobody new, send everybody elsewhere, flush, and stop.

        Clients have `drain_s` to leave by themselves before they are closed.
        """
        log.info("drain.begin", sessions=len(self.hub.sessions))
        # HTTP stays until the end: polled sessions collect what they were promised, and whoever
        # asks is told that this node is not ready.
        self._stop_listening("websocket", "tcp")
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
        self.hub.stop()
        self._data.release()


class DataFolder:
    """A data folder held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ConfigError(f"data: {path} is in use by another node") from None
        except OSError as error:
            raise ConfigError(f"data: {error}") from None

    def release(self) -> None:
        os.close(self._lock)


def _server_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.cert, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls: {tls.cert}, {tls.key}: {error}") from None
    return context
