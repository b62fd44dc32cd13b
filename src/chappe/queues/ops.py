"""The queues of a node: carries out what sessions ask of them, on a hub (H17, Q5 to Q9).

The answer to a `fetch` comes behind the messages it brought and says how many those are: at once
if there are any or it does not wait; else with the first that come, or when the wait is over.
Everything that changes a queue is answered once it is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from chappe.clock import Clock
from chappe.errors import BadRequest, Overload, RequestError, Unreachable
from chappe.hub.deadline import Alarm
from chappe.hub.permission import check_kind, permit
from chappe.message import Message
from chappe.queues.broker import Broker, Standing
from chappe.queues.check import (
    check_filter,
    check_group,
    check_message,
    check_name,
    check_range,
    number_of,
)
from chappe.queues.consumer import Item, Loans
from chappe.queues.group import Group
from chappe.queues.inspection import browse, figures
from chappe.queues.keeper import Outlet
from chappe.queues.memory import MemoryStorage
from chappe.queues.options import QueueLimits
from chappe.queues.outlet import HubOutlet
from chappe.queues.queue import Queue
from chappe.queues.record import MessageType, Stored
from chappe.queues.runs import Runs
from chappe.queues.storage import Key, Storage
from chappe.wire.ops import (
    Ack,
    Cancel,
    ClientOp,
    Consume,
    Fetch,
    Inspect,
    Letters,
    Nack,
    Op,
    Register,
    Reply,
    Send,
    Unregister,
)

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session


_ONE_WAY = int(MessageType.ONE_WAY)
_REPLY_EXPECTED = int(MessageType.REPLY_EXPECTED)
# The name of the broker whose queues are on Redis.
REDIS = "redis"


class Queues:
    """All queues that live on a hub's node, those of each app apart."""

    def __init__(
        self,
        hub: Hub,
        loop: asyncio.AbstractEventLoop,
        limits: QueueLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._hub = hub
        self._loop = loop
        self._clock = clock or hub.clock
        self.limits = limits or QueueLimits()
        self._loans = Loans()
        self._alarm = Alarm(loop, self._loans.deadlines)
        self._outlets: dict[str, Outlet] = {}
        # Tells a sender of its dead letter, wherever it is.
        self.tell: Callable[[str, Message], None] = lambda app, message: None
        # Why a queue that was made is not here.
        self.why_away: Callable[[str, str], str | None] = lambda app, address: None
        # The journals whose disks failed: they are not to be relied on until the node starts again.
        self.broken: set[str] = set()
        self._visited: dict[Session, dict[Queue, set[str]]] = {}
        # All that live here, whichever broker they are of.
        self._here: dict[Key, Queue] = {}
        self.volatile = self.broker(MemoryStorage(self._loans), "")
        # Of the journals that this node is the master of, by name; or the one on Redis.
        self.durable: dict[str, Broker] = {}
        self._runs = Runs(hub, self.limits, self._loans)
        hub.on_left.append(self.session_closed)

    def broker(self, storage: Storage, name: str) -> Broker:
        """Make a broker for queues of that storage."""
        broker = Broker(
            storage,
            limits=self.limits,
            loans=self._loans,
            alarm=self._alarm,
            loop=self._loop,
            clock=self._clock,
            outlet=self._outlet,
            name=name,
            here=self._here,
        )
        broker.on_gone = self._gone
        broker.on_back = self._back
        return broker

    def _outlet(self, app: str) -> Outlet:
        outlet = self._outlets.get(app)
        if outlet is None:
            outlet = self._outlets[app] = HubOutlet(self._hub, app, self._tell)
        return outlet

    def _tell(self, app: str, message: Message) -> None:
        self.tell(app, message)

    def handlers(self) -> dict[type[Op], Callable[[Session, Any], None]]:
        """What sessions may say of queues; a `send` to one comes to `send`."""
        return {
            Fetch: self.fetch,
            Consume: self.consume,
            Ack: self.ack,
            Nack: self.nack,
            Cancel: self.cancel,
            Register: self.register,
            Unregister: self.unregister,
            Inspect: self.inspect,
            Letters: self.letters,
        }

    def brokers(self) -> list[Broker]:
        """All brokers here."""
        return [self.volatile, *self.durable.values()]

    def get(self, app: str, address: str) -> Queue | None:
        """The queue at an address, if it lives here."""
        return self._here.get((app, address))

    def addresses(self) -> list[Key]:
        """The queues that live here, as (app, address)."""
        return [key for broker in self.brokers() for key in broker.queues]

    def check_room(self) -> None:
        """Raise Overload when this node holds as many queues as it may."""
        if len(self.addresses()) >= self.limits.queues_max:
            raise Overload(f"this node holds {self.limits.queues_max} queues already")

    def take_on(self, app: str, messages: list[tuple[str, Stored]]) -> int:
        """Keep messages that another node held; how many there was no room for."""
        refused = 0
        for address, message in messages:
            queue = self.get(app, address)
            try:
                if queue is None:
                    raise _unmade(address)
                queue.send(message, lambda stored: None, lambda error: None)
            except RequestError:
                refused += 1
        self._settle()
        return refused

    def send(self, session: Session, op: Send) -> None:
        """Store a message; answered when it is stored; raises RequestError."""
        to = op.to
        assert isinstance(to, str), "each receiver of a list is sent to on its own"
        permit(session.grant.send, "send to", to)
        queue = self._queue(session.app.name, to)
        check_message(op, self.limits)
        payload, binary = self._hub.take(session, op)
        hub, request = self._hub, op.id
        kind = op.type
        if kind is None:
            kind = _ONE_WAY if request is None else _REPLY_EXPECTED
        else:
            kind = int(MessageType(kind))
        message = Stored(
            0,
            0,
            0,
            hub.ids.next(),
            hub.now_ms,
            session.address,
            payload,
            binary,
            kind,
            op.num,
            op.key,
            op.headers,
            op.tags,
            op.consumers,
            # Another sender's numbers are its own.
            None if op.producer is None else f"{session.address}/{op.producer}",
            op.seq,
            None if op.delay_ms is None else hub.now_ms + op.delay_ms,
        )

        def stored(id: int) -> None:
            if request is None or session.closed:
                return
            if op.num is None:
                hub.outboxes.put(session, session.encoding.accepted(request, id))
            else:
                shown = session.encoding.message_id(id)
                hub.answer(session, Reply(id=request, ok=True, message=shown, num=op.num))
            hub.ensure_tick()

        queue.send(message, stored, self._refuser(session, op))
        hub.recorder.queued(session.app.name, to, (message,))
        self.volatile.settle()

    def send_run(self, session: Session, queue: Queue, ops: list[Any], at: int) -> int:
        """Store what one read brought for a queue, together; how many ops that were."""
        taken = self._runs.send(session, queue, ops, at)
        self.volatile.settle()
        return taken

    def ack_run(self, session: Session, ops: list[Any], at: int) -> int:
        """Take it that a session is done with messages, together; how many ops that were."""
        taken = self._runs.ack(session, ops, at, self._loop.time())
        self.volatile.settle()
        return taken

    def fetch(self, session: Session, op: Fetch) -> None:
        """Give a session what there is, or let it wait; raises RequestError."""
        check_range("n", op.n, 1, self.limits.unacked_max)
        check_range("wait_ms", op.wait_ms, 0, self.limits.wait_ms_max)
        group, changed = self._group(session, op, "fetch from")

        def begin() -> None:
            if session.closed:
                return
            try:
                if group.closed:
                    raise Overload(f"group: {group.state.name!r} was given up meanwhile")
                group.fetch(session, op.id, op.n, op.wait_ms / 1000, self._loop.time())
            except RequestError as error:
                self._hub.refuse(session, op.id, error)
            self._hub.ensure_tick()

        if changed:
            group.queue.after(begin, self._refuser(session, op))
        else:
            group.fetch(session, op.id, op.n, op.wait_ms / 1000, self._loop.time())
        self._settle()

    def consume(self, session: Session, op: Consume) -> None:
        """Push a session messages while it has fewer than its credit; raises RequestError."""
        check_range("credit", op.credit, 0, self.limits.unacked_max)
        group, changed = self._group(session, op, "consume from")

        def begin() -> None:
            if not session.closed:
                self._ok(session, op)
                if not group.closed:
                    group.consume(session, op.credit, self._loop.time())
                if op.credit == 0 and group.release(session):
                    self._visited.get(session, {}).get(group.queue, set()).discard(group.state.name)
                self._hub.ensure_tick()

        if changed:
            group.queue.after(begin, self._refuser(session, op))
        else:
            begin()
        self._settle()

    def _group(self, session: Session, op: Fetch | Consume, verb: str) -> tuple[Group, bool]:
        """The group that a session takes from; made, and joined by name, if that is asked for; and
        whether something of that is new."""
        permit(session.grant.subscribe, verb, op.to)
        queue = self._queue(session.app.name, op.to)
        name = op.group if op.group is not None else (op.name or "")
        check_group(name)
        groups = self._visited.setdefault(session, {}).setdefault(queue, set())
        if groups and name not in groups:
            raise BadRequest(
                f"group: this session takes from {op.to} as group {next(iter(groups))!r} already"
            )
        changed = name not in queue.groups or name in queue.members.unborn
        if op.tags is not None or op.headers is not None or op.name is not None:
            joined = self._register(session, queue, name, op.name or "", op.tags, op.headers)
            changed = changed or joined
        group = queue.members.group(name)
        groups.add(name)
        return group, changed

    def _register(
        self,
        session: Session,
        queue: Queue,
        group: str,
        name: str,
        tags: list[str] | None,
        headers: dict[str, str] | None,
        *,
        new: bool = False,
    ) -> bool:
        check_group(group)
        check_filter(tags, headers, self.limits)
        if name:
            check_name(name)
            holder = queue.members.holders.get(name)
            if holder is not None and holder is not session and not holder.closed:
                raise BadRequest(f"name: {name!r} is held by a session that still answers")
        changed = queue.members.register(group, name, tags, headers, new=new)
        if name:
            queue.members.holders[name] = session
            self._visited.setdefault(session, {}).setdefault(queue, set())
        return changed

    def register(self, session: Session, op: Register) -> None:
        """Let a session be a consumer by a name; raises RequestError."""
        permit(session.grant.subscribe, "register with", op.to)
        queue = self._queue(session.app.name, op.to)
        if not op.name:
            raise BadRequest("name: a consumer registers by one")
        group = op.name if op.group is None else op.group
        self._register(session, queue, group, op.name, op.tags, op.headers, new=op.new)
        self._when_stored(session, op, queue)

    def unregister(self, session: Session, op: Unregister) -> None:
        """Let a consumer, or a whole group, be no more; raises RequestError."""
        permit(session.grant.subscribe, "unregister from", op.to)
        queue = self._queue(session.app.name, op.to)
        group = op.group if op.group is not None else op.name
        known = queue.state.groups.get(group)
        names = [op.name] if op.name or known is None else list(known.consumers)
        holders = [queue.members.holders[name] for name in names if name in queue.members.holders]
        taking = [] if op.name or group not in queue.groups else queue.groups[group].sessions()
        if any(one is not session and not one.closed for one in (*holders, *taking)):
            permit(session.grant.administer, "unregister others from", op.to)
        for one in queue.members.unregister(group, op.name):
            self._visited.get(one, {}).get(queue, set()).discard(group)
        self._when_stored(session, op, queue)

    def ack(self, session: Session, op: Ack) -> None:
        """Take it that a session is done with a message; raises BadRequest if it has it not."""
        item = self._lent(session, op)
        queue = item.group.queue
        queue.storage.check(freeing=True)
        item.group.ack(item, self._loop.time())
        if op.id is not None:
            queue.after(self._teller(session, op), self._refuser(session, op))
        self.volatile.settle()

    def nack(self, session: Session, op: Nack) -> None:
        """Hand a message to the next; raises BadRequest if the session has it not."""
        item = self._lent(session, op)
        delay_ms = op.delay_ms or 0
        check_range("delay_ms", delay_ms, 0, self.limits.delay_ms_max)
        self._ok(session, op)
        item.group.give_back(item, self._loop.time(), delay_s=delay_ms / 1000)
        self._settle()

    def cancel(self, session: Session, op: Cancel) -> None:
        """Take back a delayed message; raises Unreachable for one that is not held any more."""
        message = number_of(op.message)
        queue = self._delaying(session.app.name, message) if not op.to else None
        if queue is None:
            if not op.to:
                raise Unreachable(
                    f"message: {message} is not delayed here; name its queue with `to`"
                )
            queue = self._queue(session.app.name, op.to)
        permit(session.grant.send, "cancel what was sent to", queue.address)
        told, refused = self._teller(session, op), self._refuser(session, op)
        queue.delays.cancel(message, told, refused)
        self._settle()

    def _delaying(self, app: str, message: int) -> Queue | None:
        for broker in self.brokers():
            for (owner, _), queue in broker.queues.items():
                if owner == app and message in queue.state.delayed_seqs:
                    return queue
        return None

    def inspect(self, session: Session, op: Inspect) -> None:
        """Show figures or messages of a queue; raises RequestError."""
        permit(session.grant.administer, "inspect", op.to)
        queue = self._queue(session.app.name, op.to)
        if op.n == 0:
            self._show(session, op, {**figures(queue), "node": self._hub.node})
        else:
            refused = self._refuser(session, op)
            browse(queue, op, lambda found: self._show(session, op, found), refused)

    def letters(self, session: Session, op: Letters) -> None:
        """Replay or purge dead letters; raises RequestError."""
        permit(session.grant.administer, "deal with dead letters of", op.to)
        queue = self._queue(session.app.name, op.to)
        ids = None if op.messages is None else [number_of(one) for one in op.messages]
        request = op.id

        def told(count: int) -> None:
            if request is not None and not session.closed:
                self._hub.answer(session, Reply(id=request, ok=True, n=count))
                self._hub.ensure_tick()

        if op.do == "replay":
            queue.letters.replay(ids, told, self._refuser(session, op))
        elif op.do == "purge":
            queue.letters.purge(ids, told, self._refuser(session, op))
        else:
            raise BadRequest("do: replay or purge")
        self._settle()

    def session_closed(self, session: Session) -> None:
        """Give what a session had not acknowledged to the next."""
        visited = self._visited.pop(session, None)
        if visited is None:
            return
        now = self._loop.time()
        for queue, groups in visited.items():
            for name in [one for one, holder in queue.members.holders.items() if holder is session]:
                del queue.members.holders[name]
            for name in groups:
                group = queue.groups.get(name)
                if group is not None:
                    group.leave(session, now)
        self._settle()

    def stop(self) -> None:
        """Let no deadline pass any more."""
        self._alarm.stop()

    def _gone(self, queue: Queue, sessions: list[Session]) -> None:
        for visited in self._visited.values():
            visited.pop(queue, None)

    def _back(self, queue: Queue, standing: list[Standing]) -> None:
        """A queue was opened anew: who consumed it before goes on."""
        for session, name, credit in standing:
            if session.closed:
                continue
            try:
                group = queue.members.group(name)
            except RequestError as error:  # it was made in the commit that failed
                self._hub.refuse(session, None, error)
                continue
            self._visited.setdefault(session, {}).setdefault(queue, set()).add(name)
            group.consume(session, credit, self._loop.time())
        self._settle()

    def _queue(self, app: str, to: str) -> Queue:
        queue = self.get(app, to)
        if queue is None:
            check_kind(to, "queue")
            for broker in self.durable.values():
                if (reason := broker.why_not((app, to))) is not None:
                    raise Overload(f"{to} {reason}")
            if (reason := self.why_away(app, to)) is not None:
                raise Overload(f"{to} is not served now: {reason}")
            raise _unmade(to)
        return queue

    def _lent(self, session: Session, op: Ack | Nack) -> Item:
        message = number_of(op.message)
        item = self._loans.lent.get((session, message))
        if item is None:
            raise BadRequest(
                f"message: {message} is not with this session: it was acknowledged or handed back "
                "already, its time ran out, its queue was removed, or it was never delivered here"
            )
        return item

    def _ok(self, session: Session, op: ClientOp) -> None:
        if op.id is not None:
            self._hub.outboxes.put(session, session.encoding.ok(op.id))

    def _show(self, session: Session, op: ClientOp, shown: dict[str, Any]) -> None:
        if op.id is not None and not session.closed:
            data = msgspec.Raw(msgspec.json.encode(shown))
            self._hub.answer(session, Reply(id=op.id, ok=True, data=data))
            self._hub.ensure_tick()

    def _when_stored(self, session: Session, op: ClientOp, queue: Queue) -> None:
        """Answer once all that was done so far is durable."""
        if op.id is not None:
            queue.after(self._teller(session, op), self._refuser(session, op))
        self._settle()

    def _teller(self, session: Session, op: ClientOp) -> Callable[[], None]:
        def told() -> None:
            if not session.closed:
                self._ok(session, op)
                self._hub.ensure_tick()

        return told

    def _refuser(self, session: Session, op: ClientOp) -> Callable[[RequestError], None]:
        def refused(error: RequestError) -> None:
            if not session.closed:
                self._hub.refuse(session, op.id, error)
                self._hub.ensure_tick()

        return refused

    def _settle(self) -> None:
        self.volatile.settle()
        self._alarm.set()


def _unmade(to: str) -> Unreachable:
    return Unreachable(f"{to} does not exist: an administrator makes a queue with create")
