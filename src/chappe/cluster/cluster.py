"""A cluster, seen from one of its nodes: what links bring is handed to whoever it is for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
import structlog

from chappe.cluster.absence import Absences
from chappe.cluster.carriage import Carriage
from chappe.cluster.forwarding import Forwarding
from chappe.cluster.handover import Handover
from chappe.cluster.homes import Homes
from chappe.cluster.link import Link
from chappe.cluster.options import Traffic
from chappe.cluster.peer import Peer
from chappe.cluster.publishing import Publishing
from chappe.cluster.routes import Routes
from chappe.cluster.settling import Settling
from chappe.cluster.visits import Visits
from chappe.cluster.watching import Watching
from chappe.endpoints.application import Application
from chappe.endpoints.record import Record, encode_record
from chappe.errors import RemoteProtocolError, RequestError
from chappe.hub.answer import Answer, RequestAnswer, SilentAnswer
from chappe.hub.app import App
from chappe.hub.fanout import Relay
from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.message import Message
from chappe.wire import node as wire
from chappe.wire.ops import Ack, Cancel, Nack, Op, PlacedOp, Respond, Subscribe

log = structlog.get_logger()

_read_record = msgspec.msgpack.Decoder(Record).decode
# How often what waits for others is looked at.
_SWEEP_S = 0.5
# The ops whose messages came from the node that says them: what others lead to came from here.
_BRINGING = frozenset({wire.Forward, wire.ToHome, wire.FromHome})


class Cluster:
    """The other nodes, as the application layer and the mesh see them."""

    def __init__(
        self,
        *,
        hub: Hub,
        application: Application,
        loop: asyncio.AbstractEventLoop,
        name: str,
        traffic: Traffic | None = None,
        tag_of: Callable[[str], str] = str,
    ) -> None:
        self._hub = hub
        self._application = application
        self._loop = loop
        self._traffic = traffic or Traffic()
        self.name = name
        self._tag_of = tag_of
        self.settle_s = self._traffic.settle_s
        timeout_s = self._traffic.answer_timeout_s
        self._peers: dict[Link, Peer] = {}
        self._names: dict[str, Peer] = {}
        # By what ids end or begin with that everybody sees: a node's name is not their concern.
        self._tags: dict[str, Peer] = {}
        self._dirty: dict[Peer, None] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._changed: asyncio.Event = asyncio.Event()
        self.homes = Homes(name)
        self.routes = Routes(hub, loop)
        self.absences = Absences(hub)
        self.forwarding = Forwarding(hub, application.users, self.routes, loop.time, timeout_s)
        self.forwarding.peers = self._peers.values
        self.settling = Settling(hub, self._home, loop, name, self._traffic.settle_s)
        self.publishing = Publishing(
            hub, application.topics, self.homes, self.settling, loop.time, timeout_s
        )
        self.watching = Watching(
            hub, application.topics, self.homes, self.settling, loop, timeout_s
        )
        self.carriage = Carriage(
            hub, self._home, application.services.unprovide, loop, timeout_s, tag_of
        )
        # Whether this node is about to go: it takes nothing on any more.
        self.leaving = False
        self.visits = Visits(self.peer, self._tags.get)
        self.handover = Handover(hub, application, self.homes, name, self.peer)
        self.routes.on_found = self.forwarding.online
        # Told the name of a node whose link came up, or went down.
        self.on_up: Callable[[str], None] | None = None
        self.on_down: Callable[[str], None] | None = None
        self._handlers = self._table()

    def _table(self) -> dict[type, Callable[[Peer, Any], None]]:
        forwarding, watching, carriage = self.forwarding, self.watching, self.carriage
        return {
            wire.Forward: forwarding.serve,
            wire.Taken: forwarding.taken,
            wire.Returned: forwarding.returned,
            wire.Find: forwarding.find,
            wire.Found: forwarding.found,
            wire.ToHome: self.publishing.serve,
            wire.FromHome: watching.serve_fan_out,
            wire.Watch: watching.serve_watch,
            wire.Unwatch: watching.serve_unwatch,
            wire.Watched: watching.watched,
            wire.Recover: watching.serve_recover,
            wire.Recovered: lambda peer, op: watching.recovered(op),
            wire.Routes: self.routes.read_page,
            wire.Changed: self.routes.read_changes,
            wire.Introduce: carriage.serve_introduce,
            wire.Carry: carriage.serve_carry,
            wire.Brought: carriage.brought,
            wire.Departed: carriage.departed,
            wire.Records: self._read_records,
            wire.Visit: self.visits.visited,
            wire.VisitPart: self.visits.answered,
            wire.VisitOver: self.visits.over,
            wire.Handed: self.handover.take,
            wire.Left: self.absences.read,
            wire.Known: self.absences.known,
            wire.Missed: self._missed,
            wire.Settled: self.settling.heard,
            wire.Interim: watching.serve_interim,
        }

    def serve(self, handlers: Mapping[type, Callable[[str, Any], None]]) -> None:
        """Let somebody else carry out ops of other nodes, told which node said them."""
        for kind, handler in handlers.items():
            self._handlers[kind] = partial(_by_name, handler)

    def start(self) -> None:
        """Take part: from here on the hub's sessions are announced."""
        hub = self._hub
        hub.node, hub.tag = self.name, self._tag_of(self.name)
        hub.on_online.append(self.routes.came)
        hub.on_offline.append(self.routes.went)
        hub.on_left.append(self.carriage.left)
        hub.on_tick = self._end_tick
        self._application.directory.on_change = self._tell_record
        self._application.definitions.hand_over = self.handover.give
        self._application.directory.subscribe("queue", self._queue_changed)
        self._application.join(self)
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def leave(self) -> None:
        """Let what only this node has live on others, before it says goodbye to them."""
        self.leaving = True
        self.handover.leave()
        self._end_tick()

    def stop(self) -> None:
        """Take part no more."""
        self.settling.stop()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    @property
    def peers(self) -> list[Peer]:
        """The nodes that are linked to this one."""
        return list(self._peers.values())

    def peer(self, name: str) -> Peer | None:
        """The node of that name, if it is linked to this one."""
        return self._names.get(name)

    def is_home(self, app: str, address: str) -> bool:
        """Whether it is this node that looks after an address."""
        return self.homes.home(app, address) is None

    async def wait_for(self, names: set[str]) -> None:
        """Wait until these nodes are linked, and have told who is connected to them."""
        while not all(name in self._names and self._names[name].synced for name in names):
            self._changed.clear()
            await self._changed.wait()

    def link_up(self, link: Link) -> None:
        """A node is there: tell it what it has to know."""
        peer = Peer(
            link,
            self,
            self._hub.recorder,
            bytes_max=self._traffic.waiting_bytes_max,
            pending_max=self._traffic.pending_max,
        )
        self._peers[link] = peer
        self._names[peer.name] = self._tags[self._tag_of(peer.name)] = peer
        log.info("peer.up", peer=peer.name)
        self._hub.recorder.link_up(peer.name)
        self.routes.introduce(peer)
        peer.trickle(self._records())
        self.absences.tell((peer,))
        self._see()
        if self.on_up is not None:
            self.on_up(peer.name)

    def link_down(self, link: Link, reason: str) -> None:
        """A node is gone, or cannot be reached: so is everything on it."""
        peer = self._peers.pop(link)
        peer.up = False
        if self._names.get(peer.name) is peer:
            del self._names[peer.name], self._tags[self._tag_of(peer.name)]
        self._dirty.pop(peer, None)
        log.info("peer.down", peer=peer.name, reason=reason)
        self._hub.recorder.link_down(peer.name, reason)
        self._hub.fanout.end()
        self.routes.drop(peer)
        self.forwarding.lost(peer)
        self.watching.lost(peer)
        self.carriage.lost(peer)
        self.visits.lost(peer)
        self._see()
        if self.on_down is not None:
            self.on_down(peer.name)

    def _see(self) -> None:
        """The nodes have changed, and with them the homes of topics, queues and services."""
        self._hub.fanout.end()
        self.homes.see(self._peers.values())
        self.settling.see(self._peers.values())
        # Before topics: whoever has said all of theirs has said all that follows.
        self.carriage.move()
        self.watching.move()
        self.handover.flush()
        self._changed.set()

    def received(self, link: Link, bodies: list[bytes]) -> None:
        """Carry out what a peer says, in order."""
        peer = self._peers.get(link)
        self._hub.ensure_tick()
        for body in bodies:
            try:
                ops = wire.decode_node_ops(body)
            except RemoteProtocolError as error:
                link.reset(f"a frame cannot be read: {error.reason}")
                return
            for op in ops:
                if peer is None or not peer.up:
                    return
                self._carry_out(peer, op)
        self._changed.set()

    def _carry_out(self, peer: Peer, op: wire.NodeOp) -> None:
        fanout = self._hub.fanout
        if type(op) in _BRINGING:
            fanout.origin = peer.name
        try:
            self._handlers[type(op)](peer, op)
        except RequestError as error:
            self._hub.recorder.refused("", error.code)
        except RemoteProtocolError as error:
            peer.link.reset(f"{type(op).__name__}: {error.reason}")
        finally:
            fanout.origin = ""

    def writable(self, link: Link) -> None:
        """A link takes more."""
        peer = self._peers.get(link)
        if peer is not None:
            peer.flush()

    def wake(self, peer: Peer) -> None:
        """Something waits for a peer: it is written at the end of the tick."""
        self._dirty[peer] = None
        self._hub.ensure_tick()

    def _end_tick(self) -> None:
        self.routes.tell(self.peers)
        dirty, self._dirty = self._dirty, {}
        for peer in dirty:
            peer.flush()

    def _sweep(self) -> None:
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)
        self.forwarding.sweep(self.peers)
        self.settling.sweep()
        self.watching.sweep()
        self.carriage.sweep()

    def _records(self) -> Iterator[wire.NodeOp]:
        for page in self._application.directory.snapshot():
            yield wire.Records([encode_record(record) for record in page])

    def _tell_record(self, record: Record) -> None:
        for peer in self.peers:
            peer.tell(wire.Records([encode_record(record)]))

    def _read_records(self, peer: Peer, op: wire.Records) -> None:
        try:
            records = [_read_record(record) for record in op.records]
        except msgspec.MsgspecError as error:
            raise RemoteProtocolError(f"a record cannot be read: {error}") from None
        self._application.directory.merge(records)

    def _missed(self, peer: Peer, op: wire.Missed) -> None:
        """A link had no room: tell whoever on this node got less than was sent."""
        app = self._hub.apps.get(op.app)
        if app is None or op.count < 1:
            return
        public = op.to.startswith(("topic:", "key:"))
        here = self._application.topics if public else self._application.users
        here.missed_here(app, op.to, op.count)

    def masters_changed(self) -> None:
        """Queues in journals may live on other nodes now: so do their consumers."""
        self._hub.ensure_tick()
        self.carriage.say_all_again(self._application.definitions.stays)
        self.settling.recheck()

    def _queue_changed(self, record: Record) -> None:
        """A queue may have moved: so do its consumers, and what was held of it here."""
        self.carriage.say_again(record.app, record.address)
        self.handover.flush()
        self.settling.recheck()

    def send(self, app: App, user: str, message: Message, answer: Answer) -> None:
        self.forwarding.send(app, user, message, answer)

    def ask_online(self, app: App, user: str, tell: Callable[[bool], None]) -> None:
        self.forwarding.ask_online(app, user, tell)

    def home(self, app: str, address: str) -> Relay | None:
        return self._home(app, address)

    def _home(self, app: str, address: str) -> Peer | None:
        """A queue stays where it is as long as that node is up; all else is placed anew."""
        if address.startswith("queue:"):
            owner = self._application.definitions.owner_of(app, address)
            if owner == self.name:
                return None
            if owner is not None and owner in self._names:
                return self._names[owner]
            if self._application.definitions.stays(app, address):
                return None  # it is nowhere until its node is back: refused here
            if owner is None:
                return self._maker(app, address)
        return self.homes.home(app, address)

    def _maker(self, app: str, queue: str) -> Peer | None:
        """Where a queue that was not made would be: with the master of the broker that its name
        falls to."""
        home = self.homes.home(app, queue)
        broker = self.name if home is None else home.name
        master = self._application.definitions.master_of(broker)
        if master is None or master == broker:
            return home
        return None if master == self.name else self._names.get(master, home)

    def publish(
        self, home: Relay, app: App, message: Message, answer: SilentAnswer | RequestAnswer
    ) -> None:
        assert isinstance(home, Peer)
        self.publishing.publish(home, app, message, answer)

    def subscribe(self, home: Relay, session: Session, op: Subscribe) -> None:
        assert isinstance(home, Peer)
        self.watching.subscribe(home, session, op)

    @property
    def holding(self) -> bool:
        return self.settling.holding

    def hold(self, action: Callable[[], None]) -> None:
        self.settling.hold(action)

    def misplace(self, session: Session, op: PlacedOp) -> None:
        self.settling.misplace(session, op)

    def joining(self, session: Session) -> int:
        return self.watching.joining(session)

    def withdraw(self, session: Session, topic: str | None, identity: str) -> None:
        self.watching.withdraw(session, topic, identity)

    def unwatch(self, app: App, topic: str) -> None:
        self.watching.unwatch(app, topic)

    def renew(self, app: App, topic: str, epoch: str) -> None:
        self.watching.renew(app, topic, epoch)

    def carry(self, home: Relay, session: Session, op: Op) -> None:
        assert isinstance(home, Peer)
        self.carriage.carry(home, session, op)
        if isinstance(op, Ack | Nack):
            self.carriage.acknowledged(session, op.message)

    def stand(self, session: Session, op: Op) -> None:
        self.carriage.stand(session, op)

    def gave(self, session: Session) -> bool:
        return self.carriage.gave(session)

    def giver(self, session: Session, op: Ack | Nack | Respond | Cancel) -> Relay | None:
        if isinstance(op, Respond):
            return self._tags.get(op.request.rpartition(".")[0])
        return self.carriage.delivered_by(session, op.message)


def _by_name(handler: Callable[[str, Any], None], peer: Peer, op: Any) -> None:
    handler(peer.name, op)
