"""What the application layer asks of the nodes around this one; and the answers of one alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from chappe.errors import Unreachable
from chappe.hub.answer import Answer, RequestAnswer, SilentAnswer
from chappe.hub.app import App
from chappe.hub.fanout import Relay
from chappe.hub.session import Session
from chappe.message import Message
from chappe.wire.ops import Ack, Cancel, Nack, Op, PlacedOp, Respond, Subscribe


class Cluster(Protocol):
    """The other nodes. Nothing here waits: what takes time is told through an answer."""

    @property
    def holding(self) -> bool:
        """Whether what lives here has to wait, until all nodes see the same ones."""
        ...

    @property
    def leaving(self) -> bool:
        """Whether this node is about to go."""
        ...

    def hold(self, action: Callable[[], None]) -> None:
        """Do this once it has waited; raises Overload when too much does."""
        ...

    def misplace(self, session: Session, op: PlacedOp) -> None:
        """Keep an op that was carried here, about what lives elsewhere; raises Overload."""
        ...

    def joining(self, session: Session) -> int:
        """How many subscribes of a session are under way to other nodes."""
        ...

    def send(self, app: App, user: str, message: Message, answer: Answer) -> None:
        """Take a message to a user that is not here, or has no room here.

        Raises RequestError when the verdict is known at once.
        """
        ...

    def ask_online(self, app: App, user: str, tell: Callable[[bool], None]) -> None:
        """Tell whether a user that is not here is on any other node."""
        ...

    def home(self, app: str, address: str) -> Relay | None:
        """The node where a topic, a queue or a service lives; None when it is this one."""
        ...

    def publish(
        self, home: Relay, app: App, message: Message, answer: SilentAnswer | RequestAnswer
    ) -> None:
        """Take a message to a topic's home, in a run that more of the same may join; raises
        Overload when its link is full."""
        ...

    def subscribe(self, home: Relay, session: Session, op: Subscribe) -> None:
        """Subscribe a session to a topic whose home is elsewhere, and answer it."""
        ...

    def withdraw(self, session: Session, topic: str | None, identity: str) -> None:
        """A session unsubscribed: if it is still being subscribed, it is not to be bound."""
        ...

    def unwatch(self, app: App, topic: str) -> None:
        """The last subscriber of a topic on this node has left."""
        ...

    def renew(self, app: App, topic: str, epoch: str) -> None:
        """A topic's history begins here, at its home: let the nodes that watch it know."""
        ...

    def carry(self, home: Relay, session: Session, op: Op) -> None:
        """Have an op carried out at the home of what it is about; raises Overload."""
        ...

    def stand(self, session: Session, op: Op) -> None:
        """Remember what a session does until it leaves, in case its home moves."""
        ...

    def gave(self, session: Session) -> bool:
        """Whether another node gave a session messages that it has not answered."""
        ...

    def giver(self, session: Session, op: Ack | Nack | Respond | Cancel) -> Relay | None:
        """The node that gave what an op answers; None when it was this one."""
        ...


class Alone:
    """A node without others."""

    holding = False
    leaving = False

    def hold(self, action: Callable[[], None]) -> None:
        raise AssertionError("nothing moves")

    def misplace(self, session: Session, op: PlacedOp) -> None:
        raise AssertionError("nothing moves")

    def joining(self, session: Session) -> int:
        return 0

    def send(self, app: App, user: str, message: Message, answer: Answer) -> None:
        # H12: with no peer, answer at once.
        raise Unreachable(f"{message.to} is not online")

    def ask_online(self, app: App, user: str, tell: Callable[[bool], None]) -> None:
        tell(False)

    def home(self, app: str, address: str) -> Relay | None:
        return None

    def publish(
        self, home: Relay, app: App, message: Message, answer: SilentAnswer | RequestAnswer
    ) -> None:
        raise AssertionError("everything is at home here")

    def subscribe(self, home: Relay, session: Session, op: Subscribe) -> None:
        raise AssertionError("everything is at home here")

    def withdraw(self, session: Session, topic: str | None, identity: str) -> None:
        """Nothing is under way."""

    def unwatch(self, app: App, topic: str) -> None:
        """Nobody else has to know."""

    def renew(self, app: App, topic: str, epoch: str) -> None:
        """Nobody else watches."""

    def carry(self, home: Relay, session: Session, op: Op) -> None:
        raise AssertionError("everything is at home here")

    def stand(self, session: Session, op: Op) -> None:
        """Nothing moves."""

    def gave(self, session: Session) -> bool:
        return False

    def giver(self, session: Session, op: Ack | Nack | Respond | Cancel) -> Relay | None:
        return None
