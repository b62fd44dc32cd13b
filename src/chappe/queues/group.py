"""A group of a queue: its consumers compete, each message goes to one of them at a time (H17, Q6).

    lane --reader--> fresh ----(next in line)----> lent --ack--> done
                       ^                            |
         returned -----+ <-- after a while -- nack, time over, consumer gone
                                                    |
                                                    +--> dead letter, after so many attempts

Those who want something stand in one line: fetches, which leave it once they got something, and
consumers with credit left, which go to its end for each message they get. A message with a key
holds back the others of its key until it is done or dead; nothing else waits for it.

No clock and no sessions here: time is an argument, an Outlet does what is to be done.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from chappe.errors import Overload, RequestError
from chappe.queues.consumer import Consumer, Fetching, Item, Loan
from chappe.queues.filter import wants
from chappe.queues.progress import GroupState, ranges_of
from chappe.queues.reader import Reader
from chappe.queues.record import Done, Stored, Tried

if TYPE_CHECKING:
    from chappe.hub.session import Session
    from chappe.queues.queue import Queue

# Marks move ahead in blocks of so many.
_MARK_BLOCK = 1_000
# What is handed to a consumer at once, besides one message.
_RUN_BYTES_MAX = 256 * 1024


class Group:
    """Hands the messages of a queue to consumers that compete for them."""

    def __init__(self, queue: Queue, state: GroupState) -> None:
        self.queue = queue
        self.state = state
        self.closed = False
        self._readers: dict[int, Reader] = {}
        # Whose turn it is among the lanes.
        self._ring: deque[Reader] = deque()
        self._returned: list[Item] = []
        # Those of before a start for which an attempt is being written down.
        self._noting: dict[Item, None] = {}
        # What waits for the time of its next try.
        self._resting: dict[Item, None] = {}
        self._keys: dict[object, deque[Item]] = {}
        self._consumers: dict[Session, Consumer] = {}
        self._line: OrderedDict[Fetching | Consumer, None] = OrderedDict()
        self._fetches = 0
        # What the next commit says of this group: what is done, and how far marks have to be.
        self._done: dict[int, list[int]] = {}
        self._done_bytes = 0
        self._marks: dict[int, int] = {}
        self._woken: list[Any] | None = None
        for lane in queue.state.lanes:
            self.add_lane(lane)

    def add_lane(self, lane: int) -> None:
        """Read a lane more."""
        if lane not in self._readers:
            reader = self._readers[lane] = Reader(self, lane)
            self._ring.append(reader)

    @property
    def in_hand(self) -> int:
        """How many messages it has begun with and is not done with."""
        return sum(reader.in_hand for reader in self._readers.values())

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line)

    def consuming(self) -> list[tuple[Session, int]]:
        """Who is pushed messages, and up to how many."""
        return [(session, one.credit) for session, one in self._consumers.items() if one.credit]

    def sessions(self) -> list[Session]:
        """Who takes messages, or has."""
        return list(self._consumers)

    def offer(self, lane: int, messages: list[Stored]) -> None:
        """Messages were stored in a lane."""
        self._readers[lane].offer(messages)

    def fetch(
        self, session: Session, request: int | None, n: int, wait_s: float, now: float
    ) -> None:
        """Let a consumer have up to `n` messages: at once, or the first that come while it waits.

        Raises Overload when it has too many already, or too many wait.
        """
        limits = self.queue.limits
        consumer = self._consumer(session)
        room = limits.unacked_max - consumer.committed
        if room <= 0:
            raise Overload(
                f"{consumer.committed} messages are unacknowledged or asked for: acknowledge first"
            )
        if self._fetches >= limits.waiting_max:
            raise Overload(f"{self._fetches} fetches wait at {self.queue.address} already")
        fetch = Fetching(self, consumer, request, min(n, room))
        self._fetches += 1
        consumer.fetches[fetch] = None
        consumer.fetching += fetch.wanted
        if not consumer.wants:
            # What it asks for itself is taken from what it would be pushed.
            self._line.pop(consumer, None)
        self._line[fetch] = None
        self.hand_out(now)
        self.queue.keeper.settle()
        if fetch not in consumer.fetches:
            return
        if wait_s > 0:
            fetch.deadline = self.queue.loans.deadlines.add(now + wait_s, fetch)
        elif self._about_to_come():
            # What is being read, or becomes durable, is there in a moment: nobody polls for it.
            fetch.deadline = self.queue.loans.deadlines.add(now + limits.stall_s, fetch)
        else:
            self.end_fetch(fetch, now)

    def _about_to_come(self) -> bool:
        """Whether there is more in the lanes than could be handed out at once."""
        if self.queue.storage.immediate:
            return False
        return any(reader.coming for reader in self._readers.values())

    def consume(self, session: Session, credit: int, now: float) -> None:
        """Push messages to a consumer while it has fewer than `credit`; none more with 0."""
        consumer = self._consumer(session)
        consumer.credit = credit
        self._line.pop(consumer, None)
        self._queue_up(consumer)
        self.hand_out(now)

    def ack(self, item: Item, now: float) -> None:
        """A consumer is done with a message; it is so once that is committed."""
        consumer = self._take_back(item)
        self.finish(item)
        self.resume(consumer, now)

    def ack_all(self, items: list[Item], now: float) -> None:
        """A consumer is done with messages; who lent them out has taken note of that."""
        consumer = items[0].consumer
        assert consumer is not None, "only what is lent is taken back"
        unacked, keyed = consumer.unacked, []
        lane, done, reader = -1, [], None
        for item in items:
            record = item.record
            if record.lane != lane:
                lane = record.lane
                done, reader = self._done.setdefault(lane, []), self._readers[lane]
            del unacked[record.id]
            done.append(record.seq)
            size = len(record.payload)
            self._done_bytes += size
            item.consumer = None
            if item.loan is not None:
                item.loan.end(item)
            if item.key is not None:
                keyed.append(item)
            elif reader is not None:
                reader.in_hand -= 1
                reader.in_hand_bytes -= size
        self.queue.touch(self)
        if keyed:
            self.queue.after(partial(self._settle_all, keyed))
        self.resume(consumer, now)

    def give_back(
        self, item: Item, now: float, reason: str = "handed back", delay_s: float = 0.0
    ) -> None:
        """A consumer did not do what was to be done: the message is tried again, or dead."""
        consumer = self._take_back(item)
        self._return(item, now, reason, delay_s)
        self.resume(consumer, now)

    def try_again(self, item: Item) -> None:
        """Hand a message out once more, as soon as that is written down."""
        record = item.record
        self._resting.pop(item, None)
        if self.closed:
            return
        if item.attempts >= self.queue.state.options.attempts_max:
            self._noting.pop(item, None)
            self._bury(item, "attempts")
            return
        tried = Tried(record.queue, record.lane, self.state.name, record.seq, item.attempts + 1)
        self.queue.add(tried)
        self.queue.after(lambda: self._ready(item))

    def _ready(self, item: Item) -> None:
        self._noting.pop(item, None)
        if not self.closed:
            heappush(self._returned, item)
            self.hand_out_soon()

    def end_fetch(self, fetch: Fetching, now: float) -> None:
        """Answer a fetch with what it got."""
        self._remove_fetch(fetch)
        self.queue.outlet.fetched(fetch.consumer.session, fetch.request, fetch.got)
        self._queue_up(fetch.consumer)
        self.hand_out(now)

    def resume(self, consumer: Consumer, now: float) -> None:
        """A consumer shows that it reads, or is to be tried again."""
        if consumer.stalled is not None:
            self.queue.loans.deadlines.cancel(consumer.stalled)
            consumer.stalled = None
        self._queue_up(consumer)
        self.hand_out(now)

    def leave(self, session: Session, now: float) -> None:
        """A consumer is gone: what it did not acknowledge goes to the next, in order, as soon as
        deadlines are looked at.

        Many may leave together, as when a link breaks: what one had must not be tried, and counted,
        on each of the others that go in the same turn.
        """
        consumer = self._consumers.pop(session, None)
        if consumer is None:
            return
        self._dismiss(consumer)
        for item in list(consumer.unacked.values()):
            self._take_back(item)
            self._return(item, now, "its consumer went away", at_once=False)

    def release(self, session: Session) -> bool:
        """Let go of a consumer that has nothing and wants nothing; whether it did."""
        consumer = self._consumers.get(session)
        if consumer is None or consumer.unacked or consumer.fetches or consumer.credit:
            return False
        del self._consumers[session]
        self._dismiss(consumer)
        return True

    def lapse(self, now: float) -> None:
        """A lane may push again, or be read again: hand out what there is."""
        self._woken = None
        self.hand_out(now)

    def close(self, error: RequestError | None) -> list[Session]:
        """Let go of everything, answer those who wait; returns who was a consumer."""
        self.closed = True
        sessions = list(self._consumers)
        deadlines = self.queue.loans.deadlines
        for consumer in self._consumers.values():
            for fetch in self._dismiss(consumer):
                if error is not None:
                    self.queue.outlet.refused(consumer.session, fetch.request, error)
            for item in list(consumer.unacked.values()):
                self._take_back(item)
        for item in self._resting:
            if item.deadline is not None:
                deadlines.cancel(item.deadline)
        if self._woken is not None:
            deadlines.cancel(self._woken)
        self._resting.clear()
        self._consumers.clear()
        self._returned.clear()
        self._keys.clear()
        return sessions

    def wants(self, message: Stored) -> bool:
        """Whether a message is for this group."""
        return wants(self.state, message)

    def skip(self, lane: int, seq: int, size: int) -> None:
        """A message is not for this group."""
        self._done.setdefault(lane, []).append(seq)
        self._done_bytes += size
        self.queue.touch(self)

    def lost(self, lane: int, seqs: list[int]) -> None:
        """Messages are not there any more: done with by the others, or damaged."""
        if seqs:
            self._done.setdefault(lane, []).extend(seqs)
            self.queue.touch(self)

    def want_mark(self, reader: Reader) -> None:
        """A reader must not go on before its mark is further."""
        self._marks[reader.lane] = reader.ahead
        self.queue.touch(self)

    def records(self) -> list[Done | Tried]:
        """What the next commit has to say of this group."""
        number, name = self.queue.state.number, self.state.name
        said: list[Done | Tried] = []
        ahead = _MARK_BLOCK if self.queue.storage.marks_ahead else 0
        for lane, mark in self._marks.items():
            said.append(Tried(number, lane, name, mark + ahead))
        self._marks.clear()
        size, self._done_bytes = self._done_bytes, 0
        for lane, seqs in self._done.items():
            seqs.sort()
            said.append(Done(number, lane, name, ranges_of(seqs), size))
            size = 0
        self._done = {}
        return said

    def granted(self, lane: int, mark: int) -> None:
        """A mark is committed."""
        reader = self._readers.get(lane)
        if reader is not None:
            reader.granted = max(reader.granted, mark)

    def finish(self, item: Item) -> None:
        """Note that a message is done with; those that waited for it go on once that is durable,
        or it could come again after them."""
        record = item.record
        self._done.setdefault(record.lane, []).append(record.seq)
        self._done_bytes += len(record.payload)
        self.queue.touch(self)
        if item.key is None:
            self._settle(item)
        else:
            self.queue.after(lambda: self._settle(item))

    def hand_out_soon(self) -> None:
        """Hand out what there is, at the end of this turn of the loop."""
        self.queue.hand_out_soon(self)

    def hand_out(self, now: float) -> None:
        """Give messages to those in line, one each in turn; then answer the fetches they ended."""
        if not self._returned and not any(reader.more for reader in self._ring):
            return
        served: dict[Fetching, None] = {}
        passed: list[Consumer] = []
        while self._line and not self.closed:
            taker = next(iter(self._line))
            if len(self._line) == 1 and isinstance(taker, Consumer) and self._push_run(taker, now):
                continue
            item = self._next(now, pushed=isinstance(taker, Consumer))
            if item is None:
                if isinstance(taker, Consumer) and self.queue.state.options.push_interval_s > 0:
                    # Its round is not yet come; a fetch behind it need not wait for that.
                    del self._line[taker]
                    passed.append(taker)
                    continue
                break
            del self._line[taker]
            if isinstance(taker, Fetching):
                self._serve_fetch(taker, item, now)
                if taker.got:
                    served[taker] = None
            else:
                self._push(taker, item, now)
        for consumer in passed:
            self._queue_up(consumer)
        if passed:
            self._wake_for_round(now)
        for fetch in served:
            if fetch in fetch.consumer.fetches:
                self.end_fetch(fetch, now)

    def _push_run(self, consumer: Consumer, now: float) -> bool:
        """Hand messages to the only one who stands in line, as many as it takes together; whether
        there were any that could be."""
        state, options = self.state, self.queue.state.options
        if (
            self._returned
            or self._noting
            or state.tags is not None
            or state.headers is not None
            or options.ordered
            or options.push_interval_s
            or options.expire_s
        ):
            return False
        wanted, unacked = consumer.credit - consumer.committed, consumer.unacked
        share, bytes_max = -(-wanted // len(self._ring)), _RUN_BYTES_MAX // len(self._ring)
        items: list[Item] = []
        for reader in self._ring:
            taken = reader.take_plain(min(share, wanted - len(items)), bytes_max)
            items += [Item(self, record, 0, None) for record in taken]
        self._ring.rotate(-1)
        if any(item.record.id in unacked for item in items):
            # Dead letters of another group, sent again while this consumer has the messages.
            for item in items:
                heappush(self._returned, item)
            return False
        if not items:
            return False
        del self._line[consumer]
        if not self._hand(items, consumer, now):
            # Perhaps there is room for some of them.
            self._line[consumer] = None
            return True
        self._queue_up(consumer)
        return True

    def _next(self, now: float, *, pushed: bool) -> Item | None:
        """The next message to hand out: one that comes again, or else a fresh one."""
        if self._returned:
            return heappop(self._returned)
        interval_s = self.queue.state.options.push_interval_s if pushed else 0.0
        for _ in range(len(self._ring)):
            reader = self._ring[0]
            self._ring.rotate(-1)
            if interval_s and reader.ready_at > now:
                continue
            item = self._fresh(reader, now)
            if item is not None:
                if interval_s:
                    reader.ready_at = now + interval_s
                return item
        return None

    def _fresh(self, reader: Reader, now: float) -> Item | None:
        options = self.queue.state.options
        while not self._sated(reader) and (record := reader.take()) is not None:
            key = self._key(record)
            item = Item(self, record, reader.attempts_of(record.seq), key)
            reader.in_hand += 1
            reader.in_hand_bytes += len(record.payload)
            if key is not None:
                waiting = self._keys.get(key)
                if waiting is not None:
                    waiting.append(item)
                    continue
                self._keys[key] = deque()
            if options.expire_s and self.queue.now_ms - record.ts_ms > options.expire_s * 1000:
                self._bury(item, "expired")
            elif reader.is_noted(record.seq):
                return item
            else:
                self._noting[item] = None
                self.try_again(item)
        return None

    def _sated(self, reader: Reader) -> bool:
        """Whether attempts are being written down for as many messages as are wanted: one that is
        handed to nobody must not have an attempt counted."""
        if not self._noting or reader.noted_next:
            return False
        wanted = sum(
            taker.wanted if isinstance(taker, Fetching) else taker.credit - taker.committed
            for taker in self._line
        )
        return len(self._noting) >= wanted

    def _key(self, record: Stored) -> object:
        if self.queue.state.options.ordered:
            return record.lane
        return record.key

    def _settle_all(self, items: list[Item]) -> None:
        for item in items:
            self._settle(item)

    def _settle(self, item: Item) -> None:
        """A message has left the group's hands: the next of its key may go."""
        reader = self._readers[item.record.lane]
        reader.in_hand -= 1
        reader.in_hand_bytes -= len(item.record.payload)
        if item.key is None or self.closed:
            return
        waiting = self._keys[item.key]
        if waiting:
            following = waiting.popleft()
            if reader.is_noted(following.record.seq):
                heappush(self._returned, following)
            else:
                self.try_again(following)
        else:
            del self._keys[item.key]

    def _bury(self, item: Item, reason: str) -> None:
        """A message is dead for this group."""
        self.queue.bury(item, reason)
        self.finish(item)

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

    def _serve_fetch(self, fetch: Fetching, item: Item, now: float) -> None:
        fetch.wanted -= 1
        fetch.consumer.fetching -= 1
        if self._lend(item, fetch.consumer, now):
            fetch.got += 1
            if fetch.wanted:
                self._line[fetch] = None
        elif not fetch.got:
            self._remove_fetch(fetch)
            self.queue.outlet.refused(
                fetch.consumer.session, fetch.request, Overload("this session's outbox is full")
            )
            self._queue_up(fetch.consumer)

    def _push(self, consumer: Consumer, item: Item, now: float) -> None:
        if not self._lend(item, consumer, now):
            until = now + self.queue.limits.stall_s
            consumer.stalled = self.queue.loans.deadlines.add(until, consumer)
        self._queue_up(consumer)

    def _lend(self, item: Item, consumer: Consumer, now: float) -> bool:
        """Hand a message to a consumer; if it has no room the message is the next one's again."""
        if item.record.id in consumer.unacked:
            # A dead letter of another group, sent again while this consumer has the message itself.
            heappush(self._returned, item)
            return False
        return self._hand((item,), consumer, now)

    def _hand(self, items: Sequence[Item], consumer: Consumer, now: float) -> bool:
        loans, session, unacked = self.queue.loans, consumer.session, consumer.unacked
        Loan(loans.deadlines, now + self.queue.state.options.ack_timeout_s, items)
        for item in items:
            item.consumer = consumer
            message = item.record.id
            unacked[message] = loans.lent[session, message] = item
        if self.queue.outlet.deliver(session, items):
            for item in items:
                item.attempts += 1
            return True
        for item in items:
            self._take_back(item)
            heappush(self._returned, item)
        return False

    def _take_back(self, item: Item) -> Consumer:
        consumer = item.consumer
        assert consumer is not None, "only what is lent is taken back"
        loans, message = self.queue.loans, item.record.id
        item.consumer = None
        if item.loan is not None:
            item.loan.end(item)
        del consumer.unacked[message], loans.lent[consumer.session, message]
        return consumer

    def _return(
        self, item: Item, now: float, reason: str, delay_s: float = 0.0, *, at_once: bool = True
    ) -> None:
        options = self.queue.state.options
        if item.attempts >= options.attempts_max:
            self._bury(item, reason)
            return
        grown = min(options.retry_max_s, options.retry_s * 2 ** min(item.attempts - 1, 30))
        delay_s = max(delay_s, grown)
        if delay_s > 0 or not at_once:
            self._resting[item] = None
            item.deadline = self.queue.loans.deadlines.add(now + delay_s, item)
        else:
            self.try_again(item)

    def _wake(self, when: float) -> None:
        """Look again then."""
        if self._woken is not None:
            self.queue.loans.deadlines.cancel(self._woken)
        self._woken = self.queue.loans.deadlines.add(when, self)

    def read_later(self) -> None:
        """What could not be read is tried again after a while."""
        self._wake(self.queue.keeper.now + self.queue.limits.stall_s)

    def _wake_for_round(self, now: float) -> None:
        """Look again when a lane may push its next message."""
        rounds = [reader.ready_at for reader in self._ring if reader.ready_at > now]
        if rounds and self._woken is None:
            self._wake(min(rounds))

    def _remove_fetch(self, fetch: Fetching) -> None:
        self._fetches -= 1
        self._line.pop(fetch, None)
        fetch.consumer.fetching -= fetch.wanted
        del fetch.consumer.fetches[fetch]
        if fetch.deadline is not None:
            self.queue.loans.deadlines.cancel(fetch.deadline)

    def _dismiss(self, consumer: Consumer) -> list[Fetching]:
        """Take a consumer out of the line; returns the fetches that waited for it."""
        fetches = list(consumer.fetches)
        for fetch in fetches:
            self._remove_fetch(fetch)
        consumer.credit = 0
        self._line.pop(consumer, None)
        if consumer.stalled is not None:
            self.queue.loans.deadlines.cancel(consumer.stalled)
            consumer.stalled = None
        return fetches
