"""A node on a simulated machine: every part that a real one joins, on simulated grounds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.cluster.link import Link
from chappe.cluster.mesh import Mesh, open_stream
from chappe.cluster.options import ClusterOptions, LinkOptions
from chappe.cluster.peer import Peer
from chappe.endpoints.application import Application
from chappe.endpoints.directory import Directory
from chappe.errors import CloseCode
from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.ids import Snowflake
from chappe.message import Message
from chappe.node.neighbourhood import Neighbourhood, Place
from chappe.node.options import NodeOptions
from chappe.queues.record import decode_records
from chappe.registry.membership import Member
from chappe.simulation import Process, SimulatedClock
from chappe.store.store import Store
from chappe.wire.node import Handed
from tests.simulation.cluster_truth import APP, NodeRecorder, TappedConnection

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.cluster_world import ClusterWorld

TCP_PORT = 7402
SECRET = b"a secret that only nodes of this cluster know"
LINK = LinkOptions()
DRAIN_S = 5.0
_RECONNECT_SPREAD_MS = 2000


class MemoryFloor:
    """How far a machine's ids go: what it keeps on its disk."""

    def __init__(self) -> None:
        self.reserved_until = 0

    def load(self) -> int:
        return self.reserved_until

    def store(self, reserved_until: int) -> None:
        self.reserved_until = reserved_until


class Machine:
    """What outlives a run of a node: its disk and its clock."""

    def __init__(self, name: str, store: Store, clock: SimulatedClock) -> None:
        self.name = name
        self.store = store
        self.clock = clock
        self.floor = MemoryFloor()


class SimulatedNeighbourhood(Neighbourhood):
    """A node's place among others, with the simulation's randomness."""

    entropy = staticmethod(bytes)
    random: Random

    def _make_mesh(self, place: Place, rng: object) -> Mesh:
        loop = asyncio.get_running_loop()
        return Mesh(
            loop=loop,
            clock=self._clock,
            me=Member(name=place.name, incarnation=self._clock.wall_ms(), url=""),
            secret=place.secret,
            membership=place.registry.membership,
            owner=self.cluster,
            dial=open_stream(loop),
            listen=place.listen,
            entropy=type(self).entropy,
            rng=type(self).random,
            options=self._options.cluster,
        )


class SimulatedNode:
    """One run of a node: from its start to its drain, or its crash."""

    def __init__(self, world: ClusterWorld, machine: Machine, run: int) -> None:
        self.world = world
        self.machine = machine
        self.name = machine.name
        self.run = run
        self.process = Process(f"{self.name}/{run}")
        self.up = self.crashed = False
        # All that ever came up.
        self.links: list[Link] = []
        self.recorder = NodeRecorder(world.truth, self)
        self.options = NodeOptions(
            dev=True,
            name=self.name,
            cluster=ClusterOptions(host=self.name, allow_plaintext=True, link=LINK),
        )

    async def start(self) -> None:
        """Begin, as `chappe.node.node.Node` does."""
        loop, machine, world = asyncio.get_running_loop(), self.machine, self.world
        clock = machine.clock
        ids = Snowflake(0, clock.wall_ms, machine.floor)
        self.directory = Directory(ids=ids, clock=clock, store=machine.store)
        self.hub = Hub(
            loop=loop,
            clock=clock,
            ids=ids,
            entropy=world.simulation.entropy,
            authenticator=DevAuthenticator(TokenAuthenticator([], clock)),
            recorder=self.recorder,
            options=self.options.hub,
            limits=self.options.limits,
        )
        self.application = Application(self.hub, self.directory, loop, self.name)
        self.neighbourhood = self._neighbourhood()
        self.hub.start()
        await self.directory.load()
        await self.neighbourhood.start()
        self._listener = world.network.listen(
            lambda: TappedConnection(self, world.truth), self.name, TCP_PORT, None
        )
        self.neighbourhood.opened()
        self.up = True

    def _neighbourhood(self) -> Neighbourhood:
        world = self.world

        class Here(SimulatedNeighbourhood):
            entropy = staticmethod(world.simulation.entropy)
            random = world.simulation.stream(f"{self.process.name}/links")

        here = Here(
            self.options,
            hub=self.hub,
            application=self.application,
            store=self.machine.store,
            clock=self.machine.clock,
            recorder=self.recorder,
            name=self.name,
            place=Place(
                name=self.name,
                registry=world.registry.open(self.name),
                secret=SECRET,
                listen=world.network.listen,
            ),
        )
        here.presence._hook = self.recorder
        self.cluster = here.cluster
        self._tap()
        return here

    def _tap(self) -> None:
        """Let the truth know of links, and of queues that move."""
        cluster, truth, loop = self.cluster, self.world.truth, self.world.loop
        up, down = cluster.link_up, cluster.link_down
        hand, take = cluster.handover._hand, cluster.handover.take

        def link_up(link: Link) -> None:
            self.links.append(link)
            up(link)

        def link_down(link: Link, reason: str) -> None:
            truth.downs.append((loop.time(), self.name, link.name))
            down(link, reason)

        def hand_over(peer: Peer, app: str, messages: list[Message]) -> None:
            truth.handed.update(message.id for _, message in messages)
            hand(peer, app, messages)

        def take_on(peer: Peer, op: Handed) -> None:
            for _, record in op.messages:
                (message,) = decode_records(record, 1)
                truth.taken_on.add(message.id)
            take(peer, op)

        cluster.link_up, cluster.link_down = link_up, link_down
        cluster.handover._hand = hand_over
        cluster._handlers[Handed] = take_on
        self.directory.subscribe("queue", lambda record: truth.moves.append(loop.time()))

    async def give_up(self) -> None:
        """End without ever having been up."""
        self.hub.stop()
        await self.neighbourhood.stop()
        await self.directory.close()

    async def drain(self) -> None:
        """End with a goodbye, as a real node does."""
        self.up = False
        self._listener.close()
        self.hub.drain("this node is going away", _RECONNECT_SPREAD_MS)
        deadline = self.world.loop.time() + DRAIN_S
        while self.hub.sessions and (left := deadline - self.world.loop.time()) > 0:
            await self.hub.wait_for_leave(left)
        for session in list(self.hub.sessions.values()):
            self.hub.close(session, CloseCode.SERVICE_RESTART, "this node is going away")
        self.hub.stop()
        await self.neighbourhood.stop()
        await self.directory.close()

    def user_of(self, address: str) -> str:
        """The user at a user's or an avatar's address."""
        if address.startswith("avatar:"):
            return self.application.avatars.user_of(APP, address) or ""
        return address

    def sessions_of(self, user: str) -> tuple[Session, ...]:
        """The sessions of a user here."""
        app = self.hub.apps.get(APP)
        return () if app is None else tuple(app.endpoints.get(user) or ())

    def table(self, name: str) -> set[str]:
        """The addresses in one of the tables of the app here."""
        app = self.hub.apps.get(APP)
        return set() if app is None else set(getattr(app, name))
