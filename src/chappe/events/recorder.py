"""What happens to messages and sessions, told to whoever keeps it.

The hub tells a recorder once per batch, never once per delivery: a fan-out is one call with counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from chappe.message import Message


class Queued(Protocol):
    """A message that a queue keeps."""

    id: int
    sender: str
    ts_ms: int
    payload: bytes
    due_ms: int | None


class Lent(Protocol):
    """A message of a queue in the hands of a group."""

    # How often it was handed out.
    attempts: int

    @property
    def record(self) -> Queued:
        """The message."""
        ...


class Recorder(Protocol):
    """Keeps the events of a node. Times are microseconds since 1970."""

    # When the tick began that is under way, set by the hub: what is told next came then.
    came: int

    def tell(self, kind: str, app: str, **columns: object) -> None:
        """Such a thing happened: of a kind that is told seldom enough to need no words of its own.

        Columns are called as in the schema, which also says whether it is told of every message, or
        of those that are sampled: by their ids, as everywhere.
        """
        ...

    def tell_each(
        self,
        kind: str,
        app: str,
        count: int,
        each: Mapping[str, Sequence[object]],
        **columns: object,
    ) -> None:
        """Such a thing happened so many times at once: columns of `each` have a value for each of
        them, the others are the same for all. Of kinds that are not sampled."""
        ...

    def session_opened(self, app: str, address: str, session: str, edge: str) -> None:
        """An endpoint said hello."""
        ...

    def session_closed(
        self, app: str, address: str, session: str, edge: str, code: int, opened: int
    ) -> None:
        """An endpoint's session ended; it had been opened at that time."""
        ...

    def sent(
        self,
        app: str,
        messages: Sequence[Message],
        receivers: int,
        came_from: str = "",
        went_to: Sequence[str] = (),
    ) -> None:
        """Messages to a single receiver were each taken into at least one outbox, and handed to
        these nodes, where the receiver has more sessions."""
        ...

    def queued(self, app: str, queue: str, messages: Sequence[Queued]) -> None:
        """Messages were taken for a queue; they are in it once they are durable."""
        ...

    def published(
        self,
        app: str,
        messages: Sequence[Message],
        receivers: int,
        came_from: str = "",
        went_to: Sequence[str] = (),
    ) -> None:
        """Messages to one topic were each put into the outboxes of that many sessions, and handed
        to these nodes."""
        ...

    def forwarded(
        self,
        app: str,
        messages: Sequence[Message],
        came_from: str,
        went_to: Sequence[str],
        *,
        promised: bool,
        role: str = "",
        taken_as: str = "",
    ) -> None:
        """Messages to one address were handed to other nodes and to nobody here: those that take
        them count them. `promised`: to a user, else to a topic; or to a room, by that role, and
        taken by another of this node."""
        ...

    def copied(self, app: str, message: Message, came_from: str, taken_as: str = "") -> None:
        """A message to a room came to a gateway that had it before; it is one of several copies."""
        ...

    def declined(self, app: str, messages: Sequence[Message], reason: str) -> None:
        """Messages that another node handed over have no receiver here, or no room: it knows."""
        ...

    def refused(self, app: str, error: str) -> None:
        """A request was answered with an error, or would have been, had it an id."""
        ...

    def dropped(
        self,
        app: str,
        reason: str,
        messages: int,
        target: str = "",
        ids: Sequence[int] = (),
        role: str = "",
    ) -> None:
        """Messages were lost on their way out to somebody, and why; which ones, if it is known. By
        that role, if they were to a room and on their way to its gateways."""
        ...

    def handed(
        self,
        app: str,
        queue: str,
        message: int,
        sender: str,
        size: int,
        came: int,
        at: int,
        home: str,
    ) -> None:
        """A message that came at that time was handed to the node that its queue lives on, which
        has stored it by now."""
        ...

    def stored(
        self, app: str, queue: str, messages: Sequence[Queued], came: int, came_from: str = ""
    ) -> None:
        """Messages that came at that time, maybe from another node, are in a queue, durably."""
        ...

    def lent(self, app: str, queue: str, group: str, session: str, items: Sequence[Lent]) -> None:
        """Messages of a queue were handed to a consumer."""
        ...

    def acked(self, app: str, queue: str, group: str, items: Sequence[Lent]) -> None:
        """A group is done with messages, durably."""
        ...

    def unwanted(self, app: str, queue: str, group: str, message: int) -> None:
        """A group of a queue passes over a message: it wants others."""
        ...

    def returned(self, app: str, queue: str, group: str, item: Lent, reason: str) -> None:
        """A consumer did not do what was to be done: the message is tried again."""
        ...

    def died(
        self, app: str, queue: str, message: int, group: str, attempts: int, reason: str
    ) -> None:
        """A message is a dead letter, durably."""
        ...

    def cancelled(self, app: str, queue: str, message: int) -> None:
        """A delayed message was taken back, durably."""
        ...

    def replayed(self, app: str, queue: str, message: int) -> None:
        """A dead letter is sent once more."""
        ...

    def purged(self, app: str, queue: str, message: int | None, count: int = 1) -> None:
        """A dead letter is gone for good; or so many of them, whichever they are."""
        ...

    def recovered(self, app: str, queue: str, count: int) -> None:
        """A broker goes on with a queue that has so many messages, after a start, or instead of
        another node."""
        ...

    def retold(
        self,
        kind: str,
        app: str,
        queue: str,
        message: Queued,
        at: int,
        group: str,
        attempts: int,
        reason: str,
    ) -> None:
        """Such a thing happened to a message of a queue in an earlier life of this node, which had
        no time to tell it."""
        ...

    def caught_up(self) -> None:
        """All such things of a broker are told."""
        ...

    def asked(
        self,
        app: str,
        request: str,
        sender: str,
        service: str,
        session: str,
        size: int,
        came: int,
        came_from: str = "",
        went_to: Sequence[str] = (),
    ) -> None:
        """A request came to the node that hands it to a provider, or to the node that does."""
        ...

    def answered(
        self, app: str, request: str, came: int, reason: str = "", came_from: str = ""
    ) -> None:
        """A request that came at that time was answered: well, or why not."""
        ...

    def user_gone(self, app: str, address: str) -> None:
        """A user has had no session in the cluster for longer than the grace time."""
        ...

    def user_came(self, app: str, address: str) -> None:
        """A user has a session in the cluster and had none before."""
        ...

    def hooked(self, app: str, outcome: str) -> None:
        """An app's own server was told of such a thing, or was not: what became of it."""
        ...

    def link_up(self, peer: str) -> None:
        """A link to a node is there."""
        ...

    def link_down(self, peer: str, reason: str) -> None:
        """A link to a node is not there any more."""
        ...

    def link_beat(self, peer: str, ahead_us: int, round_trip_us: int) -> None:
        """A beat came back over a link: how far the peer's clock is ahead, and how long it took."""
        ...
