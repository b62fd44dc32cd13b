"""A process that takes part in rooms: joins its roles to the registry, the store and the network.

Everything that happens in one turn of the loop is taken together: roles hear what came, tick if it
is time, hand each other what is for roles of this process, and at the end what is for others leaves
as few datagrams. A process without a registry has one of its own, and no port.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import structlog
from prometheus_client.core import Metric

from chappe.clock import Clock
from chappe.errors import ConfigError
from chappe.events.recorder import Recorder
from chappe.registry.coordination import Coordination
from chappe.registry.memory import MemoryRegistry
from chappe.registry.options import DEFAULTS
from chappe.registry.registry import Registry
from chappe.rooms.cast import Cast
from chappe.rooms.crew import Crew
from chappe.rooms.dispatch import Dispatch
from chappe.rooms.gateway import GOODBYE_S, GOODBYES, Audience, Gateway
from chappe.rooms.linkstats import LinkRow
from chappe.rooms.lookout import Lookout
from chappe.rooms.metrics import metrics_of
from chappe.rooms.options import RoomsOptions
from chappe.rooms.paths import paths_of
from chappe.rooms.port import Port
from chappe.rooms.post import LocalPost, Post
from chappe.rooms.prober import Prober
from chappe.rooms.publisher import Publisher
from chappe.rooms.role import Endpoint
from chappe.rooms.roll import Place, Roll
from chappe.rooms.rows import RowWriter
from chappe.rooms.status import RoomsStatus, status_of
from chappe.rooms.weighing import NamedWeights, Unknown, resolve, set_weights
from chappe.store.store import Store
from chappe.wire.rooms import Card, RoleKind, State

log = structlog.get_logger()

# How often roles of one process may answer each other in one turn of the loop.
ROUNDS_MAX = 16
# How many pulses a process that ends takes messages after it gave up its seats: two beats.
_LINGER_PULSES_MAX = 8
# How long rows may take to be written when a process ends.
_WRITE_S = 5.0


class RoomsProcess:
    """The roles of one process."""

    def __init__(
        self,
        *,
        options: RoomsOptions,
        name: str,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        entropy: Callable[[int], bytes],
        rng: Random,
        recorder: Recorder,
        store: Store,
        coordination: Coordination | None,
        secret: bytes | None,
        cluster: str,
        roles: frozenset[RoleKind],
        audience: Audience | None,
        epoch: int,
        lease_s: float,
    ) -> None:
        if coordination is not None and not secret:
            raise ConfigError("rooms: processes that share a registry need a secret to share")
        if RoleKind.GATEWAY in roles and audience is None:
            raise ConfigError("rooms: a gateway needs an audience")
        self.options = options
        self.name = name
        self.roles = roles
        self.dispatch = Dispatch()
        self.writer = RowWriter(store)
        self.port: Port | None = None
        self.post: LocalPost
        self.crew: Crew
        self.lookout: Lookout
        self._clock = clock
        self._loop = loop
        self._entropy = entropy
        self._rng = rng
        self._recorder = recorder
        self._store = store
        self._coordination = coordination
        self._secret = secret
        self._cluster = cluster
        self._audience = audience
        self._epoch = epoch
        self._lease_s = lease_s
        self._own: Registry | None = None
        self._registry: Coordination
        self._turn_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._changed = asyncio.Event()
        self._begun = self._stopped = False
        # Called once when this process cannot go on as it should; it is looked at each beat.
        self.on_failed: Callable[[], None] = _nobody
        self._check_at = math.inf

    @property
    def endpoint(self) -> Endpoint:
        """Where others send to."""
        return self.post.me

    @property
    def roll(self) -> Roll:
        """Who takes part, as the registry has it."""
        return self.lookout.roll

    @property
    def publisher(self) -> Publisher | None:
        """What takes the messages of this node's clients, if it has any."""
        return self.dispatch.publisher  # type: ignore[return-value]

    @property
    def gateway(self) -> Gateway | None:
        """What has members, if this node has clients."""
        return self.dispatch.gateway  # type: ignore[return-value]

    @property
    def prober(self) -> Prober | None:
        """What tries out links; where a gateway is."""
        return self.dispatch.prober  # type: ignore[return-value]

    async def start(self) -> None:
        """Open the port, make the roles and begin to look around; raises OSError.

        A process that is alone takes messages when this returns; one among others when `settled`
        does.
        """
        coordination = self._registry = await self._join()
        cast = Cast(
            options=self.options,
            post=self.post,
            clock=self._clock,
            name=self.name,
            recorder=self._recorder,
            rng=self._rng,
        )
        self._make_roles(cast)
        host, port = self.endpoint
        self.crew = Crew(
            cast,
            self.dispatch,
            self.roles,
            coordination,
            self._store,
            self.writer,
            Place(name=self.name, host=host, port=port, state=State.INIT),
            lease_s=self._lease_s,
            stir=self._wake,
        )
        self.lookout = Lookout(
            coordination,
            paths_of(self.options),
            independent=self.options.independent_routers,
            lease_s=self._lease_s,
            changed=self._see,
        )
        self._begun = True
        self.writer.start()
        self.lookout.start()
        self._check_at = self._clock.monotonic() + self.options.beat_s
        self._wake()
        if self._own is not None:
            await self.settled()

    async def settled(self) -> None:
        """Wait until this process's own roles run, and its clients can use rooms."""
        while not self.ready:
            self._changed.clear()
            await self._changed.wait()

    @property
    def ready(self) -> bool:
        """Whether this process's own roles run, and its clients can use rooms."""
        able = self.publisher is None or self.publisher.able
        return able and self.crew.running and not self.dead

    @property
    def dead(self) -> list[str]:
        """What of registering, watching and writing has ended by mistake."""
        port = [] if self.port is None else self.port.dead
        return self.crew.dead + self.lookout.dead + self.writer.dead + port

    @property
    def sla(self) -> float:
        """The least share of probes that is to arrive over a link."""
        return self.options.probe.sla

    @property
    def weighers(self) -> tuple[str, ...]:
        """The apps whose administrators may set weights."""
        return self.options.weighers

    def status(self) -> RoomsStatus:
        """How rooms do, as this process sees it."""
        return status_of(self)

    def metrics(self) -> Iterator[Metric]:
        """What roles, post and probes have counted."""
        return metrics_of(self)

    def links(self) -> list[LinkRow]:
        """The links that probes of this process went over."""
        return [] if self.prober is None else self.prober.links()

    async def weigh(self, named: NamedWeights, *, ignore: bool = False) -> Unknown:
        """Set what each proxy and broker is given, and give whoever is not there and was to be
        ignored; else raises BadRequest for those. Raises Overload when the registry is away."""
        weights, unknown = resolve(named, self.roll, ignore=ignore)
        await set_weights(self._registry, paths_of(self.options).weights, weights)
        return unknown

    async def stop(self) -> None:
        """Say goodbye, give up all seats, and end; others have learnt of it before."""
        if self.gateway is not None:
            self.gateway.goodbye(self._clock.monotonic())
        if self.port is not None:
            await self.crew.part(self.options.silence_s)
        await self.crew.stop()
        if self.port is not None and self.crew.stations:
            await self._linger()
        elif self.port is not None:
            await asyncio.sleep(GOODBYES * GOODBYE_S)
        await self.lookout.stop()
        self._turn()
        while self.crew.settle():
            # Each time some of what is news goes to the store.
            pass
        await self.writer.stop(_WRITE_S)
        self._stopped = True
        self._unarm()
        if self.port is not None:
            self.port.close()
        if self._own is not None:
            await self._own.close()

    async def _linger(self) -> None:
        """Go on until all who sent messages here know that they go elsewhere now.

        Who is too busy to look at the registry is waited for, no longer than one who hangs.
        """
        before = -1
        for _ in range(_LINGER_PULSES_MAX):
            carriers = (self.dispatch.proxy, *self.dispatch.brokers.values())
            taken = sum(getattr(role, "messages", 0) for role in carriers)
            if taken == before:
                return
            before = taken
            await asyncio.sleep(self.options.pulse_s)

    async def _join(self) -> Coordination:
        """Have a registry, and a post to whoever is in it."""
        if self._coordination is None:
            self._own = MemoryRegistry(DEFAULTS).open(self.name)
            self._lease_s = DEFAULTS.lease_s
            self.post = LocalPost(me=("", 0), name=self.name, on_waiting=self._wake)
            assert self._own.coordination is not None
            return self._own.coordination
        options = self.options
        self.port = Port(self._receive, options.receive_buffer_bytes)
        await self.port.open(options.host, options.port or 0)
        host, port = self.port.endpoint
        if options.advertise:
            host = await self.port.address_of(options.advertise)
        assert self._secret is not None
        self.post = Post(
            options=options,
            me=(host, port),
            name=self.name,
            secret=self._secret,
            cluster=self._cluster,
            entropy=self._entropy,
            on_waiting=self._wake,
        )
        return self._coordination

    def _make_roles(self, cast: Cast) -> None:
        """Make those that are not registered."""
        if RoleKind.PUBLISHER in self.roles:
            self.dispatch.publisher = cast.publisher()
        if RoleKind.GATEWAY in self.roles:
            assert self._audience is not None
            card = Card(self.name, self._epoch, *self.endpoint)
            gateway = cast.gateway(card, self._audience)
            # A join is told of at the end of this turn of the loop, with all others of it.
            gateway.on_due = self._wake
            self.dispatch.gateway = gateway
            prober = self.dispatch.prober = cast.prober(card, gateway)
            if self.publisher is not None:
                prober.on_quality = self.publisher.balance.probe
                gateway.ask_by(self.publisher.pulses.living)

    def _receive(self, data: bytes, source: Any) -> None:
        """Take a datagram."""
        if not self._begun:
            # Meant for an earlier life: nobody has a ticket of this one yet.
            return
        now = self._clock.monotonic()
        self._recorder.came = self._clock.wall_us()
        try:
            for op, who in self.post.take(data, source, now):
                self.dispatch.hand(op, who, now)
        finally:
            self._wake()

    def _see(self, roll: Roll) -> None:
        now = self._clock.monotonic()
        self.crew.see(roll)
        for role in self.dispatch.roles():
            role.see(roll, now)
        self._wake()

    def _wake(self) -> None:
        """Have a turn at the end of this turn of the loop."""
        if self._turn_handle is None and not self._stopped:
            self._turn_handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_handle = None
        if self._stopped:
            return
        now = self._clock.monotonic()
        self._recorder.came = self._clock.wall_us()
        # Should a role fail, the others go on.
        due = now + self.options.pulse_s
        try:
            self._drain(now)
            due = self._tick(now)
            self.crew.settle()
            if now >= self._check_at:
                self._check(now)
        finally:
            self._send(now)
            self._arm(now, min(due, self._check_at))
        self._changed.set()

    def _check(self, now: float) -> None:
        """See whether all that is to go on does; who was told that it does not need not hear it
        again."""
        self._check_at = now + self.options.beat_s
        if self.dead:
            self._check_at = math.inf
            self.on_failed()

    def _tick(self, now: float) -> float:
        """Let roles do what is due, and give when the next of it is."""
        roles = self.dispatch.roles()
        ticked, least = False, math.inf
        for role in roles:
            due = role.due
            if due <= now:
                role.tick(now)
                ticked = True
            elif due < least:
                least = due
        if not ticked:
            return least
        self._drain(now)
        return min(role.due for role in roles)

    def _drain(self, now: float) -> None:
        """Let roles of this process hear each other; what is left over waits for the next turn."""
        hand = self.dispatch.hand
        for _ in range(ROUNDS_MAX):
            said = self.post.drain_local()
            if not said:
                return
            for op, source in said:
                hand(op, source, now)

    def _send(self, now: float) -> None:
        port = self.port
        for to, data in self.post.flush(now):
            if port is not None:
                port.send(to, data)

    def _arm(self, now: float, due: float) -> None:
        """Have a turn when something is due; a timer that rings before that may stay."""
        due = min(due, self.post.due)
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        if due == math.inf:
            self._timer, self._timer_at = None, math.inf
        else:
            self._timer_at = due
            self._timer = self._loop.call_later(max(0.0, due - now), self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, math.inf
        self._wake()

    def _unarm(self) -> None:
        for handle in (self._timer, self._turn_handle):
            if handle is not None:
                handle.cancel()


def _nobody() -> None:
    """Nobody wants to know."""
