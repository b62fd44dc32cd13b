"""A node's place among others: what joins it to a cluster, from start to goodbye."""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom
from typing import TYPE_CHECKING

import structlog

from chappe.clock import Clock
from chappe.cluster.cluster import Cluster
from chappe.cluster.copy import RouteCopy
from chappe.cluster.mesh import Mesh, open_stream
from chappe.cluster.metrics import ClusterMetrics
from chappe.cluster.peer import Peer
from chappe.cluster.tls import link_tls
from chappe.edge.acceptor import Listen
from chappe.edge.http.nodes import LinkView
from chappe.endpoints.application import Application
from chappe.endpoints.presence import Presence
from chappe.errors import ClusterError, ConfigError, StorageError
from chappe.events.recorder import Recorder
from chappe.hub.hub import Hub
from chappe.node.number import NodeNumber
from chappe.node.options import NodeOptions
from chappe.registry.membership import Member, Members
from chappe.registry.registry import Registry
from chappe.store.store import Store

if TYPE_CHECKING:
    from chappe.endpoints.hook import Hooks

log = structlog.get_logger()

# Few enough to be short, and enough that no two nodes of a cluster have the same.
_TAG_DIGITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a node has to be given to live among others."""

    name: str
    registry: Registry
    secret: bytes
    listen: Listen
    # Of the data folder; none if it has no other run to be told from.
    identity: str = ""

    def tag_of(self, name: str) -> str:
        """What ids show of a node: nodes make it from its name, nobody gets the name back."""
        return hmac.digest(self.secret, name.encode(), "sha256").hex()[:_TAG_DIGITS]


class Neighbourhood:
    """Presence, routes and, when there is a place for it in a cluster, the links to other nodes."""

    def __init__(
        self,
        options: NodeOptions,
        *,
        hub: Hub,
        application: Application,
        store: Store,
        clock: Clock,
        recorder: Recorder,
        name: str,
        place: Place | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._options = options
        self._hub = hub
        self._clock = clock
        self._store = store
        self._place = place
        self.cluster = Cluster(
            hub=hub,
            application=application,
            loop=loop,
            name=name,
            traffic=options.traffic,
            tag_of=place.tag_of if place is not None else _untagged,
        )
        rng = SystemRandom()
        self._hooks: Hooks | None = None
        if options.hooks:
            # Only then: the HTTP client takes longer to import than the rest of it to start.
            from chappe.endpoints.hook import Hooks  # noqa: PLC0415

            self._hooks = Hooks(options.hooks, node=name, clock=clock, rng=rng, recorder=recorder)
        self.presence = Presence(
            timer=loop,
            clock=clock,
            recorder=recorder,
            is_home=self.cluster.is_home,
            hook=self._hooks,
            options=options.presence,
        )
        self._copy = RouteCopy(store, name)
        # Who is said to be on nodes whose links are not up yet.
        self._hints: dict[tuple[str, str], tuple[str, ...]] = {}
        # Who was here when this node ended.
        self._mine: list[tuple[str, str]] = []
        self._tasks: list[asyncio.Task[None]] = []
        # The other members, as they were when last looked at while starting.
        self._awaited: set[str] = set()
        # Told the name of this node when another run has taken it.
        self.on_replaced: Callable[[str], None] | None = None
        self._number: NodeNumber | None = None
        self.mesh: Mesh | None = None
        if place is not None:
            self._number = NodeNumber(place.registry, place.name, options.number, hub.ids)
            self.mesh = self._make_mesh(place, rng)
            self.mesh.on_beat = recorder.link_beat

        self.metrics = ClusterMetrics(hub, self.cluster, self.mesh)

    def _make_mesh(self, place: Place, rng: SystemRandom) -> Mesh:
        options = self._options.cluster
        return Mesh(
            loop=asyncio.get_running_loop(),
            clock=self._clock,
            me=Member(
                name=place.name,
                incarnation=self._clock.wall_ms(),
                url="",
                identity=place.identity,
            ),
            secret=place.secret,
            membership=place.registry.membership,
            owner=self.cluster,
            dial=open_stream(asyncio.get_running_loop()),
            listen=place.listen,
            entropy=os.urandom,
            rng=rng,
            options=options,
            tls=link_tls(options.tls) if options.tls is not None else None,
        )

    async def start(self) -> None:
        """Remember, join, and wait a little for the others; raises ClusterError, ConfigError or
        StorageError."""
        loop = asyncio.get_running_loop()
        # Before anything is touched that may be another node's.
        await self._check_name()
        self._mine, self._hints = await self._copy.load()
        self.cluster.forwarding.expected = self._expected
        self.cluster.routes.audience = self.presence
        self.cluster.routes.notebook = self._copy
        self.cluster.start()
        self.cluster.absences.watch = self.presence
        self._copy.start()
        if self._number is not None:
            await self._number.claim()
        if self.mesh is not None:
            await self.mesh.start()
            self._tasks.append(loop.create_task(self._watch_name()))
            await self._meet()
        self._tasks.append(loop.create_task(self._forget_hints()))

    async def _check_name(self) -> None:
        """Leave a name to a node that lives: an earlier run from the same folder does not."""
        place = self._place
        if place is None or not place.identity or place.registry.kind == "kubernetes":
            return
        try:
            async with asyncio.timeout(self._options.leases.timeout_s):
                members = await anext(place.registry.membership.watch())
        except TimeoutError:
            return  # joining will say what is wrong with the registry
        holder = members.get(place.name)
        if holder is not None and holder.identity not in ("", place.identity):
            raise ConfigError(
                f"name: {place.name} is the node at {holder.url}; if that has just died, its "
                f"name is free in {self._options.leases.lease_s:.0f} s"
            )

    def opened(self) -> None:
        """The edges listen: whoever was here when this node ended, and does not come back, is gone.

        Not before: nobody could come back in time.
        """
        mine, self._mine = self._mine, []
        for app, address in mine:
            if not self.cluster.absences.online(app, address):
                self.presence.offline(app, address)
        self.cluster.absences.tell(self.cluster.peers)

    async def _watch_name(self) -> None:
        """Notice that another run has this node's name: two of them would confuse the others."""
        assert self._place is not None
        await self._place.registry.membership.replaced()
        log.error("cluster.replaced", name=self.name)
        if self.on_replaced is not None:
            self.on_replaced(self.name)

    async def _meet(self) -> None:
        """Wait until the others are linked and have told who is there.

        No longer than a dead one among them is still a member. Raises ClusterError if there are
        others then, and not one of them is linked: whoever comes here would meet nobody.
        """
        leases, link = self._options.leases, self._options.cluster.link
        # A lease that ran out is seen when the registry is looked at next.
        wait_s = leases.lease_s + leases.poll_s + link.heartbeat_s
        try:
            async with asyncio.timeout(wait_s):
                await self._meet_others()
            return
        except TimeoutError:
            pass
        linked = sorted(peer.name for peer in self.cluster.peers)
        missing = sorted(self._awaited.difference(linked))
        if missing and not linked:
            raise ClusterError(
                f"none of the other nodes can be linked: {', '.join(missing)}; do they have the "
                "same cluster.secret, and can this node and they reach each other's links "
                "(cluster.host, cluster.port, cluster.advertise, cluster.tls)?"
            )
        log.warning("cluster.incomplete", linked=linked, missing=missing)

    async def _meet_others(self) -> None:
        """Wait until all members are linked, whoever comes and goes meanwhile."""
        assert self._place is not None
        views = self._place.registry.membership.watch()
        self._awaited = self._others(await anext(views))
        met = asyncio.ensure_future(self.cluster.wait_for(self._awaited))
        view = asyncio.ensure_future(anext(views))
        try:
            while not met.done():
                await asyncio.wait((view, met), return_when=asyncio.FIRST_COMPLETED)
                if view.done() and not met.done():
                    met.cancel()
                    self._awaited = self._others(view.result())
                    met = asyncio.ensure_future(self.cluster.wait_for(self._awaited))
                    view = asyncio.ensure_future(anext(views))
        finally:
            met.cancel()
            view.cancel()
            await asyncio.wait((view, met))

    def _others(self, members: Members) -> set[str]:
        """The members that are sure to be nodes: a name that DNS made up is none."""
        return {
            name for name, member in members.items() if member.incarnation and name != self.name
        }

    def links(self) -> list[LinkView]:
        """The links to other nodes, as administrators see them."""
        now = asyncio.get_running_loop().time()
        return [_view(peer, now) for peer in self.cluster.peers]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.cluster.name

    def _expected(self, app: str, user: str) -> bool:
        nodes = self._hints.get((app, user), ())
        return any(self.cluster.peer(node) is None for node in nodes)

    async def _forget_hints(self) -> None:
        """Once everybody who lives must have linked, what the others wrote has had its use."""
        if not self._hints:
            return
        await asyncio.sleep(self._options.cluster.link.silence_s)
        gone = {node for nodes in self._hints.values() for node in nodes}
        self._hints = {}
        for node in sorted(gone):
            if self.mesh is not None and self.cluster.peer(node) is None:
                try:
                    await self._copy.forget(node)
                except StorageError as error:
                    log.warning("routes.forget", node=node, reason=str(error))

    async def stop(self) -> None:
        """Say goodbye, and let go of everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        alone = not self.cluster.peers
        if self.mesh is not None:
            self.cluster.leave()
            await self.mesh.stop()
        self.cluster.stop()
        self.presence.stop()
        if self._hooks is not None:
            await self._hooks.close()
        leaving = [(app, address) for app, address, _ in self.presence.leaving()]
        await self._copy.stop(leaving if alone else ())
        if self._number is not None:
            await self._number.release()
        if self._place is not None:
            try:
                await self._place.registry.close()
            except ClusterError as error:
                log.warning("registry.close", reason=str(error))


def _untagged(name: str) -> str:
    """A node alone need not be told apart from others."""
    return ""


def _view(peer: Peer, now: float) -> LinkView:
    link = peer.link
    offset_ms = link.clock_offset_ms
    trip_s = link.round_trip_s
    return LinkView(
        peer=peer.name,
        up_s=round(now - (link.up_since or now), 3),
        round_trip_ms=None if trip_s is None else round(trip_s * 1000, 3),
        clock_offset_ms=None if offset_ms is None else round(offset_ms, 3),
        bytes_in=link.bytes_in,
        bytes_out=link.bytes_out,
        waiting_bytes=peer.waiting_bytes,
        pending=len(peer.pending),
    )
