"""Those who take messages of a group, and the line they stand in.

Fetches leave the line once they got something; consumers with credit left go to its end for each
message they get.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from chappe.errors import Overload
from chappe.queues.consumer import Consumer, Fetching

if TYPE_CHECKING:
    from chappe.hub.session import Session
    from chappe.queues.group import Group


class Takers:
    """The consumers of a group, and who of them wants something."""

    __slots__ = ("_group", "consumers", "fetches", "line")

    def __init__(self, group: Group) -> None:
        self._group = group
        self.consumers: dict[Session, Consumer] = {}
        self.line: OrderedDict[Fetching | Consumer, None] = OrderedDict()
        # How many there are, those that have just been served among them.
        self.fetches = 0

    def consumer(self, session: Session) -> Consumer:
        """What a session has to do with this group, from now on if it had nothing."""
        consumer = self.consumers.get(session)
        if consumer is None:
            consumer = self.consumers[session] = Consumer(self._group, session)
        return consumer

    def consuming(self) -> list[tuple[Session, int]]:
        """Who is pushed messages, and up to how many."""
        return [(session, one.credit) for session, one in self.consumers.items() if one.credit]

    @property
    def wanted(self) -> int:
        """How many messages those in line want together."""
        return sum(
            taker.wanted if isinstance(taker, Fetching) else taker.credit - taker.committed
            for taker in self.line
        )

    def queue_up(self, consumer: Consumer) -> None:
        """Put a consumer with credit at the end of the line, unless it stands there; one that is
        gone has none."""
        if consumer.wants and consumer not in self.line:
            self.line[consumer] = None

    def ask(self, session: Session, request: int | None, n: int) -> Fetching:
        """Put a fetch of up to `n` messages into the line.

        Raises Overload when the session has too many already, or too many wait.
        """
        limits = self._group.queue.limits
        consumer = self.consumer(session)
        room = limits.unacked_max - consumer.committed
        if room <= 0:
            raise Overload(
                f"{consumer.committed} messages are unacknowledged or asked for: acknowledge first"
            )
        if self.fetches >= limits.waiting_max:
            raise Overload(f"{self.fetches} fetches wait at {self._group.queue.address} already")
        fetch = Fetching(self._group, consumer, request, min(n, room))
        self.fetches += 1
        consumer.fetches[fetch] = None
        consumer.fetching += fetch.wanted
        if not consumer.wants:
            # What it asks for itself is taken from what it would be pushed.
            self.line.pop(consumer, None)
        self.line[fetch] = None
        return fetch

    def remove(self, fetch: Fetching) -> None:
        """A fetch is over."""
        self.fetches -= 1
        self.line.pop(fetch, None)
        fetch.consumer.fetching -= fetch.wanted
        del fetch.consumer.fetches[fetch]
        if fetch.deadline is not None:
            self._group.queue.loans.deadlines.cancel(fetch.deadline)

    def dismiss(self, consumer: Consumer) -> list[Fetching]:
        """Take a consumer out of the line; returns the fetches that waited for it."""
        fetches = list(consumer.fetches)
        for fetch in fetches:
            self.remove(fetch)
        consumer.credit = 0
        self.line.pop(consumer, None)
        if consumer.stalled is not None:
            self._group.queue.loans.deadlines.cancel(consumer.stalled)
            consumer.stalled = None
        return fetches
