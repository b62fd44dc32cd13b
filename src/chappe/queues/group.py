"""A group of a queue: its consumers compete, each message goes to one of them at a time (H17, Q6).

    lane --intake--> fresh ---(lending, to takers)---> lent --ack--> done --> report
                       ^                                |
      retries: returned + <--- after a while --- nack, time over, consumer gone
                                                        |
                                                        +--> dead letter, after so many attempts

No clock and no sessions here: time is an argument, an Outlet does what is to be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from chappe.errors import RequestError
from chappe.queues.consumer import Consumer, Item
from chappe.queues.intake import Intake
from chappe.queues.lending import Lending
from chappe.queues.progress import GroupState
from chappe.queues.record import Stored
from chappe.queues.report import Report
from chappe.queues.retries import Retries
from chappe.queues.takers import Takers

if TYPE_CHECKING:
    from chappe.hub.session import Session
    from chappe.queues.queue import Queue


class Group:
    """Hands the messages of a queue to consumers that compete for them."""

    def __init__(self, queue: Queue, state: GroupState) -> None:
        self.queue = queue
        self.state = state
        self.closed = False
        self.report = Report(self)
        self.retries = Retries(self)
        self.intake = Intake(self)
        self.takers = Takers(self)
        self.lending = Lending(self)
        self._woken: list[Any] | None = None

    @property
    def in_hand(self) -> int:
        """How many messages it has begun with and is not done with."""
        return self.intake.in_hand

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self.takers.line)

    def sessions(self) -> list[Session]:
        """Who takes messages, or has."""
        return list(self.takers.consumers)

    def fetch(
        self, session: Session, request: int | None, n: int, wait_s: float, now: float
    ) -> None:
        """Let a consumer have up to `n` messages: at once, or the first that come while it waits.

        Raises Overload when it has too many already, or too many wait.
        """
        queue = self.queue
        fetch = self.takers.ask(session, request, n)
        self.lending.hand_out(now)
        queue.keeper.settle()
        if fetch not in fetch.consumer.fetches:
            return
        if wait_s > 0:
            fetch.deadline = queue.loans.deadlines.add(now + wait_s, fetch)
        elif not queue.storage.immediate and self.intake.coming:
            # What is being read, or becomes durable, is there in a moment: nobody polls for it.
            fetch.deadline = queue.loans.deadlines.add(now + queue.limits.stall_s, fetch)
        else:
            self.lending.end_fetch(fetch, now)

    def consume(self, session: Session, credit: int, now: float) -> None:
        """Push messages to a consumer while it has fewer than `credit`; none more with 0."""
        consumer = self.takers.consumer(session)
        consumer.credit = credit
        self.takers.line.pop(consumer, None)
        self.takers.queue_up(consumer)
        self.lending.hand_out(now)

    def ack(self, item: Item, now: float) -> None:
        """A consumer is done with a message; it is so once that is committed."""
        consumer = self.lending.take_back(item)
        self.finish(item)
        self.queue.after(partial(self._record_acked, (item,)))
        self.resume(consumer, now)

    def ack_all(self, items: list[Item], now: float) -> None:
        """A consumer is done with messages; who lent them out has taken note of that."""
        consumer = items[0].consumer
        assert consumer is not None, "only what is lent is taken back"
        report, readers = self.report, self.intake.readers
        unacked, keyed = consumer.unacked, []
        lane, done, reader = -1, [], None
        for item in items:
            record = item.record
            if record.lane != lane:
                lane = record.lane
                done, reader = report.done.setdefault(lane, []), readers[lane]
            del unacked[record.id]
            done.append(record.seq)
            size = len(record.payload) + record.extra
            report.bytes += size
            item.consumer = None
            if item.loan is not None:
                item.loan.end(item)
            if item.key is not None:
                keyed.append(item)
            elif reader is not None:
                reader.in_hand -= 1
                reader.in_hand_bytes -= size
        self.queue.touch(self)
        self.queue.after(partial(self._record_acked, items))
        if keyed:
            self.queue.after(partial(self.intake.settle_all, keyed))
        self.resume(consumer, now)

    def _record_acked(self, items: Sequence[Item]) -> None:
        queue = self.queue
        queue.recorder.acked(queue.state.app, queue.address, self.state.name, items)

    def pass_over(self, message: Stored) -> None:
        """Be done with a message that this group does not want."""
        queue = self.queue
        self.report.add(message.lane, message.seq, len(message.payload) + message.extra)
        tell = queue.recorder.unwanted
        queue.after(partial(tell, queue.state.app, queue.address, self.state.name, message.id))

    def give_back(
        self, item: Item, now: float, reason: str = "handed back", delay_s: float = 0.0
    ) -> None:
        """A consumer did not do what was to be done: the message is tried again, or dead."""
        consumer = self.lending.take_back(item)
        self.retries.add(item, now, reason, delay_s)
        self.resume(consumer, now)

    def finish(self, item: Item) -> None:
        """Note that a message is done with; those that waited for it go on once that is durable,
        or it could come again after them."""
        record = item.record
        self.report.add(record.lane, record.seq, len(record.payload) + record.extra)
        if item.key is None:
            self.intake.settle(item)
        else:
            self.queue.after(partial(self.intake.settle, item))

    def bury(self, item: Item, reason: str) -> None:
        """A message is dead for this group."""
        self.queue.bury(item, reason)
        self.finish(item)

    def resume(self, consumer: Consumer, now: float) -> None:
        """A consumer shows that it reads, or is to be tried again."""
        if consumer.stalled is not None:
            self.queue.loans.deadlines.cancel(consumer.stalled)
            consumer.stalled = None
        self.takers.queue_up(consumer)
        self.lending.hand_out(now)

    def leave(self, session: Session, now: float) -> None:
        """A consumer is gone: what it did not acknowledge goes to the next, in order, as soon as
        deadlines are looked at.

        Many may leave together, as when a link breaks: what one had must not be tried, and counted,
        on each of the others that go in the same turn.
        """
        consumer = self.takers.consumers.pop(session, None)
        if consumer is None:
            return
        self.takers.dismiss(consumer)
        for item in list(consumer.unacked.values()):
            self.lending.take_back(item)
            self.retries.add(item, now, "its consumer went away", at_once=False)

    def release(self, session: Session) -> bool:
        """Let go of a consumer that has nothing and wants nothing; whether it did."""
        consumer = self.takers.consumers.get(session)
        if consumer is None or consumer.unacked or consumer.fetches or consumer.credit:
            return False
        del self.takers.consumers[session]
        self.takers.dismiss(consumer)
        return True

    def hand_out_soon(self) -> None:
        """Hand out what there is, at the end of this turn of the loop."""
        self.queue.hand_out_soon(self)

    def read_later(self) -> None:
        """What could not be read is tried again after a while."""
        self._wake(self.queue.keeper.now + self.queue.limits.stall_s)

    def wait_for_round(self, now: float) -> None:
        """Look again when a lane may push its next message."""
        when = self.intake.next_round(now)
        if when is not None and self._woken is None:
            self._wake(when)

    def _wake(self, when: float) -> None:
        """Look again then."""
        if self._woken is not None:
            self.queue.loans.deadlines.cancel(self._woken)
        self._woken = self.queue.loans.deadlines.add(when, self)

    def lapse(self, now: float) -> None:
        """A lane may push again, or be read again: hand out what there is."""
        self._woken = None
        self.lending.hand_out(now)

    def close(self, error: RequestError | None) -> list[Session]:
        """Let go of everything, answer those who wait; returns who was a consumer."""
        self.closed = True
        takers, sessions = self.takers, self.sessions()
        for consumer in takers.consumers.values():
            for fetch in takers.dismiss(consumer):
                if error is not None:
                    self.queue.outlet.refused(consumer.session, fetch.request, error)
            for item in list(consumer.unacked.values()):
                self.lending.take_back(item)
        if self._woken is not None:
            self.queue.loans.deadlines.cancel(self._woken)
        takers.consumers.clear()
        self.retries.close()
        self.intake.keys.clear()
        return sessions
