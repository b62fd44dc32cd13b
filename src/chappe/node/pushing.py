"""A node's part in push: its roles, joined to states, to each other and to devices (P1).

A node alone has all roles in one process and no links. Processes of a deployment each have those
that they were told to have; they find each other in the registry, and share what they know in
stores that all of them see.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from prometheus_client.core import Metric

from chappe.clock import Clock
from chappe.cluster.mesh import Mesh, open_stream
from chappe.cluster.pushlinks import PushLinks
from chappe.cluster.seated import SeatedMembership
from chappe.cluster.tls import link_tls
from chappe.edge.acceptor import Listen, Listener
from chappe.errors import ConfigError, StorageError
from chappe.events.pushrecorder import PushRecorder
from chappe.events.recorder import Recorder
from chappe.ids import PrefixedIds
from chappe.node.circle import Circle
from chappe.node.floor import FileFloor
from chappe.node.options import NodeOptions
from chappe.node.pushkey import seal_key
from chappe.node.roles import ADMIN, COMET, WEB, played
from chappe.push.comet.metrics import metrics_of
from chappe.push.identity import Identity, load_identity
from chappe.push.seal import Seal
from chappe.push.state.states import States
from chappe.push.state.url import NAMES, open_states
from chappe.push.users.desk import UserDesk
from chappe.push.users.desks import Desks
from chappe.registry import errand
from chappe.registry.membership import Member

if TYPE_CHECKING:
    from chappe.edge.device import DevicePort
    from chappe.endpoints.notes import Notes
    from chappe.push.admin.desk import PushDesk
    from chappe.push.comet.comet import Comet
    from chappe.push.webpush.webpush import WebPush

log = structlog.get_logger()

# Where processes of push sit in the registry.
_ROW = "/push/processes"
_FLOOR = "push.floor"
_PORT_MAX = 65_535
# How often a comet, and the desk of users, is told the time.
_BEAT_S = 1.0


class Pushing:
    """The roles of push that one node has."""

    def __init__(
        self,
        options: NodeOptions,
        *,
        name: str,
        data: Path,
        clock: Clock,
        recorder: Recorder,
        circle: Circle | None,
        listen: Listen,
        listen_links: Listen,
        tls: ssl.SSLContext | None,
        notes: Notes | None = None,
    ) -> None:
        self._options = options
        self._name = name
        self._data = data
        self._folder = Path(options.push.folder) if options.push.folder else data
        self._clock = clock
        self._recorder = recorder
        self._circle = circle
        self._listen = listen
        self._listen_links = listen_links
        self._tls = tls
        # Where users of the hub get theirs, if there is a hub.
        self._notes = notes
        self._users: UserDesk | None = None
        self._roles = played(options.roles) & {COMET, WEB, ADMIN}
        self._urls = _urls(options)
        # Why this node takes no part, though it may not have been told not to.
        self.refusal = self._refusal()
        if self.refusal is not None and options.roles:
            raise ConfigError(self.refusal)
        self._states: States | None = None
        self._links: PushLinks | None = None
        self._comet: Comet | None = None
        self._desk: PushDesk | None = None
        self._webpush: WebPush | None = None
        self._listener: Listener | None = None
        self._port: DevicePort | None = None
        self._errands: list[errand.Errand] = []
        # Told what is done no more, should that happen.
        self.on_failed: Callable[[str], None] = _nobody

    def _refusal(self) -> str | None:
        """Why push cannot be shared with the others, if it cannot."""
        circle = self._circle
        if not self._roles or circle is None:
            return None
        if circle.registry.coordination is None:
            return (
                f"push: {circle.registry.kind}:// knows members only, and push needs seats: use "
                "redis:// or zookeeper://"
            )
        own = [name for name, url in self._urls.items() if not url.startswith("redis")]
        if own and circle.registry.kind != "keeper":
            return (
                f"push.states: other nodes do not see this one's {own[0]}: set store, or each of "
                "push.states, to redis://"
            )
        return None

    async def start(self, server: int) -> None:
        """Take part, as the server with that number; raises ConfigError, ClusterError or
        StorageError."""
        if self.refusal is not None:
            log.warning("push.off", reason=self.refusal)
        if self.refusal is not None or not self._roles:
            return
        circle = self._circle
        self._states = states = open_states(self._urls, self._folder, self._clock.wall_ms)
        # Of a keeper, whose secret is new each time, all have the folder in common.
        shared = circle is not None and circle.registry.kind != "keeper"
        seal = Seal(
            seal_key(
                circle.secret if circle and shared else None, self._folder, self._options.push.key
            ),
            os.urandom,
        )
        identity = await load_identity(states.meta, seal, os.urandom)
        ids = PrefixedIds(server, self._clock.wall_ms, FileFloor(self._data / _FLOOR))
        self._links = links = PushLinks(
            asyncio.get_running_loop(), server, self._name, sends=ADMIN in self._roles
        )
        if COMET in self._roles:
            await self._open_comet(states, links, identity, ids, server)
        if self._notes is not None:
            self._open_users(self._notes, states, links, ids, server)
        if not self._roles.isdisjoint((WEB, ADMIN)):
            await self._open_desk(states, links, identity, ids, seal)
        if circle is not None:
            await links.link(self._make_mesh(circle, links))
        self._begin(self._sweep(states, links), "sweeping what expired")

    async def _open_comet(
        self,
        states: States,
        links: PushLinks,
        identity: Identity,
        ids: PrefixedIds,
        server: int,
    ) -> None:
        # Here and not above, as with the desk: a process carries what it is, and nothing else.
        from chappe.edge.device import open_port  # noqa: PLC0415
        from chappe.push.comet.comet import Comet  # noqa: PLC0415

        options, loop = self._options, asyncio.get_running_loop()
        self._comet = comet = Comet(
            server=server,
            states=states,
            comets=links,
            identity=identity,
            ids=ids,
            clock=self._clock,
            entropy=os.urandom,
            recorder=self._recorder,
            soon=loop.call_soon,
            options=options.push.comet,
        )
        await comet.start()
        self._port = port = open_port(comet, loop)
        self._listener = self._listen(port, options.host, options.devices_port, self._tls)
        links.open(comet, self.addresses()["comet"])
        self._begin(self._beat(comet), "telling the comet the time")

    def _open_users(
        self, notes: Notes, states: States, links: PushLinks, ids: PrefixedIds, server: int
    ) -> None:
        self._users = users = UserDesk(
            server=server,
            states=states,
            comets=links,
            hall=notes,
            ids=ids,
            clock=self._clock,
            recorder=PushRecorder(self._recorder),
            redelivery_s=self._options.push.comet.redelivery_s,
        )
        desk = users if self._comet is None else Desks(users, self._comet)
        links.open(desk, self.addresses().get("comet", ""))
        notes.open(users)
        self._begin(self._beat(users), "telling the desk of users the time")

    async def _open_desk(
        self,
        states: States,
        links: PushLinks,
        identity: Identity,
        ids: PrefixedIds,
        seal: Seal,
    ) -> None:
        from chappe.push.admin.desk import PushDesk  # noqa: PLC0415
        from chappe.push.webpush.opening import open_webpush  # noqa: PLC0415

        if self._options.push.webpush.enabled:
            self._webpush = await open_webpush(
                states,
                seal,
                clock=self._clock,
                entropy=os.urandom,
                rng=SystemRandom(),
                recorder=PushRecorder(self._recorder),
                options=self._options.push.webpush,
            )
            self._webpush.start()
        self._desk = PushDesk(
            states,
            links,
            seal,
            identity,
            ids=ids,
            clock=self._clock,
            entropy=os.urandom,
            recorder=PushRecorder(self._recorder),
            webpush=self._webpush,
            options=self._options.push.desk,
        )

    def _begin(self, work: Coroutine[Any, Any, None], what: str) -> None:
        task = errand.run(work, what)
        task.add_done_callback(self._check)
        self._errands.append(task)

    def _check(self, task: errand.Errand) -> None:
        if errand.failed(task):
            self.on_failed(f"push: {task.get_name()} has ended by a mistake: see the log")

    async def _beat(self, told: Comet | UserDesk) -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            told.beat()

    def _make_mesh(self, circle: Circle, links: PushLinks) -> Mesh:
        options, push = self._options.cluster, self._options.push
        port = push.port
        if port is None:
            # The one in between is the usual one of devices.
            port = options.port + 3 if 0 < options.port < _PORT_MAX - 2 else 0
        loop = asyncio.get_running_loop()
        coordination = circle.registry.coordinate("push")
        return Mesh(
            loop=loop,
            clock=self._clock,
            me=Member(name=self._name, incarnation=self._clock.wall_ms(), url=""),
            secret=circle.secret,
            membership=SeatedMembership(coordination, _ROW, self._options.leases.lease_s),
            owner=links,
            dial=open_stream(loop),
            listen=self._listen_links,
            entropy=os.urandom,
            rng=SystemRandom(),
            # Links of nodes and links of push are told apart by what they prove.
            options=msgspec.structs.replace(options, port=port, cluster=f"{options.cluster}/push"),
            tls=link_tls(options.tls) if options.tls is not None else None,
        )

    async def _sweep(self, states: States, links: PushLinks) -> None:
        """Forget what expired, and who was on comets that are gone."""
        missing: dict[int, float] = {}
        while True:
            await asyncio.sleep(self._options.push.sweep_s)
            try:
                await states.sweep()
                if ADMIN in self._roles:
                    missing = await self._clear_gone(states, links, missing)
            except StorageError as error:
                log.warning("push.sweep", reason=str(error))

    async def _clear_gone(
        self, states: States, links: PushLinks, missing: Mapping[int, float]
    ) -> dict[int, float]:
        """Forget who was on comets that are missing for too long; since when which are."""
        now = self._clock.monotonic()
        servers = set(await states.route.servers()) - links.desks()
        if not links.complete:
            # One of those that the registry knows, and this node cannot reach, may be any of them.
            return dict.fromkeys(servers, now)
        since = {server: missing.get(server, now) for server in servers}
        for server in [one for one in since if now - since[one] >= self._options.push.gone_s]:
            count = await states.route.clear(server)
            log.warning("push.comet.gone", server=server, clients=count)
        return since

    def desk(self) -> PushDesk | None:
        """Who answers app servers and devices; nobody while this node takes no part in that."""
        return self._desk

    def addresses(self) -> dict[str, str]:
        """Where devices are taken."""
        if self._listener is None:
            return {}
        scheme = "tls" if self._tls else "tcp"
        host = self._options.host
        where = f"[{host}]" if ":" in host else host
        at = self._options.push.advertise or f"{where}:{self._listener.port}"
        # What is in front of it may speak TLS where it does not.
        return {"comet": at if "://" in at else f"{scheme}://{at}"}

    def metrics(self) -> Iterable[Metric]:
        """What its comet has counted."""
        return () if self._comet is None else metrics_of(self._comet)

    def failures(self) -> list[str]:
        """What is done no more for push, by mistake: it takes a restart."""
        return [f"push: {what}" for what in errand.dead(self._errands)]

    def stop_listening(self) -> None:
        """Take no more devices."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def stop(self) -> None:
        """Send devices elsewhere, settle what they have said, and let go."""
        self.stop_listening()
        if self._notes is not None:
            self._notes.close()
        if self._users is not None:
            await self._users.drain()
        if self._comet is not None:
            await self._comet.drain()
        if self._webpush is not None:
            await self._webpush.close()
        for task in self._errands:
            await errand.end(task)
        if self._links is not None:
            await self._links.stop()
        if self._states is not None:
            try:
                await self._states.close()
            except StorageError as error:
                log.error("push.close", reason=str(error))
        if self._port is not None:
            # The last: devices may have been reading why they were sent away.
            self._port.close()


def _urls(options: NodeOptions) -> Mapping[str, str]:
    """Where each state is kept."""
    # A file that `store` names is the store's own.
    everywhere = "sqlite:" if options.store.startswith("sqlite:") else options.store
    return {name: options.push.states.get(name, everywhere) for name in NAMES}


def _nobody(reason: str) -> None:
    """Nobody wants to know."""
