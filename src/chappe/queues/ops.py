"""The queues of a node: carries out what sessions ask of them, on a hub (H17, Q5 to Q9).

Everything that changes a queue is answered once it is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chappe.clock import Clock
from chappe.errors import Overload, RequestError, Unreachable
from chappe.hub.deadline import Alarm
from chappe.hub.permission import check_kind
from chappe.message import Message
from chappe.queues.administration import Administration
from chappe.queues.broker import Broker
from chappe.queues.consumer import Loans
from chappe.queues.consuming import Consuming
from chappe.queues.keeper import Outlet
from chappe.queues.memory import MemoryStorage
from chappe.queues.options import QueueLimits
from chappe.queues.outlet import HubOutlet
from chappe.queues.queue import Queue
from chappe.queues.record import Stored
from chappe.queues.replies import Replies
from chappe.queues.runs import Runs
from chappe.queues.sending import Sending
from chappe.queues.storage import Key, Storage
from chappe.wire.ops import (
    Ack,
    Cancel,
    Consume,
    Fetch,
    Inspect,
    Letters,
    Nack,
    Op,
    Register,
    Unregister,
)

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session

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
        replies = Replies(hub)
        self.sending = Sending(self, hub, replies)
        self.consuming = Consuming(self, hub, loop, self._loans, replies)
        self._administration = Administration(self, hub, replies)
        # Tells a sender of its dead letter, wherever it is.
        self.tell: Callable[[str, Message], None] = lambda app, message: None
        # Why a queue that was made is not here.
        self.why_away: Callable[[str, str], str | None] = lambda app, address: None
        # The journals whose disks failed: they are not to be relied on until the node starts again.
        self.broken: set[str] = set()
        # All that live here, whichever broker they are of.
        self._here: dict[Key, Queue] = {}
        self.volatile = self.broker(MemoryStorage(self._loans), "")
        # Of the journals that this node is the master of, by name; or the one on Redis.
        self.durable: dict[str, Broker] = {}
        self._runs = Runs(hub, self.limits, self._loans)

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
        broker.on_gone = self.consuming.gone
        broker.on_back = self.consuming.back
        return broker

    def _outlet(self, app: str) -> Outlet:
        outlet = self._outlets.get(app)
        if outlet is None:
            outlet = self._outlets[app] = HubOutlet(self._hub, app, self._tell)
        return outlet

    def _tell(self, app: str, message: Message) -> None:
        self.tell(app, message)

    def handlers(self) -> dict[type[Op], Callable[[Session, Any], None]]:
        """What sessions may say of queues; a `send` to one comes to `sending`."""
        consuming, administration = self.consuming, self._administration
        return {
            Fetch: consuming.fetch,
            Consume: consuming.consume,
            Ack: consuming.ack,
            Nack: consuming.nack,
            Register: consuming.register,
            Unregister: consuming.unregister,
            Cancel: administration.cancel,
            Inspect: administration.inspect,
            Letters: administration.letters,
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
        if len(self._here) >= self.limits.queues_max:
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
        self.settle()
        return refused

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

    def stop(self) -> None:
        """Let no deadline pass any more."""
        self._alarm.stop()

    def find(self, app: str, to: str) -> Queue:
        """The queue at an address; raises RequestError if it does not live here."""
        queue = self.get(app, to)
        if queue is None:
            check_kind(to, "queue")
            for broker in self.durable.values():
                if (reason := broker.why_not((app, to))) is not None:
                    raise Overload(f"{to} {reason}")
            if (reason := self.why_away(app, to)) is not None:
                raise Overload(f"{to} is not served now: {reason or 'it is being opened'}")
            raise _unmade(to)
        return queue

    def settle(self) -> None:
        """Let what was done now be seen, and deadlines be kept."""
        self.volatile.settle()
        self._alarm.set()


def _unmade(to: str) -> Unreachable:
    return Unreachable(f"{to} does not exist: an administrator makes a queue with create")
