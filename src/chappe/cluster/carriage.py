"""Carriage: ops about a queue or a service that lives on another node are carried out there.

    session --op--> this node --Carry--> home: a stand-in session --op--> queue, service
    session <--ops-- this node <-Brought- home: what the stand-in is told

The home carries ops out on a *stand-in*: a session like any other, whose sink is the link. So
queues and services know nothing of the cluster. What stands for long (providing, consuming) is
carried again when its home moves.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import msgspec

from chappe.cluster.asking import Asking
from chappe.cluster.handing import Handing
from chappe.cluster.peer import Peer
from chappe.endpoints.limits import ServiceLimits
from chappe.endpoints.services import LINK
from chappe.errors import Overload, RequestError
from chappe.hub.grant import Grant, scope_of
from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.wire import packed
from chappe.wire.encoding import STREAM
from chappe.wire.node import Brought, Carry, Departed, Introduce
from chappe.wire.ops import (
    ClientOp,
    Delivery,
    Fetch,
    Op,
    PayloadOp,
    Provide,
    Reply,
    Request,
    Respond,
    Send,
    Unprovide,
)

EDGE = LINK
SCOPES = ("send", "publish", "subscribe", "administer", "manage", "provide")
# Requests under way to one peer, and messages of one session that may still be acknowledged.
_REQUESTS_MAX = 100_000
_SESSION_REQUESTS_MAX = 1_000
_DELIVERIES_MAX = 10_000
# What a service gives a request that does not say.
_REQUEST_S = ServiceLimits().timeout_s
# For an answer that its home gave in time.
_WAY_S = 0.5

Key = tuple[str, str]


class StandIn:
    """The sink of a session that stands for one on another node."""

    __slots__ = ("_closed", "id", "peer")

    def __init__(self, peer: Peer, id: str, closed: Callable[[StandIn], None]) -> None:
        self.peer = peer
        self.id = id
        self._closed = closed

    def write(self, data: bytes) -> None:
        self.peer.tell(Brought(self.id, data), len(data))

    def ping(self) -> None:
        """Its own node looks after it."""

    def close(self, code: int, reason: str) -> None:
        self._closed(self)

    def abort(self) -> None:
        """The link is everybody's."""


