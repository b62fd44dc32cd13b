"""Which brokers have a key: asked of Redis, many keys at once, and remembered for a moment.

What is remembered is used only while it is fresh: for `cache_s` from when it was asked for, while
this broker hears of changes, and until one is told. Who subscribes waits until every broker has
said that it forgot, or as long as any of them may remember: so a message that is sent after a
subscription was answered is never kept from it by what somebody remembers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from chappe.clock import Clock
from chappe.cluster.bus.names import Names, read_names
from chappe.cluster.bus.scripts import FIND
from chappe.errors import Overload
from chappe.redis.calls import Calls, Failure, unforeseen

log = structlog.get_logger()

Brokers = frozenset[str]

NOBODY: Brokers = frozenset()
FORGOTTEN = "Redis does not know this broker, and maybe no other"
# Keys that are asked for at once, so that Redis is not held up for long.
_KEYS_AT_ONCE = 1_000
# How often brokers that came meanwhile are asked about, too.
_TRIES = 5
WAITING_MAX = 100_000


class Lookup:
    """Finds the other brokers that have a key."""

    def __init__(
        self,
        calls: Calls,
        names: Names,
        name: str,
        clock: Clock,
        *,
        cache_s: float,
        cache_keys_max: int,
        failed: Callable[[Failure], None],
        forgotten: Callable[[], None],
    ) -> None:
        self._calls = calls
        self._names = names
        self._name = name
        self._clock = clock
        self._cache_s = cache_s
        self._cache_keys_max = cache_keys_max
        self._failed = failed
        self._forgotten = forgotten
        # Until when, and who.
        self._cache: dict[str, tuple[float, Brokers]] = {}
        self._waiting: dict[str, asyncio.Future[Brokers]] = {}
        # Keys that are being asked about, and those of them whose answer is too old already.
        self._asked: dict[str, asyncio.Future[Brokers]] = {}
        self._stale: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._known: list[str] = []
        # Whether this broker hears of changes.
        self.listening = False
        self.asked = 0
        self.remembered = 0

    def fresh(self, key: str) -> Brokers | None:
        """What is remembered of a key, if it is."""
        found = self._cache.get(key)
        if found is None or not self.listening or self._clock.monotonic() >= found[0]:
            return None
        self.remembered += 1
        return found[1]

    async def find(self, key: str) -> Brokers:
        """Ask which other brokers have a key; raises Failure, or Overload."""
        waiting = self._waiting.get(key)
        if waiting is None and key not in self._stale:
            waiting = self._asked.get(key)
        if waiting is None:
            if len(self._waiting) >= WAITING_MAX:
                raise Overload(f"bus: {WAITING_MAX} keys wait to be looked for already")
            waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
            if self._task is None:
                self._task = asyncio.create_task(self._run())
        return await asyncio.shield(waiting)

    @property
    def known(self) -> set[str]:
        """The other brokers, as far as they are known."""
        return set(self._known)

    def know(self, brokers: Iterable[str]) -> None:
        """These are all brokers there are."""
        self._known = sorted(set(brokers) - {self._name})

    def forget(self, keys: Iterable[str] | None) -> None:
        """Others than before have these keys, or any."""
        if keys is None:
            self._cache.clear()
            keys = list(self._asked)
        for key in keys:
            self._cache.pop(key, None)
            if key in self._asked:
                self._stale.add(key)

    async def stop(self) -> None:
        """Look for nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for waiting in (*self._waiting.values(), *self._asked.values()):
            waiting.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                # What else this turn of the loop asks for is asked together.
                await asyncio.sleep(0)
                await self._settle(list(self._waiting)[:_KEYS_AT_ONCE])
        finally:
            self._task = None

    async def _settle(self, keys: list[str]) -> None:
        asked_at = self._clock.monotonic()
        self._asked = asked = {key: self._waiting.pop(key) for key in keys}
        failure: Failure | None = None
        registered, found = False, [NOBODY] * len(keys)
        try:
            registered, found = await self._find(keys)
        except Failure as error:
            failure = error
        except Exception as error:  # whoever waits is told, and the next are asked about
            log.exception("bus.lookup.failed")
            failure = unforeseen(error)
        self._asked, stale, self._stale = {}, self._stale, set()
        if failure is not None:
            self._failed(failure)
        elif not registered:
            failure = Failure(FORGOTTEN, temporary=True, maybe_done=False, everywhere=True)
            self._forgotten()
        # One that was taken for dead is not waited for by those who subscribe.
        remember = registered and self.listening
        for (key, waiting), brokers in zip(asked.items(), found, strict=True):
            if remember and key not in stale:
                self._remember(key, asked_at + self._cache_s, brokers)
            _settle(waiting, failure or brokers)

    async def _find(self, keys: list[str]) -> tuple[bool, list[Brokers]]:
        names = self._names
        for _ in range(_TRIES):
            known = list(self._known)
            sets = [names.brokers, *(names.keys(broker) for broker in known)]
            self.asked += 1
            (answer,) = await self._calls.run_script(
                FIND, sets, [self._name, len(known), *known, *keys]
            )
            if answer[0]:
                found = [frozenset(read_names(owners)) for owners in answer[2]]
                return bool(answer[1]), found
            self.know(read_names(answer[1]))
        raise Failure(
            "bus: brokers come faster than they can be asked",
            temporary=True,
            maybe_done=False,
            everywhere=False,
        )

    def _remember(self, key: str, until: float, brokers: Brokers) -> None:
        self._cache.pop(key, None)
        if len(self._cache) >= self._cache_keys_max:
            del self._cache[next(iter(self._cache))]
        self._cache[key] = (until, brokers)


def _settle(waiting: asyncio.Future[Brokers], outcome: Brokers | Failure) -> None:
    if waiting.done():
        return
    if isinstance(outcome, Failure):
        waiting.set_exception(outcome)
        # Whoever asked may have gone.
        waiting.exception()
    else:
        waiting.set_result(outcome)
