"""A broker: the queues of one storage, and the turns in which they commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import structlog

from chappe.clock import Clock
from chappe.errors import Overload, RequestError, Unreachable
from chappe.hub.deadline import Alarm
from chappe.hub.session import Session
from chappe.queues.consumer import Loans
from chappe.queues.keeper import Outlet
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.queue import Queue
from chappe.queues.record import DELAY_LANE, Made, Stored
from chappe.queues.state import QueueState
from chappe.queues.storage import Key, Storage

log = structlog.get_logger()

# Turns of volatile queues within one turn of the loop: more would be a queue that feeds itself.
_TURNS_MAX = 1_000

# How long a queue that could not be opened is left alone: at first, and at most.
_RETRY_S = 1.0
_RETRY_MAX_S = 30.0

# How long what was found of lanes is good enough to choose some for a new queue.
_MEASURE_S = 1.0

Opened = Callable[[RequestError | None], None]
# Who is pushed messages: session, group and credit.
Standing = tuple[Session, str, int]


class _Broken(NamedTuple):
    """A queue that is not there although it should be, and who consumed it."""

    options: QueueOptions
    error: RequestError
    retry_at: float
    delay_s: float = _RETRY_S
    standing: tuple[Standing, ...] = ()
    # Which session answers to a consumer's name.
    holders: tuple[tuple[str, Session], ...] = ()


class Broker:
    """The queues that live here, of one storage."""

    def __init__(
        self,
        storage: Storage,
        *,
        limits: QueueLimits,
        loans: Loans,
        alarm: Alarm,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        outlet: Callable[[str], Outlet],
        name: str = "",
        here: dict[Key, Queue] | None = None,
    ) -> None:
        self.storage = storage
        self.limits = limits
        self.loans = loans
        self.name = name
        self.adding = 0
        self._loads: dict[int, tuple[int, int]] = {}
        self._measured_at = -_MEASURE_S
        self._alarm = alarm
        self._loop = loop
        self._clock = clock
        self._outlet = outlet
        self.queues: dict[Key, Queue] = {}
        # Those of all brokers of this node.
        self._here: dict[Key, Queue] = {} if here is None else here
        # Queues whose state is being read, and who waits for it; and those that cannot be read.
        self._opening: dict[Key, list[Opened]] = {}
        self._broken: dict[Key, _Broken] = {}
        self._dirty: dict[Queue, None] = {}
        self._scheduled = False
        # Told when a queue that failed is there again, and who consumed it before.
        self.on_back: Callable[[Queue, list[Standing]], None] | None = None
        # Told who was a consumer of a queue that is gone.
        self.on_gone: Callable[[Queue, list[Session]], None] | None = None

    @property
    def now(self) -> float:
        """The loop's time."""
        return self._loop.time()

    @property
    def now_ms(self) -> int:
        """The wall time."""
        return self._clock.wall_ms()

    def start(self) -> None:
        """Go on with the queues that are stored."""
        for state in self.storage.known():
            self._take_in(state)

    def make(self, key: Key, options: QueueOptions, made: Opened) -> None:
        """Let there be a queue, with these options and as many lanes; tells once it is durable."""

        def opened(error: RequestError | None) -> None:
            if error is not None:
                made(error)
                return
            queue = self.queues[key]
            try:
                self._define(queue, options)
            except Overload as refused:
                made(refused)
                return
            queue.after(lambda: made(None), made)

        if key in self.queues:
            opened(None)
        else:
            self.open(key, options, opened)

    def _define(self, queue: Queue, options: QueueOptions) -> None:
        state = queue.state
        missing = options.lanes - len(state.lanes)
        if missing <= 0 and options == state.options:
            return
        self.storage.check()
        lanes = [*state.lanes, *self._choose_lanes(missing, set(state.lanes))]
        queue.add(Made(state.number, *key_of(state), options, lanes))
        queue.redefined()

    def _choose_lanes(self, count: int, taken: set[int]) -> list[int]:
        """The least loaded lanes that a queue has not, and new ones if need be (Q3)."""
        if count <= 0:
            return []
        loads = self._measure_lanes()
        free = sorted((load, lane) for lane, load in loads.items() if lane not in taken)
        chosen = [lane for _, lane in free[:count]]
        last = max([*loads, *taken])
        chosen += range(last + 1, last + 1 + count - len(chosen))
        for lane in chosen:
            load, users = loads.get(lane, (0, 0))
            loads[lane] = (load, users + 1)
        return chosen

    def _measure_lanes(self) -> dict[int, tuple[int, int]]:
        """How much there is to do in each lane, and for how many queues; looked at now and then,
        as who makes thousands of queues must not look at all of them for each."""
        if self.now >= self._measured_at + _MEASURE_S:
            loads = self._loads = dict.fromkeys(range(1, self.limits.lanes + 1), (0, 0))
            for queue in self.queues.values():
                for lane in queue.state.lanes:
                    load, users = loads.get(lane, (0, 0))
                    loads[lane] = (load + queue.state.load(lane), users + 1)
            # After that: it may have taken long.
            self._measured_at = self.now
        return self._loads

    def open(self, key: Key, options: QueueOptions, told: Opened) -> None:
        """Read what is known of a queue, to go on with it here."""
        waiting = self._opening.setdefault(key, [])
        waiting.append(told)
        if len(waiting) > 1:
            return

        def opened(state: QueueState | None, error: RequestError | None) -> None:
            broken = self._broken.pop(key, None)
            if state is not None:
                self._take_in(state)
                if state.lanes:  # else it is about to be made
                    self.tell_on(self.queues[key])
            elif error is not None:
                self._break(key, options, error, broken)
            for one in self._opening.pop(key, ()):
                one(error)
            queue = self.queues.get(key)
            if queue is None or self._let_go_unmade(queue):
                return
            if broken is not None:
                queue.members.holders |= {
                    name: one for name, one in broken.holders if not one.closed
                }
                if broken.standing and self.on_back is not None:
                    self.on_back(queue, list(broken.standing))

        self.storage.open(key, options, opened)

    def _break(
        self, key: Key, options: QueueOptions, error: RequestError, before: _Broken | None
    ) -> None:
        """A queue could not be opened: try again, while somebody waits for it without asking."""
        log.error("queue.closed", app=key[0], queue=key[1], reason=str(error))
        delay_s = _RETRY_S if before is None else min(2 * before.delay_s, _RETRY_MAX_S)
        broken = before or _Broken(options, error, 0.0)
        self._broken[key] = broken._replace(
            error=error, retry_at=self.now + delay_s, delay_s=delay_s
        )
        if broken.standing:
            self._loop.call_later(delay_s, self._reopen, key)

    def why_not(self, key: Key) -> str | None:
        """Why a queue that should be here is not; one that could not be opened is tried again."""
        if key in self._opening:
            return "is being opened"
        broken = self._broken.get(key)
        if broken is None:
            return None
        if self.now >= broken.retry_at:
            self.open(key, broken.options, lambda error: None)
        return f"cannot be opened: {broken.error.reason}"

    def try_again(self) -> None:
        """Open what could not be opened: the storage is back."""
        for key, broken in list(self._broken.items()):
            self.open(key, broken.options, lambda error: None)

    def _take_in(self, state: QueueState) -> None:
        key = key_of(state)
        self._broken.pop(key, None)
        queue = Queue(state, self.storage, self, self._outlet(state.app))
        self.queues[key] = self._here[key] = queue
        self._alarm.set()

    def tell_on(self, queue: Queue) -> None:
        """Tell that this node goes on with a queue."""
        state = queue.state
        queue.recorder.recovered(state.app, state.address, state.depth())

    def remove(self, key: Key, error: RequestError, removed: Opened = lambda error: None) -> None:
        """Forget a queue with all it holds; who waits there is answered."""
        queue = self.queues.get(key)
        if queue is None:
            reason = self.why_not(key)
            removed(None if reason is None else Overload(f"{key[1]} {reason}"))
            return
        held = queue.state.depth()
        self._let_go(queue, error)
        if held:
            queue.outlet.dropped("queue_removed", held)
            queue.recorder.tell("removed", key[0], target=key[1], n=held)
        self.storage.remove(queue.state, removed)

    def release(self, key: Key, error: RequestError) -> None:
        """Let a queue live elsewhere: what is stored of it stays."""
        queue = self.queues.get(key)
        self._broken.pop(key, None)
        if queue is not None:
            self._let_go(queue, error)
            self.storage.forget(queue.state)

    def close(self, error: RequestError) -> None:
        """Let all queues live elsewhere."""
        self._broken.clear()
        for key in list(self.queues):
            self.release(key, error)

    def _let_go(self, queue: Queue, error: RequestError) -> None:
        key = key_of(queue.state)
        if self.queues.get(key) is queue:
            del self.queues[key]
        if self._here.get(key) is queue:
            del self._here[key]
        self._dirty.pop(queue, None)
        sessions = queue.close(error)
        if self.on_gone is not None:
            self.on_gone(queue, sessions)

    def _let_go_unmade(self, queue: Queue) -> bool:
        """A queue whose making is not durable is not there."""
        if queue.state.lanes:
            return False
        self._let_go(queue, Unreachable(f"{queue.address} could not be made"))
        self.storage.forget(queue.state)
        return True

    def lose(self, state: QueueState, error: RequestError) -> None:
        """A queue was taken by another node: it is opened here again only if somebody asks."""
        key = key_of(state)
        queue = self.queues.get(key)
        if queue is not None:
            self._let_go(queue, error)
            self._broken[key] = _Broken(state.options, error, self.now + _RETRY_S)

    def failed(self, queue: Queue, error: RequestError) -> None:
        """A commit failed: what this node knows may not be what is stored; it reads anew."""
        key, options = key_of(queue.state), queue.state.options
        log.warning("queue.failed", app=key[0], queue=key[1], reason=str(error))
        standing, holders = tuple(queue.members.consuming()), tuple(queue.members.holders.items())
        self._let_go(queue, error)
        self.storage.forget(queue.state)
        # Not at once: what made it fail has not passed yet.
        retry_at = self.now + _RETRY_S
        self._broken[key] = _Broken(options, error, retry_at, _RETRY_S, standing, holders)
        self._loop.call_later(_RETRY_S, self._reopen, key)

    def _reopen(self, key: Key) -> None:
        broken = self._broken.get(key)
        if broken is not None:  # else it is there again, removed, or lives elsewhere
            self.open(key, broken.options, lambda error: None)

    def give_up(self, key: Key, error: RequestError) -> list[Stored]:
        """Let go of a volatile queue; what it held, in order, with those in hand among them."""
        queue = self.queues.get(key)
        if queue is None:
            return []
        held: list[Stored] = []
        state = queue.state
        for lane in state.lanes:
            low = state.low(lane)
            self.storage.read(
                state,
                lane,
                low + 1,
                state.heads[lane] - low,
                lambda found: held.extend(found.messages),
            )
        groups = list(state.readers())
        held = [
            one
            for one in held
            if not groups or any(not group.at(one.lane).is_done(one.seq) for group in groups)
        ]
        for seq in state.delayed:
            self.storage.read(state, DELAY_LANE, seq, 1, lambda found: held.extend(found.messages))
        self._let_go(queue, error)
        self.storage.forget(state)
        return sorted(held, key=lambda one: one.id)

    def wake(self, queue: Queue) -> None:
        """Run a queue at the end of this turn."""
        self._dirty[queue] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn."""
        self._loop.call_soon(callback)

    def settle(self) -> None:
        """Run queues whose commits take no time, now instead of at the end of the turn."""
        if self.storage.immediate and self._dirty:
            self._turns()

    def arm(self) -> None:
        """Ring in time for the deadlines that were added."""
        self._alarm.set()

    def _run(self) -> None:
        self._scheduled = False
        self._turns()
        self._alarm.set()

    def _turns(self) -> None:
        """Run what is to be run; what a commit without delay brings about, likewise."""
        for _ in range(_TURNS_MAX if self.storage.immediate else 1):
            dirty, self._dirty = self._dirty, {}
            if not dirty:
                return
            for queue in dirty:
                if not queue.closed:
                    queue.run()


def key_of(state: QueueState) -> Key:
    """The key of a queue."""
    return state.app, state.address
