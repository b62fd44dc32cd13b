"""The commits of one queue on their way to Redis: in order, several in a call, one call at a time.

    commit, commit, commit --> waiting --> sent together under one number --> done, done, done
                                  ^                    |
                                  +---- again ---------+   no answer, or not now

A call whose answer was lost is made again under the same number, which Redis carries out once. So
nothing is ever between two commits that are there. Whoever waits longer than the time limit is told
that nobody knows; the call goes on being made until it succeeds, or the queue is let go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from chappe.errors import Overload, RequestError
from chappe.queues.redis.keys import Keys
from chappe.queues.redis.script import COMMIT
from chappe.queues.redis.unit import Argument, Unit
from chappe.queues.storage import Committed
from chappe.redis.calls import Calls, Failure

# What one call may carry: a Redis does nothing else meanwhile.
UNITS_MAX = 1_000
BYTES_MAX = 1024 * 1024
_BACKOFF_S = 0.05
_BACKOFF_MAX_S = 1.0

_pack = msgspec.msgpack.Encoder().encode


class Watch(Protocol):
    """Who wants to know how calls fare, and how many bytes all lines hold."""

    under_way: int

    def succeeded(self) -> None:
        """A call was carried out."""
        ...

    def failed(self, failure: Failure) -> None:
        """A call was not."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until calls that failed may succeed."""
        ...


class Waiting:
    """A commit, and who waits for it until when."""

    __slots__ = ("deadline", "done", "unit")

    def __init__(self, unit: Unit, done: Committed | None, deadline: float) -> None:
        self.unit = unit
        self.done = done
        self.deadline = deadline

    def tell(self, error: RequestError | None) -> None:
        """Tell who waits, once."""
        done, self.done = self.done, None
        if done is not None:
            done(error)


