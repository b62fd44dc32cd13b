"""The application layer of a node, joined: users, avatars, topics, rooms, work queues, services.

What lives on one node of a cluster (a queue, a service) is asked there: an op about one that is at
home elsewhere is carried to its home, and carried out there as if its session were there, too.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import msgspec

from chappe.address import parse_address
from chappe.endpoints.avatar import Avatars
from chappe.endpoints.cluster import Alone, Cluster
from chappe.endpoints.definition import Definitions
from chappe.endpoints.directory import Directory
from chappe.endpoints.services import Services
from chappe.endpoints.topic import Topics
from chappe.endpoints.user import Users
from chappe.errors import Overload, RequestError
from chappe.hub.answer import SilentAnswer
from chappe.hub.hub import Hub
from chappe.hub.requests import Handler
from chappe.hub.session import Session
from chappe.message import Message
from chappe.queues.ops import Queues
from chappe.queues.options import QueueLimits
from chappe.queues.sending import LINK
from chappe.rooms.lobby import Lobby
from chappe.rooms.options import RoomsOptions
from chappe.store.memory import MemoryStore
from chappe.wire.ops import (
    Ack,
    Cancel,
    Consume,
    Create,
    Delete,
    Fetch,
    Inspect,
    Letters,
    Nack,
    Op,
    PlacedOp,
    Presence,
    Provide,
    Register,
    Reply,
    Request,
    Respond,
    Send,
    Unprovide,
    Unregister,
)


class Application:
    """Serves the ops of sessions on one hub."""

    def __init__(
        self,
        hub: Hub,
        directory: Directory,
        loop: asyncio.AbstractEventLoop,
        node: str = "node",
        queues: QueueLimits | None = None,
        rooms: RoomsOptions | None = None,
    ) -> None:
        self._hub = hub
        self.directory = directory
        self.avatars = Avatars(hub, directory)
        self.queues = Queues(hub, loop, queues)
        self.queues.tell = self._tell_sender
        self.services = Services(hub, loop)
        self.users = Users(hub, self.avatars, self._at_home(Send, self.queues.sending.send))
        # It serves no rooms until somebody opens it.
        self.lobby = Lobby(hub, rooms or RoomsOptions(), loop)
        self.topics = Topics(hub, self.avatars, self.lobby.publish)
        self.definitions = Definitions(hub, directory, self.topics, self.queues, node)
        self.avatars.on_removed = self._avatar_removed
        hub.on_left.append(self.topics.left)
        self.users.others_online = {
            "topic": self.topics.presence,
            "key": self.topics.presence,
            "room": self.lobby.presence,
            "queue": self._at_home(Presence, self._queue_presence),
            "service": self._at_home(Presence, self._service_presence),
        }
        self.cluster: Cluster
        self.join(Alone())
        hub.serve(self.users.handlers())
        hub.serve(self.topics.handlers())
        hub.serve(self.lobby.handlers())
        hub.serve(self.avatars.handlers())
        hub.serve(self._defined(self.definitions.handlers()))
        hub.serve(self._placed({**self.queues.handlers(), **self.services.handlers()}))
        hub.serve_runs({Send: self._send_run, Ack: self._ack_run})

    @classmethod
    def embedded(
        cls, hub: Hub, loop: asyncio.AbstractEventLoop, rooms: RoomsOptions | None = None
    ) -> Application:
        """One that leaves nothing behind when its process ends."""
        directory = Directory(ids=hub.ids, clock=hub.clock, store=MemoryStore())
        return cls(hub, directory, loop, rooms=rooms)

    def join(self, cluster: Cluster) -> None:
        """Become part of a cluster."""
        self.cluster = self.users.cluster = self.topics.cluster = cluster

    def stop(self) -> None:
        """Let no deadline pass any more."""
        self.queues.stop()
        self.services.stop()
        self.lobby.close()

    def _placed(self, handlers: dict[type[Op], Handler]) -> dict[type[Op], Handler]:
        givers: tuple[type[Op], ...] = (Ack, Nack, Respond)
        homes: tuple[type[Op], ...] = (
            Fetch,
            Consume,
            Register,
            Unregister,
            Inspect,
            Letters,
            Provide,
            Unprovide,
            Request,
        )
        placed = {op: self._at_giver(handlers[op]) for op in givers}
        placed[Cancel] = self._at_either(handlers[Cancel])
        return placed | {op: self._at_home(op, handlers[op]) for op in homes}

    def _defined(self, handlers: dict[type[Op], Handler]) -> dict[type[Op], Handler]:
        """A queue that was made is made anew, or removed, where it lives."""

        def placed(kind: type[Op], handler: Handler) -> Handler:
            at_home = self._at_home(kind, handler)

            def carry_out(session: Session, op: Create | Delete) -> None:
                if self._waits(session, op):
                    return
                (at_home if self._is_placed(session.app.name, op) else handler)(session, op)

            return carry_out

        return {kind: placed(kind, handler) for kind, handler in handlers.items()}

    def _is_placed(self, app: str, op: Create | Delete) -> bool:
        """Whether what is made or removed has a place: a queue that was made, or one that is to be
        durable. That is made where its name says: two who make it at once must not make two."""
        if self.definitions.owner_of(app, op.to) is not None:
            return True
        return isinstance(op, Create) and op.to.startswith("queue:") and not op.volatile

    def _at_either(self, handler: Handler) -> Handler:
        """Carry a cancel out where its queue lives, or where its message was taken."""
        at_home, at_giver = self._at_home(Cancel, handler), self._at_giver(handler)

        def carry_out(session: Session, op: Cancel) -> None:
            (at_home if op.to else at_giver)(session, op)

        return carry_out

    def _at_home(self, kind: type[Op], handler: Handler) -> Handler:
        """Carry an op out where the address it is about lives."""
        lasting = kind in (Consume, Provide, Unprovide)
        quick = kind in (Send, Fetch)

        def carry_out(session: Session, op: PlacedOp) -> None:
            app, to, cluster = session.app.name, op.to, self.cluster
            if self.definitions.changing and self._waits(session, op):
                return
            if quick and not cluster.holding and self.queues.get(app, to) is not None:
                handler(session, op)  # it lives here, as nearly all do that are asked for
                return
            home = cluster.home(app, to)
            # What those of other nodes ask for is meant for here.
            if home is not None and session.edge == LINK and kind not in (Provide, Unprovide):
                cluster.misplace(session, op)
                return
            if home is not None and session.edge != LINK:
                parse_address(to)
                cluster.carry(home, session, op)
            elif cluster.holding and kind not in (Provide, Unprovide):
                cluster.hold(partial(self._again, session, op))
            else:
                self._check_here(app, to)
                self._take_over(app, to)
                handler(session, op)
            if lasting:
                self.cluster.stand(session, op)

        return carry_out

    def _waits(self, session: Session, op: PlacedOp) -> bool:
        """Whether an op waits until its queue is made or removed, as was asked before it."""
        key = (session.app.name, op.to)
        if key not in self.definitions.changing:
            return False
        data = getattr(op, "data", None)
        size = memoryview(data).nbytes if isinstance(data, bytes | msgspec.Raw) else 0
        self.definitions.wait(key, partial(self._again, session, op), size)
        return True

    def _send_run(self, session: Session, ops: list[Send], at: int) -> int:
        """Take sends to a queue that lives here, as many as follow each other."""
        app, to = session.app, ops[at].to
        if to.__class__ is not str or self.cluster.holding or to in app.endpoints:
            return 0
        if self.definitions.changing and (app.name, to) in self.definitions.changing:
            return 0
        queue = self.queues.get(app.name, to)
        if queue is None:
            return 0
        return self.queues.send_run(session, queue, ops, at) or self._alone(session, ops[at])

    def _ack_run(self, session: Session, ops: list[Ack], at: int) -> int:
        """Take acknowledgements of a session that was given nothing by another node."""
        if session.edge != LINK and self.cluster.gave(session):
            return 0
        return self.queues.ack_run(session, ops, at) or self._alone(session, ops[at])

    def _alone(self, session: Session, op: Op) -> int:
        """An op is none of several: it is carried out by itself."""
        self._hub.receive(session, op)
        return 1

    def _again(self, session: Session, op: Op) -> None:
        if not session.closed:
            self._hub.receive(session, op)

    def _check_here(self, app: str, to: str) -> None:
        """Raise Overload for a queue in a journal whose master is away."""
        if self.definitions.stays(app, to):
            owner = self.definitions.owner_of(app, to)
            if owner != self.definitions.node:
                raise Overload(f"to: {to} lives on {owner}, which is not reachable now")

    def _tell_sender(self, name: str, message: Message) -> None:
        """Tell a sender what became of its message, wherever it is; nothing if it is not there."""
        self.give(name, message)
        self._hub.ensure_tick()

    def give(self, name: str, message: Message, *, besides: str | None = None) -> bool:
        """Give a message of the node's own to a user or avatar, wherever it is, but not to the
        session of an id; whether anybody was found that may have room for it."""
        app = self._hub.apps.get(name)
        if app is None:
            return False
        found = False
        with suppress(RequestError):
            user = self.users.user_of(app, message.to)
            if user in app.endpoints:
                if besides is None:
                    self.users.deliver_here(app, message)
                else:
                    self.users.deliver_besides(app, user, message, besides)
                found = True
            if user in app.routes:
                self.cluster.send(app, user, message, SilentAnswer(self._hub, name))
                found = True
        return found

    def give_to_session(self, name: str, message: Message, session: str) -> bool:
        """Give a message of the node's own to one session of this node; whether it takes it."""
        found = self._hub.sessions.get(session)
        if found is None or found.address != message.to or found.app.name != name:
            return False
        self._hub.fanout.end()
        return self._hub.outboxes.put_promised(found, found.encoding.message(message))

    def _take_over(self, app: str, to: str) -> None:
        """Go on with a queue whose node is gone; raises Overload when this one goes, too."""
        if self.definitions.owner_of(app, to) is not None:
            if self.cluster.leaving:
                raise Overload(f"to: {to} is about to move to another node")
            self.definitions.take_over(app, to)

    def _at_giver(self, handler: Handler) -> Handler:
        """Carry an answer out on the node that gave what it answers."""

        def carry_out(session: Session, op: Ack | Nack | Respond | Cancel) -> None:
            giver = None if session.edge == LINK else self.cluster.giver(session, op)
            if giver is not None:
                self.cluster.carry(giver, session, op)
            else:
                handler(session, op)

        return carry_out

    def _avatar_removed(self, name: str, user: str, avatar: str) -> None:
        # A run under way may go to a user by the name of this avatar.
        self._hub.fanout.end()
        app = self._hub.apps.get(name)
        if app is not None:
            self.topics.avatar_removed(app, user, avatar)

    def _queue_presence(self, session: Session, op: Presence) -> None:
        self._tell(session, op, self.queues.get(session.app.name, op.to) is not None)

    def _service_presence(self, session: Session, op: Presence) -> None:
        self._tell(session, op, self.services.online(session.app.name, op.to))

    def _tell(self, session: Session, op: Presence, online: bool) -> None:
        if op.id is not None:
            self._hub.answer(session, Reply(id=op.id, ok=True, online=online))
