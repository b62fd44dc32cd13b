"""A node's part in rooms: its roles, joined to its clients, from start to goodbye.

A node alone has all roles in one process and no socket. Nodes of a cluster each have those that
they were told to have, and reach each other by datagrams; what they agree on is in the registry.
Where that cannot be, and nobody asked for it, a node serves no rooms and says why: rooms that end
at the node's edge would look as if others had nothing to say.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from random import SystemRandom
from typing import TYPE_CHECKING

import msgspec
import structlog
from prometheus_client.core import Metric

from chappe.clock import Clock
from chappe.edge.http.rooms_admin import RoomsReport
from chappe.edge.origin import LOOPBACK
from chappe.errors import ConfigError
from chappe.events.recorder import Recorder
from chappe.node.circle import Circle
from chappe.node.options import NodeOptions
from chappe.node.roles import HUB, check_alone, kinds_of, played
from chappe.rooms.metrics import metrics_of
from chappe.rooms.options import RoomsOptions
from chappe.rooms.process import RoomsProcess
from chappe.store.store import Store
from chappe.wire.rooms import RoleKind

if TYPE_CHECKING:
    from chappe.endpoints.alarmhook import AlarmHook
    from chappe.rooms.lobby import Lobby

log = structlog.get_logger()

# How long a node that starts waits for what others do for rooms.
_SETTLE_S = 10.0
_PORT_MAX = 65_535


class Rooming:
    """The roles of rooms that one node has."""

    def __init__(
        self,
        options: NodeOptions,
        *,
        name: str,
        clock: Clock,
        recorder: Recorder,
        store: Store,
        circle: Circle | None,
        shared_store: bool,
        lobby: Lobby | None = None,
    ) -> None:
        self._options = options
        self._name = name
        self._clock = clock
        self._recorder = recorder
        self._store = store
        self._circle = circle
        self._shared_store = shared_store
        self._lobby = lobby
        roles = played(options.roles)
        if circle is None:
            check_alone(roles)
        # Why this node serves none.
        self.refusal = _refusal(options, circle)
        if self.refusal is not None and options.roles and roles != {HUB}:
            raise ConfigError(self.refusal)
        self._kinds = kinds_of(roles)
        self.process: RoomsProcess | None = None
        # Told what is done no more, should that happen.
        self.on_failed: Callable[[str], None] = _nobody
        self._hook: AlarmHook | None = None

    async def start(self, epoch: int) -> None:
        """Take part; raises ConfigError, ClusterError or StorageError.

        Of two lives of a node the one with the larger epoch is the later.
        """
        if self.refusal is not None:
            log.warning("rooms.off", reason=self.refusal)
            if self._lobby is not None:
                self._lobby.refusal = f"this node serves no rooms: {self.refusal}"
        if self.refusal is not None or (self._circle is None and not self._with_brokers):
            return
        options, circle = self._options, self._circle
        if circle is not None and not self._shared_store and self._with_brokers:
            log.warning(
                "rooms.store",
                reason="no other node sees this one's store: brokers that start know of rooms "
                "only when gateways tell of them again (rooms.refresh_s)",
            )
        process = RoomsProcess(
            options=reached_at(options) if circle is not None else options.rooms,
            name=self._name,
            clock=self._clock,
            loop=asyncio.get_running_loop(),
            entropy=os.urandom,
            rng=SystemRandom(),
            recorder=self._recorder,
            store=self._store,
            coordination=circle.registry.coordination if circle is not None else None,
            secret=circle.secret if circle is not None else None,
            cluster=options.cluster.cluster,
            roles=self._kinds,
            audience=self._lobby,
            epoch=epoch,
            lease_s=options.leases.lease_s,
        )
        try:
            await process.start()
        except OSError as error:
            where = f"{process.options.host}:{process.options.port}"
            raise ConfigError(f"rooms.port: cannot take datagrams at {where}: {error}") from None
        self.process = process
        process.on_failed = self._failed
        if self._lobby is not None and process.publisher is not None:
            self._lobby.open(process.publisher, process.gateway)
        self._tell_alarms(process)
        await self._settle(process)

    def _tell_alarms(self, process: RoomsProcess) -> None:
        probe = self._options.rooms.probe
        if process.prober is None or not probe.webhook:
            return
        # Only then: the HTTP client takes longer to import than the rest of it to start.
        from chappe.endpoints.alarmhook import AlarmHook  # noqa: PLC0415

        self._hook = AlarmHook(
            probe, clock=self._clock, rng=SystemRandom(), recorder=self._recorder
        )
        process.prober.survey.alarms.hook = self._hook.tell

    async def _settle(self, process: RoomsProcess) -> None:
        """Wait a little until this node's roles work; those of others may come later."""
        try:
            async with asyncio.timeout(_SETTLE_S):
                await process.settled()
        except TimeoutError:
            log.warning("rooms.unsettled", reason="roles that this node needs are not there yet")

    @property
    def _with_brokers(self) -> bool:
        return RoleKind.BROKER in self._kinds

    def addresses(self) -> dict[str, str]:
        """Where datagrams are taken; nowhere, if nobody else is there to send any."""
        if self.process is None or self._circle is None:
            return {}
        host, port = self.process.endpoint
        return {"rooms": f"udp://[{host}]:{port}" if ":" in host else f"udp://{host}:{port}"}

    def metrics(self) -> Iterable[Metric]:
        """What the roles have counted; links name nodes, which not everybody is to know."""
        if self.process is None:
            return ()
        options = self._options
        return metrics_of(self.process, links=options.dev or options.cluster.metrics)

    def report(self) -> RoomsReport | None:
        """Who tells administrators of rooms; nobody while this node takes no part."""
        return self.process

    def _failed(self) -> None:
        self.on_failed(f"{', '.join(self.failures())} has ended by a mistake: see the log")

    def failures(self) -> list[str]:
        """What is done no more for rooms, by mistake: it takes a restart."""
        return [] if self.process is None else [f"rooms: {what}" for what in self.process.dead]

    async def stop(self) -> None:
        """Say goodbye, so that nothing is sent here any more, and let go."""
        if self.process is not None:
            await self.process.stop()
        if self._hook is not None:
            await self._hook.close()


def _nobody(reason: str) -> None:
    """Nobody wants to know."""


def reached_at(options: NodeOptions) -> RoomsOptions:
    """The options of rooms as a node among others has them: where nothing is said of its datagrams,
    they go where its links do, to the next port."""
    rooms, cluster = options.rooms, options.cluster
    if rooms.port is None:
        port = cluster.port + 1 if 0 < cluster.port < _PORT_MAX else 0
        rooms = msgspec.structs.replace(rooms, port=port)
    if rooms.host not in LOOPBACK or cluster.host in LOOPBACK:
        return rooms
    advertise = rooms.advertise or cluster.advertise
    return msgspec.structs.replace(rooms, host=cluster.host, advertise=advertise)


def _refusal(options: NodeOptions, circle: Circle | None) -> str | None:
    """Why rooms cannot be shared with the others, if they cannot."""
    if circle is None:
        return None
    if circle.registry.coordination is None:
        return (
            f"rooms: {circle.registry.kind}:// knows members only, and rooms need values and "
            "seats: use redis:// or zookeeper://"
        )
    allowed = options.rooms.allow_plaintext or options.cluster.allow_plaintext
    if reached_at(options).host not in LOOPBACK and not allowed:
        return (
            f"rooms.allow_plaintext: {options.cluster.host} can be reached from outside, and "
            "datagrams are authenticated, not hidden; say whether that is enough"
        )
    return None