class Line:
    """What waits to be written for one queue."""

    def __init__(
        self,
        keys: Keys,
        epoch: str,
        calls: Calls,
        watch: Watch,
        *,
        wait: tuple[int, int],
        lost: Callable[[RequestError], None],
    ) -> None:
        self.closed: RequestError | None = None
        self._keys = keys
        self._epoch = epoch
        self._number = 0
        self._calls = calls
        self._watch = watch
        self._replicas, self._wait_ms = wait
        self._lost = lost
        self._waiting: deque[Waiting] = deque()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        # How many of those that wait have been told already.
        self._told = 0
        # Whether what was sent last may have been carried out although its answer did not come.
        self._maybe_done = False
        self._in_call = 0

    def add(self, unit: Unit, done: Committed | None) -> None:
        """Let a commit take its place; told at once when there is none to take."""
        waiting = Waiting(unit, done, self._loop.time() + self._calls.timeout_s)
        if self.closed is not None:
            self._loop.call_soon(waiting.tell, self.closed)
            return
        if not unit.commands and not self._waiting:
            self._loop.call_soon(waiting.tell, None)
            return
        self._waiting.append(waiting)
        self._watch.under_way += unit.size
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        if self._timer is None:
            self._timer = self._loop.call_at(waiting.deadline, self._expire)

    def close(self, error: RequestError) -> None:
        """Write nothing more; what has not been sent has not happened."""
        if self.closed is not None:
            return
        self.closed = error
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        in_doubt = self._in_call if self._maybe_done else 0
        waiting, self._waiting = self._waiting, deque()
        self._watch.under_way -= sum(one.unit.size for one in waiting)
        unknown = Overload(error.reason, outcome_unknown=True)
        for at, one in enumerate(waiting):
            one.tell(unknown if at < in_doubt else error)

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting:
            await self._write(self._next())
        self._task = None

    def _next(self) -> int:
        """How many of those that wait go into one call."""
        size = 0
        for count, one in enumerate(self._waiting):
            size += one.unit.size
            if count and (size > BYTES_MAX or count >= UNITS_MAX):
                return count
        return len(self._waiting)

    async def _write(self, count: int) -> None:
        """Make one call until it succeeds."""
        units = [self._waiting[at].unit for at in range(count)]
        keys, arguments = self._packed(units)
        self._number += 1
        self._in_call, self._maybe_done = count, False
        backoff_s = _BACKOFF_S
        while True:
            sent, self._maybe_done = self._maybe_done, True
            try:
                failure = await self._call(keys, arguments, removed=sent and units[-1].removes)
            except Failure as caught:
                failure = caught
            if failure is None:
                break
            self._maybe_done = sent or failure.maybe_done
            self._watch.failed(failure)
            if not failure.temporary:
                self._give_up(Overload(str(failure)))
                return
            await self._watch.pause(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
        self._watch.succeeded()
        self._finish(count)

    async def _call(
        self, keys: list[str], arguments: list[str | bytes], *, removed: bool
    ) -> Failure | None:
        """Make the call once; gives what is wrong although it was answered. Raises Failure.

        With `removed` the queue may be gone because an earlier call was carried out after all.
        """
        timeout_s = self._calls.timeout_s
        if not self._replicas:
            answers = await self._calls.run_script(COMMIT, keys, arguments)
        else:
            wait = ("WAIT", str(self._replicas), str(self._wait_ms))
            answers = await self._calls.run_script(
                COMMIT, keys, arguments, wait, timeout_s=timeout_s + self._wait_ms / 1000
            )
        verdict, *told = (part.decode() for part in answers[0])
        if verdict == "done":
            if self._replicas and answers[1] < self._replicas:
                said = f"{answers[1]} of {self._replicas} replicas have it"
                return self._failure(said, done=True)
            return None
        if removed and verdict == "fenced" and not told[0]:
            return None
        return self._failure(_said(verdict, told[0], self._number))

    def _failure(self, reason: str, *, done: bool = False) -> Failure:
        return Failure(
            f"{self._calls.shown}: {reason}",
            temporary=done,
            maybe_done=done,
            everywhere=done and self._calls.servers.all_away(TimeoutError()),
        )

    def _packed(self, units: list[Unit]) -> tuple[list[str], list[str | bytes]]:
        names: dict[str, None] = {self._keys.meta: None}
        heads: dict[str, str] = {}
        commands: list[tuple[Argument, ...]] = []
        for unit in units:
            names |= dict.fromkeys(unit.names)
            heads = unit.heads | heads
            commands += unit.commands
        number = str(self._number + 1)
        return list(names), [self._epoch, number, _pack(list(heads.items())), _pack(commands)]

    def _finish(self, count: int) -> None:
        finished = [self._waiting.popleft() for _ in range(count)]
        self._told = max(0, self._told - count)
        self._in_call, self._maybe_done = 0, False
        self._watch.under_way -= sum(one.unit.size for one in finished)
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for one in finished:
            # A mistake of one who is told must not end this.
            self._loop.call_soon(one.tell, None)

    def _give_up(self, error: RequestError) -> None:
        self._task = None
        self.close(error)
        self._lost(error)

    def _expire(self) -> None:
        """Tell those who waited too long that nobody knows."""
        now = self._loop.time()
        self._timer = None
        late: list[Waiting] = []
        for at in range(self._told, len(self._waiting)):
            one = self._waiting[at]
            if one.deadline > now:
                self._timer = self._loop.call_at(one.deadline, self._expire)
                break
            late.append(one)
        self._told += len(late)
        error = f"{self._calls.shown}: no answer in time"
        for one in late:
            one.tell(Overload(error, outcome_unknown=True))


def _said(verdict: str, told: str, number: int) -> str:
    if verdict == "fenced":
        return "the queue lives elsewhere now" if told else "the queue is gone from Redis"
    if verdict == "behind":
        return f"{number - 1 - int(told)} commits that were acknowledged are gone from Redis"
    return f"{told} was changed by somebody else"