class Carriage:
    """Carries ops to homes, and carries out those of other nodes."""

    def __init__(
        self,
        hub: Hub,
        home: Callable[[str, str], Peer | None],
        unprovide: Callable[[Session, Unprovide], None],
        loop: asyncio.AbstractEventLoop,
        timeout_s: float,
        tag_of: Callable[[str], str],
    ) -> None:
        self._hub = hub
        self._asking = Asking(hub, tag_of)
        self._handing = Handing(hub)
        self._home = home
        self._unprovide = unprovide
        self._loop = loop
        self._timeout_s = timeout_s
        # When requests under way have waited for long enough; the earliest first.
        self._dues: list[tuple[float, int, Peer, Session, int]] = []
        self._serial = 0
        # On the session's side: who was introduced where, and which requests are under way.
        self._introduced: dict[Session, dict[Peer, None]] = {}
        self._requests: dict[Peer, dict[Session, set[int]]] = {}
        self._under_way = 0
        # Which peer a message came from that its session may acknowledge, or lies at.
        self._deliveries: dict[Session, OrderedDict[int, Peer]] = {}
        self._standing: dict[Key, dict[Session, Op]] = {}
        self._standing_of: dict[Session, dict[Key, None]] = {}
        self._stood: dict[Key, Peer | None] = {}
        # On the home's side.
        self._stand_ins: dict[tuple[Peer, str], Session] = {}

    def carry(self, peer: Peer, session: Session, op: Op) -> None:
        """Have an op carried out on another node; raises Overload."""
        size = 0
        # An error has no payload.
        if isinstance(op, PayloadOp) and not (isinstance(op, Respond) and op.error is not None):
            payload, _ = self._hub.take(session, op)  # its size, and what the session may send
            size = len(payload)
        if self._under_way >= _REQUESTS_MAX:
            raise Overload("too many requests are under way to other nodes")
        self._introduce(peer, session)
        if isinstance(op, ClientOp) and op.id is not None:
            requests = self._requests.setdefault(peer, {}).setdefault(session, set())
            if len(requests) >= _SESSION_REQUESTS_MAX:
                raise Overload("too many requests of this session are under way")
            if isinstance(op, Request):
                self._asking.begin(peer, session, op, size)
            self._under_way += op.id not in requests
            requests.add(op.id)
            if isinstance(op, Send):
                self._handing.begin(peer, session, op, size)
            self._serial += 1
            due = self._loop.time() + _patience_s(op, self._timeout_s)
            heappush(self._dues, (due, self._serial, peer, session, op.id))
        data = packed.encode_op(op)
        peer.tell(Carry(session.id, data), len(data))

    def sweep(self) -> None:
        """Answer requests whose home has been silent for longer than they may take (H18)."""
        now = self._loop.time()
        while self._dues and self._dues[0][0] <= now:
            _, _, peer, session, request = heappop(self._dues)
            if self._settle(peer, session, request):
                self._handing.forget(session, (request,))
                self._asking.unanswered(session, request)
                error = Overload("the node that was asked did not answer", outcome_unknown=True)
                self._hub.refuse(session, request, error)

    def _introduce(self, peer: Peer, session: Session) -> None:
        known = self._introduced.setdefault(session, {})
        if peer in known:
            return
        known[peer] = None
        scopes = {name: getattr(session.grant, name).patterns() for name in SCOPES}
        peer.tell(Introduce(session.id, session.app.name, session.address, scopes))

    def brought(self, peer: Peer, op: Brought) -> None:
        """Tell a session what its stand-in was told."""
        session = self._hub.sessions.get(op.session)
        if session is None:
            peer.tell(Departed(op.session))
            return
        for array in packed.Splitter(1 << 30).feed(op.data):
            for one in packed.read_hub_ops(array):
                self._bring(peer, session, one)

    def _bring(self, peer: Peer, session: Session, packed_op: Op) -> None:
        op: Any = packed.plain_op(packed_op)
        message = getattr(op, "message", None)
        if isinstance(op, Delivery) and self._home(session.app.name, op.to) is not peer:
            return  # its queue has moved since, and it with it: it comes from there
        if isinstance(op, Reply):
            if not self._settle(peer, session, op.id):
                return  # answered already, because its time was over
            self._asking.answered(session, op)
            if self._handing.answered(session, op) and isinstance(message, int):
                self._note_giver(session, message, peer)
        elif isinstance(op, Delivery) and isinstance(message, int):
            self._note_giver(session, message, peer)
        if isinstance(message, int):
            op.message = session.encoding.message_id(message)
        self._hub.say(session, op)

    def _note_giver(self, session: Session, message: int, peer: Peer) -> None:
        deliveries = self._deliveries.setdefault(session, OrderedDict())
        deliveries[message] = peer
        if len(deliveries) > _DELIVERIES_MAX:
            deliveries.popitem(last=False)

    def _settle(self, peer: Peer, session: Session, request: int) -> bool:
        """Whether a request was still under way; it is no more."""
        sessions = self._requests.get(peer, {})
        requests = sessions.get(session)
        if requests is None or request not in requests:
            return False
        requests.discard(request)
        self._under_way -= 1
        if not requests:
            del sessions[session]
        return True

    def gave(self, session: Session) -> bool:
        """Whether messages came to a session from other nodes that it has not answered."""
        return bool(self._deliveries.get(session))

    def delivered_by(self, session: Session, message: str | int) -> Peer | None:
        """The node that a message came from, to acknowledge it there."""
        deliveries = self._deliveries.get(session)
        number = _number(message)
        peer = None if deliveries is None or number is None else deliveries.get(number)
        # With its node a message is gone: nobody there could take the answer.
        return peer if peer is not None and peer.up else None

    def acknowledged(self, session: Session, message: str | int) -> None:
        """A message was handed back or is done with: it is not asked for again."""
        deliveries, number = self._deliveries.get(session), _number(message)
        if deliveries is not None and number is not None:
            deliveries.pop(number, None)

    def serve_introduce(self, peer: Peer, op: Introduce) -> None:
        """Make a stand-in for a session of a peer."""
        if (peer, op.session) in self._stand_ins:
            return  # the peer took it for gone, by a word about one before it
        sink = StandIn(peer, op.session, self._let_go)
        session = Session(op.session, EDGE, STREAM, sink, peer.name)
        scopes: dict[str, Any] = {
            name: scope_of(patterns) for name, patterns in op.scopes.items() if name in SCOPES
        }
        grant = Grant(app=op.app, address=op.address, **scopes)
        self._hub.take_in(session, self._hub.app(op.app), grant)
        self._stand_ins[peer, op.session] = session

    def serve_carry(self, peer: Peer, op: Carry) -> None:
        """Carry out an op on the stand-in of its session."""
        session = self._stand_ins.get((peer, op.session))
        if session is None:
            peer.tell(Departed(op.session))
            return
        self._hub.receive(session, packed.decode_client_op(op.op))

    def departed(self, peer: Peer, op: Departed) -> None:
        """A session has left its node, or a stand-in its home."""
        stand_in = self._stand_ins.get((peer, op.session))
        if stand_in is not None:
            self._end(peer, op.session)
        session = self._hub.sessions.get(op.session)
        if session is not None:
            self._introduced.get(session, {}).pop(peer, None)
            asked = self._requests.get(peer, {}).pop(session, set())
            self._give_up(session, asked, "the node that was asked has let this session go")

    def _let_go(self, sink: StandIn) -> None:
        """The home closed a stand-in: its node introduces it again when it needs one."""
        if (sink.peer, sink.id) in self._stand_ins:
            del self._stand_ins[sink.peer, sink.id]
            if sink.peer.up:
                sink.peer.tell(Departed(sink.id))

    def _end(self, peer: Peer, id: str) -> None:
        session = self._stand_ins.pop((peer, id))
        session.closed = True
        self._hub.fanout.end()
        self._hub.outboxes.forget(session)
        self._hub.let_out(session)

    def left(self, session: Session) -> None:
        """A session of this node has gone: so do its stand-ins."""
        for peer in self._introduced.pop(session, ()):
            requests = self._requests.get(peer, {}).pop(session, set())
            self._under_way -= len(requests)
            self._handing.forget(session, requests)
            self._asking.abandoned(session, requests)
            if peer.up:
                peer.tell(Departed(session.id))
        self._deliveries.pop(session, None)
        for key in list(self._standing_of.get(session, ())):
            self._sit(key, session)

    def lost(self, peer: Peer) -> None:
        """A peer is gone: with its sessions here, and what was asked of it."""
        for _, session_id in [key for key in self._stand_ins if key[0] is peer]:
            self._end(peer, session_id)
        for known in self._introduced.values():
            known.pop(peer, None)
        for session, requests in self._requests.pop(peer, {}).items():
            self._give_up(session, requests, "the node that was asked went away")

    def _give_up(self, session: Session, requests: set[int], reason: str) -> None:
        """Answer requests that nobody else will answer."""
        self._under_way -= len(requests)
        self._handing.forget(session, requests)
        for request in sorted(requests):
            self._asking.unanswered(session, request)
            self._hub.refuse(session, request, Overload(reason, outcome_unknown=True))

    def stand(self, session: Session, op: Op) -> None:
        """Remember what a session does until it leaves, to do it again when its home moves."""
        key = (session.app.name, getattr(op, "to", ""))
        if isinstance(op, Unprovide):
            self._sit(key, session)
        elif session.edge != EDGE:
            lasting = msgspec.structs.replace(op, id=None)
            self._standing.setdefault(key, {})[session] = lasting
            self._standing_of.setdefault(session, {})[key] = None
            self._stood[key] = self._home(*key)

    def _sit(self, key: Key, session: Session) -> None:
        sessions = self._standing.get(key, {})
        sessions.pop(session, None)
        keys = self._standing_of.get(session, {})
        keys.pop(key, None)
        if not keys:
            self._standing_of.pop(session, None)
        if not sessions:
            self._standing.pop(key, None)
            self._stood.pop(key, None)

    def move(self) -> None:
        """The nodes have changed: what stands is said again where its home is now."""
        for key, sessions in list(self._standing.items()):
            before, now = self._stood.get(key), self._home(*key)
            if before is now or key not in self._standing:
                continue
            self._stood[key] = now
            for session, op in list(sessions.items()):
                self._move_one(session, op, before)

    def say_all_again(self, which: Callable[[str, str], bool]) -> None:
        """These may live elsewhere now, or on the same node as before, begun anew."""
        for key in list(self._standing):
            if which(*key):
                self.say_again(*key)

    def say_again(self, app: str, queue: str) -> None:
        """A queue's record has changed: it may live on the same node as before, begun anew."""
        key = (app, queue)
        sessions = list(self._standing.get(key, {}).items())
        if sessions:
            self._stood[key] = self._home(*key)
        for session, op in sessions:
            self._hub.receive(session, op)

    def _move_one(self, session: Session, op: Op, before: Peer | None) -> None:
        self._hub.receive(session, op)
        if not isinstance(op, Provide):
            return
        try:
            if before is None:
                self._unprovide(session, Unprovide(to=op.to))
            elif before.up:
                self.carry(before, session, Unprovide(to=op.to))
        except RequestError as error:
            self._hub.refuse(session, None, error)


def _patience_s(op: Op, timeout_s: float) -> float:
    """How long an answer may take: what the op itself says, and the way there and back."""
    if isinstance(op, Fetch):
        return op.wait_ms / 1000 + timeout_s
    if isinstance(op, Request):
        limit_s = _REQUEST_S if op.timeout_ms is None else min(op.timeout_ms / 1000, _REQUEST_S)
        return limit_s + _WAY_S
    return timeout_s


def _number(message: str | int) -> int | None:
    """A message id as a number; None for what is none."""
    if isinstance(message, int):
        return message
    return int(message) if message.isascii() and message.isdecimal() else None
