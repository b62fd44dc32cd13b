"""A work queue (H17): each message goes to the next waiting consumer, and to one at a time.

    send --> fresh ----(next in line)----> lent --ack--> gone
                ^                            |
    returned ---+  <----nack, time over, ----+----> dropped, after so many attempts
                          consumer gone

What is fresh has never been lent, so it is younger than all that was returned: a heap of the
returned and a queue of the fresh give the oldest first. Those who want something stand in one
line: fetches, which leave it once they got something, and consumers with credit left, which go
to its end for each message they get.

No clock and no sessions here: time is an argument, an Outlet does what is to be done.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

from chappe.endpoints.consumer import Consumer, Fetching, Item, Loans
from chappe.endpoints.limits import QueueLimits, QueueOptions
from chappe.errors import BadRequest, Overload, RequestError
from chappe.message import Message

if TYPE_CHECKING:
    from chappe.hub.session import Session


class Outlet(Protocol):
    """Where a queue's decisions are carried out."""

    def deliver(self, session: Session, message: Message) -> bool:
        """Hand a message to a consumer; False when there is no room for it."""
        ...

    def fetched(self, session: Session, request: int | None, n: int) -> None:
        """A fetch is over and brought so many."""
        ...

    def refused(self, session: Session, request: int | None, error: RequestError) -> None:
        """A fetch that waited is answered with an error."""
        ...

    def dropped(self, reason: str, messages: int) -> None:
        """Messages were lost, and why."""
        ...


