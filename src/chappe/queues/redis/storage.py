"""Queues kept in Redis Streams, by whichever node opened them last.

Who opens a queue takes it from whoever had it: what that one says of it from then on is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
import structlog

from chappe.errors import ConfigError, Overload, RequestError, StorageError
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.record import Record, Removed, Stored
from chappe.queues.redis.health import UNDER_WAY_BYTES_MAX, Health
from chappe.queues.redis.keys import Keys, entry_id, seq_of
from chappe.queues.redis.line import Line
from chappe.queues.redis.load import Loading
from chappe.queues.redis.script import OPEN, READ
from chappe.queues.redis.writing import Writing
from chappe.queues.state import QueueState
from chappe.queues.storage import Committed, Found, Key
from chappe.redis.calls import Calls, Failure
from chappe.redis.place import Place, parse_url
from chappe.redis.servers import open_servers

log = structlog.get_logger()

TIMEOUT_S = 5.0
# What one read brings, unless one message is larger.
READ_BYTES_MAX = 1024 * 1024
# How long a queue is remembered that was opened and never made.
UNMADE_MS = 3_600_000
_OPEN_TRIES = 5

_decode = msgspec.msgpack.Decoder(Stored).decode

Opened = Callable[[QueueState | None, RequestError | None], None]


def open_redis(
    url: str, limits: QueueLimits, *, home: str = "chappe", timeout_s: float = TIMEOUT_S
) -> RedisStorage:
    """Make the storage of an address; raises ConfigError. Redis is spoken to when it is used."""
    return RedisStorage(parse_url(url), limits, home=home, timeout_s=timeout_s)


class _Kept:
    """A queue that this node has opened."""

    def __init__(self, keys: Keys, writing: Writing, line: Line) -> None:
        self.keys = keys
        self.writing = writing
        self.line = line


class RedisStorage:
    """The queues of a broker, in Redis.

    `home` is the name under which messages are in the pending lists. `lost` is told of queues that
    are not this node's any more, or not as it knows them: they have to be opened again. `back` is
    told when Redis takes something again after it was away.
    """

    kind = "redis"
    immediate = False
    marks_ahead = True

    def __init__(
        self,
        place: Place,
        limits: QueueLimits,
        *,
        home: str = "chappe",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.lost: Callable[[QueueState, RequestError], None] | None = None
        self.back: Callable[[], None] | None = None
        self._place = place
        self._limits = limits
        self._home = home
        self._calls = Calls(open_servers(place, timeout_s), place.shown, timeout_s)
        self._kept: dict[int, _Kept] = {}
        self._numbers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._health = Health(self._calls, place, self._is_back)

    async def start(self) -> None:
        """Look at the servers' settings; raises ConfigError for those that lose messages.

        One that is away is looked at when a queue is opened.
        """
        try:
            faults = await self._health.faults()
        except Failure as failure:
            self._health.failed(failure)
            return
        if faults:
            raise ConfigError(f"queues: {faults[0]}")

    def open(self, key: Key, options: QueueOptions, opened: Opened) -> None:
        """Take a queue and read what is known of it."""
        self._numbers += 1
        self._spawn(self._open(key, options, self._numbers, opened))

    def known(self) -> list[QueueState]:
        """Only Redis knows."""
        return []

    def commit(self, state: QueueState, records: Sequence[Record], done: Committed) -> None:
        """Make records durable; raises Overload when too much is on its way already."""
        kept = self._kept.get(state.number)
        if kept is None:
            raise Overload(f"{state.address}: the queue lives elsewhere now")
        # Who asks `check` first stops at half of it.
        self._health.check_room(2 * UNDER_WAY_BYTES_MAX)
        kept.line.add(kept.writing.write(state, records), done)

    def check(self, size: int = 0, *, freeing: bool = False) -> None:
        """Raise Overload while Redis takes nothing, or has too much to take."""
        self._health.check()

    def read(
        self, state: QueueState, lane: int, seq: int, n: int, got: Callable[[Found], None]
    ) -> None:
        """Find messages; told later."""
        self._spawn(self._read(state, lane, seq, n, got))

    def discard(self, state: QueueState, lane: int, seqs: list[int]) -> None:
        """Let go of messages; those that a crash leaves behind go when the queue is opened."""
        kept = self._kept.get(state.number)
        if kept is not None and seqs:
            kept.line.add(kept.writing.discard(lane, seqs), None)

    def remove(self, state: QueueState, done: Committed) -> None:
        """Forget a queue with all it holds."""

        def removed(error: RequestError | None) -> None:
            if error is None:
                self.forget(state)
            done(error)

        try:
            self.commit(state, [Removed(state.number)], removed)
        except Overload as error:
            done(error)

    def forget(self, state: QueueState) -> None:
        """Leave the queue to others."""
        kept = self._kept.pop(state.number, None)
        if kept is not None:
            kept.line.close(Overload(f"{state.address}: the queue lives elsewhere now"))

    async def close(self) -> None:
        """Write what is on its way, for as long as a call may take; then hang up."""
        drained = [asyncio.create_task(kept.line.drained()) for kept in self._kept.values()]
        if drained:
            await asyncio.wait(drained, timeout=self._calls.timeout_s)
        for kept in self._kept.values():
            kept.line.close(Overload(f"{self._place.shown}: closed"))
        self._kept.clear()
        tasks = {*drained, *self._tasks}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._health.close()
        await self._calls.servers.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, key: Key, options: QueueOptions, number: int, opened: Opened) -> None:
        try:
            faults = await self._health.faults()
            if faults:
                raise StorageError(faults[0])
            state = await self._take(key, options, number)
        except StorageError as error:
            if isinstance(error, Failure):
                self._health.failed(error)
            opened(None, Overload(str(error)))
            return
        opened(state, None)

    async def _take(self, key: Key, options: QueueOptions, number: int) -> QueueState:
        """Raise the epoch, so that others are refused, and read; raises StorageError."""
        keys = Keys(self._place.prefix, key)
        epoch = await self._raise(keys)
        loading = Loading(self._calls, keys, self._limits, self._home)
        state, writing = await loading.load(number, key, options)
        line = Line(
            keys,
            epoch,
            self._calls,
            self._health,
            wait=(self._place.wait, self._place.wait_ms),
            lost=lambda error: self._lose(state, error),
        )
        self._kept[number] = _Kept(keys, writing, line)
        if loading.leftovers.commands:
            line.add(loading.leftovers, None)
        return state

    async def _raise(self, keys: Keys) -> str:
        for _ in range(_OPEN_TRIES):
            # Only over the epoch that was found: a call whose answer was lost may be carried out
            # late, and must not take the queue from who asked again.
            found = (await self._calls.run(keys.meta, ("HGET", keys.meta, "epoch")))[0] or b""
            given = (await self._calls.run_script(OPEN, [keys.meta], [found, UNMADE_MS]))[0]
            if given is not None:
                return str(given.decode())
        raise StorageError(f"{self._place.shown}: {keys.base} is opened by others at the same time")

    def _is_back(self) -> None:
        if self.back is not None:
            self.back()

    def _lose(self, state: QueueState, error: RequestError) -> None:
        log.error("queues.redis.lost", queue=state.address, app=state.app, reason=error.reason)
        if self.lost is not None:
            self.lost(state, error)

    async def _read(
        self, state: QueueState, lane: int, seq: int, n: int, got: Callable[[Found], None]
    ) -> None:
        kept = self._kept.get(state.number)
        if kept is None:
            got(Found([], seq - 1, StorageError(f"{state.address}: lives elsewhere now")))
            return
        key = kept.keys.lane(lane)
        try:
            (last, *records), *_ = await self._calls.run_script(
                READ, [key], [entry_id(seq), n, READ_BYTES_MAX]
            )
            messages = [_decode(record) for record in records]
        except Failure as failure:
            self._health.failed(failure)
            got(Found([], seq - 1, failure))
            return
        except msgspec.MsgspecError as error:
            got(Found([], seq - 1, StorageError(f"{key}: a record cannot be read: {error}")))
            return
        for message in messages:
            message.queue = state.number
        end = messages[-1].seq if messages else seq - 1
        got(Found(messages, max(end, seq_of(last)) if last else end))
