"""Lending: hands the messages of a group to those in line, and takes them back."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush
from typing import TYPE_CHECKING

from chappe.errors import Overload
from chappe.queues.consumer import Consumer, Fetching, Item, Loan

if TYPE_CHECKING:
    from chappe.queues.group import Group


class Lending:
    """Who of a group's takers gets which of its messages."""

    __slots__ = ("_group", "_intake", "_queue", "_retries", "_takers")

    def __init__(self, group: Group) -> None:
        self._group = group
        self._queue = group.queue
        self._intake = group.intake
        self._retries = group.retries
        self._takers = group.takers

    def hand_out(self, now: float) -> None:
        """Give messages to those in line, one each in turn; then answer the fetches they ended."""
        if not self._retries.returned and not self._intake.more:
            return
        group, line = self._group, self._takers.line
        served: dict[Fetching, None] = {}
        passed: list[Consumer] = []
        while line and not group.closed:
            taker = next(iter(line))
            if len(line) == 1 and isinstance(taker, Consumer) and self._push_run(taker, now):
                continue
            item = self._intake.next(now, pushed=isinstance(taker, Consumer))
            if item is None:
                if isinstance(taker, Consumer) and self._queue.state.options.push_interval_s > 0:
                    # Its round is not yet come; a fetch behind it need not wait for that.
                    del line[taker]
                    passed.append(taker)
                    continue
                break
            del line[taker]
            if isinstance(taker, Fetching):
                self._serve_fetch(taker, item, now)
                if taker.got:
                    served[taker] = None
            else:
                self._push(taker, item, now)
        for consumer in passed:
            self._takers.queue_up(consumer)
        if passed:
            group.wait_for_round(now)
        for fetch in served:
            if fetch in fetch.consumer.fetches:
                self.end_fetch(fetch, now)

    def end_fetch(self, fetch: Fetching, now: float) -> None:
        """Answer a fetch with what it got."""
        self._takers.remove(fetch)
        self._queue.outlet.fetched(fetch.consumer.session, fetch.request, fetch.got)
        self._takers.queue_up(fetch.consumer)
        self.hand_out(now)

    def _push_run(self, consumer: Consumer, now: float) -> bool:
        """Hand messages to the only one who stands in line, as many as it takes together; whether
        there were any that could be."""
        retries, state, options = self._retries, self._group.state, self._queue.state.options
        if (
            retries.returned
            or retries.noting
            or state.tags is not None
            or state.headers is not None
            or options.ordered
            or options.push_interval_s
            or options.expire_s
        ):
            return False
        items = self._intake.take_run(consumer.credit - consumer.committed)
        if not items:
            return False
        ids = {item.record.id for item in items}
        if len(ids) < len(items) or not ids.isdisjoint(consumer.unacked):
            # Dead letters of another group, sent again while this one has the messages themselves.
            for item in items:
                heappush(retries.returned, item)
            return False
        line = self._takers.line
        del line[consumer]
        if not self._hand(items, consumer, now):
            # Perhaps there is room for some of them.
            line[consumer] = None
            return True
        self._takers.queue_up(consumer)
        return True

    def _serve_fetch(self, fetch: Fetching, item: Item, now: float) -> None:
        fetch.wanted -= 1
        fetch.consumer.fetching -= 1
        if self._lend(item, fetch.consumer, now):
            fetch.got += 1
            if fetch.wanted:
                self._takers.line[fetch] = None
        elif not fetch.got:
            self._takers.remove(fetch)
            self._queue.outlet.refused(
                fetch.consumer.session, fetch.request, Overload("this session's outbox is full")
            )
            self._takers.queue_up(fetch.consumer)

    def _push(self, consumer: Consumer, item: Item, now: float) -> None:
        if not self._lend(item, consumer, now):
            until = now + self._queue.limits.stall_s
            consumer.stalled = self._queue.loans.deadlines.add(until, consumer)
        self._takers.queue_up(consumer)

    def _lend(self, item: Item, consumer: Consumer, now: float) -> bool:
        """Hand a message to a consumer; if it has no room the message is the next one's again."""
        if item.record.id in consumer.unacked:
            # A dead letter of another group, sent again while this consumer has the message itself.
            heappush(self._retries.returned, item)
            return False
        return self._hand((item,), consumer, now)

    def _hand(self, items: Sequence[Item], consumer: Consumer, now: float) -> bool:
        queue, session, unacked = self._queue, consumer.session, consumer.unacked
        loans = queue.loans
        Loan(loans.deadlines, now + queue.state.options.ack_timeout_s, items)
        for item in items:
            item.consumer = consumer
            message = item.record.id
            unacked[message] = loans.lent[session, message] = item
        if queue.outlet.deliver(session, items):
            for item in items:
                item.attempts += 1
            group = self._group.state.name
            queue.recorder.lent(queue.state.app, queue.address, group, session.id, items)
            return True
        for item in items:
            self.take_back(item)
            heappush(self._retries.returned, item)
        return False

    def take_back(self, item: Item) -> Consumer:
        """A message is with its consumer no more; returns whose it was."""
        consumer = item.consumer
        assert consumer is not None, "only what is lent is taken back"
        message = item.record.id
        item.consumer = None
        if item.loan is not None:
            item.loan.end(item)
        del consumer.unacked[message], self._queue.loans.lent[consumer.session, message]
        return consumer