class WorkQueue:
    """The messages of one queue, and who waits for them."""

    def __init__(
        self,
        address: str,
        options: QueueOptions,
        limits: QueueLimits,
        loans: Loans,
        outlet: Outlet,
    ) -> None:
        self.address = address
        self.options = options
        self.depth = 0
        self.bytes = 0
        self._limits = limits
        self._loans = loans
        self._outlet = outlet
        self._serial = 0
        self._fresh: deque[Item] = deque()
        self._returned: list[Item] = []
        self._consumers: dict[Session, Consumer] = {}
        self._line: OrderedDict[Fetching | Consumer, None] = OrderedDict()
        self._fetches = 0
        self._woken: list[Any] | None = None

    def send(self, message: Message, now: float) -> None:
        """Take a message; raises Overload when there is no room, BadRequest if there never is."""
        size, options = len(message.payload), self.options
        if size > options.bytes_max:
            raise BadRequest(f"data: {size} bytes, {self.address} holds {options.bytes_max}")
        if self.depth >= options.depth_max:
            raise Overload(f"{self.address} holds {self.depth} messages already")
        if self.bytes + size > options.bytes_max:
            raise Overload(f"{self.address} holds {self.bytes} bytes already")
        if self._loans.bytes_held + size > self._limits.bytes_max:
            raise Overload("the queues of this node are full")
        self.depth += 1
        self.bytes += size
        self._loans.bytes_held += size
        self._serial += 1
        self._fresh.append(Item(self, self._serial, message))
        self._hand_out(now)

    def fetch(
        self, session: Session, request: int | None, n: int, wait_s: float, now: float
    ) -> None:
        """Let a consumer have up to `n` messages: at once, or the first that come while it waits.

        Raises Overload when it has too many already, or too many wait.
        """
        consumer = self._consumer(session)
        room = self._limits.unacked_max - consumer.committed
        if room <= 0:
            raise Overload(
                f"{consumer.committed} messages are unacknowledged or asked for: acknowledge first"
            )
        if self._fetches >= self._limits.waiting_max:
            raise Overload(f"{self._fetches} fetches wait at {self.address} already")
        fetch = Fetching(self, consumer, request, min(n, room))
        self._fetches += 1
        consumer.fetches[fetch] = None
        consumer.fetching += fetch.wanted
        if not consumer.wants:
            # What it asks for itself is taken from what it would be pushed.
            self._line.pop(consumer, None)
        self._line[fetch] = None
        self._hand_out(now)
        if fetch in consumer.fetches:
            if wait_s > 0:
                fetch.deadline = self._loans.deadlines.add(now + wait_s, fetch)
            else:
                self.end_fetch(fetch, now)

    def consume(self, session: Session, credit: int, now: float) -> None:
        """Push messages to a consumer while it has fewer than `credit`; none more with 0."""
        consumer = self._consumer(session)
        consumer.credit = credit
        self._line.pop(consumer, None)
        self._queue_up(consumer)
        self._hand_out(now)

    def ack(self, item: Item, now: float) -> None:
        """A consumer is done with a message."""
        consumer = self._take_back(item)
        self._forget(item)
        self.resume(consumer, now)

    def give_back(self, item: Item, now: float) -> None:
        """A consumer did not do what was to be done: the message goes to the next."""
        consumer = self._take_back(item)
        self._return(item)
        self.resume(consumer, now)

    def end_fetch(self, fetch: Fetching, now: float) -> None:
        """Answer a fetch with what it got."""
        self._remove_fetch(fetch)
        self._outlet.fetched(fetch.consumer.session, fetch.request, fetch.got)
        self._queue_up(fetch.consumer)
        self._hand_out(now)

    def resume(self, consumer: Consumer, now: float) -> None:
        """A consumer shows that it reads, or is to be tried again."""
        if consumer.stalled is not None:
            self._loans.deadlines.cancel(consumer.stalled)
            consumer.stalled = None
        self._queue_up(consumer)
        self._hand_out(now)

    def leave(self, session: Session, now: float) -> None:
        """A consumer is gone: what it did not acknowledge goes to the next, in order, as soon as
        deadlines are looked at."""
        consumer = self._consumers.pop(session, None)
        if consumer is None:
            return
        self._dismiss(consumer)
        for item in list(consumer.unacked.values()):
            self._take_back(item)
            self._return(item)
        if self._woken is None and self._returned:
            # Many may leave together, as when a link breaks: what one had must not be tried, and
            # counted, on each of the others that go in the same turn.
            self._woken = self._loans.deadlines.add(now, self)

    def lapse(self, now: float) -> None:
        """All who leave together have left: hand out what they had."""
        self._woken = None
        self._hand_out(now)

    def give_up(self) -> list[Message]:
        """Let go of all messages, in order: the queue lives elsewhere now."""
        items = [*self._fresh, *self._returned]
        for consumer in self._consumers.values():
            for item in list(consumer.unacked.values()):
                self._take_back(item)
                items.append(item)
        for item in items:
            self._forget(item)
        self._fresh.clear()
        self._returned.clear()
        return [item.message for item in sorted(items)]

    def close(self, error: RequestError) -> list[Session]:
        """Drop everything, answer those who wait; returns who was a consumer."""
        sessions = list(self._consumers)
        for consumer in self._consumers.values():
            for fetch in self._dismiss(consumer):
                self._outlet.refused(consumer.session, fetch.request, error)
            for item in list(consumer.unacked.values()):
                self._take_back(item)
        if self._woken is not None:
            self._loans.deadlines.cancel(self._woken)
        self._consumers.clear()
        self._fresh.clear()
        self._returned.clear()
        if self.depth:
            self._outlet.dropped("queue_removed", self.depth)
        self._loans.bytes_held -= self.bytes
        self.depth = self.bytes = 0
        return sessions

    def _consumer(self, session: Session) -> Consumer:
        consumer = self._consumers.get(session)
        if consumer is None:
            consumer = self._consumers[session] = Consumer(self, session)
        return consumer

    def _queue_up(self, consumer: Consumer) -> None:
        """Put a consumer with credit at the end of the line, unless it stands there; one that is
        gone has none."""
        if consumer.wants and consumer not in self._line:
            self._line[consumer] = None

    def _hand_out(self, now: float) -> None:
        """Give messages to those in line, one each in turn; then answer the fetches they ended."""
        served: dict[Fetching, None] = {}
        while self._line and (self._returned or self._fresh):
            taker, _ = self._line.popitem(last=False)
            item = heappop(self._returned) if self._returned else self._fresh.popleft()
            if isinstance(taker, Fetching):
                self._serve_fetch(taker, item, now)
                if taker.got:
                    served[taker] = None
            else:
                self._push(taker, item, now)
        for fetch in served:
            if fetch in fetch.consumer.fetches:
                self.end_fetch(fetch, now)

    def _serve_fetch(self, fetch: Fetching, item: Item, now: float) -> None:
        fetch.wanted -= 1
        fetch.consumer.fetching -= 1
        if self._lend(item, fetch.consumer, now):
            fetch.got += 1
            if fetch.wanted:
                self._line[fetch] = None
        elif not fetch.got:
            self._remove_fetch(fetch)
            self._outlet.refused(
                fetch.consumer.session, fetch.request, Overload("this session's outbox is full")
            )
            self._queue_up(fetch.consumer)

    def _push(self, consumer: Consumer, item: Item, now: float) -> None:
        if not self._lend(item, consumer, now):
            until = now + self._limits.stall_s
            consumer.stalled = self._loans.deadlines.add(until, consumer)
        self._queue_up(consumer)

    def _lend(self, item: Item, consumer: Consumer, now: float) -> bool:
        """Hand a message to a consumer; if it has no room the message is the next one's again."""
        loans, message = self._loans, item.message
        item.consumer = consumer
        item.deadline = loans.deadlines.add(now + self.options.ack_timeout_s, item)
        consumer.unacked[message.id] = loans.lent[message.id] = item
        if self._outlet.deliver(consumer.session, message):
            item.attempts += 1
            return True
        self._take_back(item)
        heappush(self._returned, item)
        return False

    def _take_back(self, item: Item) -> Consumer:
        consumer = item.consumer
        assert consumer is not None, "only what is lent is taken back"
        item.consumer = None
        self._loans.deadlines.cancel(item.deadline)
        del consumer.unacked[item.message.id], self._loans.lent[item.message.id]
        return consumer

    def _return(self, item: Item) -> None:
        if item.attempts >= self.options.attempts_max:
            self._forget(item)
            self._outlet.dropped("attempts", 1)
        else:
            heappush(self._returned, item)

    def _forget(self, item: Item) -> None:
        size = len(item.message.payload)
        self.depth -= 1
        self.bytes -= size
        self._loans.bytes_held -= size

    def _remove_fetch(self, fetch: Fetching) -> None:
        self._fetches -= 1
        self._line.pop(fetch, None)
        fetch.consumer.fetching -= fetch.wanted
        del fetch.consumer.fetches[fetch]
        if fetch.deadline is not None:
            self._loans.deadlines.cancel(fetch.deadline)

    def _dismiss(self, consumer: Consumer) -> list[Fetching]:
        """Take a consumer out of the line; returns the fetches that waited for it."""
        fetches = list(consumer.fetches)
        for fetch in fetches:
            self._remove_fetch(fetch)
        consumer.credit = 0
        self._line.pop(consumer, None)
        if consumer.stalled is not None:
            self._loans.deadlines.cancel(consumer.stalled)
            consumer.stalled = None
        return fetches
