"""A node of push without a hub: comet, web, admin, or several of them (P1).

One that is a comet and nothing else carries no FastAPI: it has very many small connections, and all
else is memory that they could have.
"""

from __future__ import annotations

import ssl

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.clock import Clock
from chappe.cluster.options import read_secret
from chappe.edge.acceptor import AcceptCounters, Acceptor, Listener, ProtocolFactory
from chappe.edge.http.watch import WatchEdge
from chappe.edge.origin import Origins
from chappe.ids import Snowflake
from chappe.node.circle import Circle
from chappe.node.hubless import Hubless
from chappe.node.number import NodeNumber
from chappe.node.options import NodeOptions
from chappe.node.parts import ITS_OWN, Parts
from chappe.node.pushing import Pushing
from chappe.node.roles import ADMIN, WEB, check_alone, played
from chappe.registry.url import open_registry


class PushNode(Hubless):
    """Roles of push, on the running event loop."""

    def __init__(
        self, options: NodeOptions, clock: Clock | None = None, parts: Parts = ITS_OWN
    ) -> None:
        super().__init__(options, clock, parts)
        self._number: NodeNumber | None = None
        self._ids = Snowflake(options.number or 0, self._clock.wall_ms)
        with self._data.released_on_error():
            self._part = self.pushing = Pushing(
                options,
                name=self.name,
                data=self._data.path,
                clock=self._clock,
                recorder=self.recorder,
                circle=self._maybe_circle(),
                listen=self._accept_on,
                listen_links=self._accept_links,
                tls=self._tls,
            )
            self.pushing.on_failed = self.fail
            self._http = self._make_http()

    def _maybe_circle(self) -> Circle | None:
        """Those whom it shares push with, unless it is alone; raises ConfigError."""
        options, parts = self._options, self._parts
        if parts.registry is None and options.registry == "memory":
            check_alone(played(options.roles))
            return None
        self._registry = parts.registry or open_registry(
            options.registry, options.leases, name=self.name
        )
        secret = parts.secret or read_secret(options.cluster.secret)
        self._number = NodeNumber(self._registry, self.name, options.number, self._ids)
        return Circle(registry=self._registry, secret=secret)

    def _make_http(self) -> WatchEdge:
        options, roles = self._options, played(self._options.roles)
        if roles.isdisjoint((WEB, ADMIN)):
            return WatchEdge(**self._watched())
        from chappe.edge.http.push_edge import PushEdge  # noqa: PLC0415, not for comets

        tokens = TokenAuthenticator(options.access.keys, self._clock)
        return PushEdge(
            DevAuthenticator(tokens) if options.dev else tokens,
            self.pushing.desk,
            web=WEB in roles,
            admin=ADMIN in roles,
            origins=Origins(options.access.origins, loopback=options.dev),
            **self._watched(),
        )

    async def _take_part(self) -> None:
        if self._number is not None:
            await self._number.claim()
        await self.pushing.start(self._ids.node)

    def _accept_links(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None
    ) -> Listener:
        """Links are not the public's: neither its counters and door nor its shared ports."""
        timeout_s = self._options.handshake_timeout_s
        return Acceptor(self._loop, factory, host, port, tls, AcceptCounters(), None, timeout_s)

    async def _let_go(self) -> None:
        if self._number is not None:
            await self._number.release()
