"""The register: a broker's name, its beats and its keys in Redis, kept true to what is here.

One task writes it, so that what is written later stands later. Whatever may have gone wrong (a
connection that broke, an answer that did not come, a Redis that forgot, or took this broker for
dead) is mended by writing all of it anew (K4). It is written anew at each beat as well, as long as
that is little; of many keys, the number is compared, and all are written now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol

import structlog

from chappe.backoff import Backoff
from chappe.clock import Clock
from chappe.cluster.bus.names import Names, read_names
from chappe.cluster.bus.scripts import BEAT, BURY, CHANGE, ENTER, LEAVE
from chappe.redis.calls import Calls, Failure

log = structlog.get_logger()

# Keys that one script writes: it holds Redis up for some milliseconds.
KEYS_AT_ONCE = 10_000
ASIDE_MS = 60_000
# Of more keys than that, all are written anew at each of so many beats.
ALL_BEATS = 6


class Owner(Protocol):
    """Whose register it is."""

    def keys(self) -> Collection[str]:
        """All keys there are now."""
        ...

    def knows(self, brokers: set[str]) -> None:
        """All brokers there are."""
        ...

    def entered(self, brokers: set[str]) -> None:
        """Everything is written: this broker is one of these."""
        ...

    def gone(self, reason: str) -> None:
        """It may not be, any more."""
        ...

    def wrote(self, keys: list[str], brokers: set[str], done: Callable[[bool], None]) -> None:
        """New keys are written down now, and these are all brokers; calls back when all of them
        know it."""
        ...


class Register:
    """Writes down what one broker has."""

    def __init__(
        self,
        calls: Calls,
        names: Names,
        name: str,
        clock: Clock,
        owner: Owner,
        *,
        interval_s: float,
        backoff: Backoff,
        hears: Callable[[], bool],
    ) -> None:
        self._calls = calls
        self._names = names
        self._name = name
        self._clock = clock
        self._owner = owner
        self._interval_s = interval_s
        self._backoff = backoff
        # Whether the broker hears what is said to it: else it is not worth being found.
        self._hears = hears
        # Keys whose state is to be written: whether they are here, and who waits for it.
        self._changes: dict[str, bool] = {}
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._wake = asyncio.Event()
        self._doubt = False
        self._entering = False
        self._early = False
        self._task: asyncio.Task[None] | None = None
        # Whether all that is here is written down, as far as anybody knows.
        self.up = False
        self.buried = 0
        self._beats = 0

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Write no more, and leave nothing behind if Redis is there."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._answer(dict(self._waiting), known=False)
        with suppress(Failure):
            await self._calls.run_script(LEAVE, self._keys_of(self._name), [self._name])

    async def add(self, key: str, *, first: bool) -> bool:
        """A key is here; returns when all brokers know it, False when they cannot."""
        if not (self.up or self._entering):
            return False  # written down with everything else
        # What is being written down may not be: until it is, every one waits for it.
        if first or (self._entering and key not in self._waiting):
            self._waiting[key] = asyncio.get_running_loop().create_future()
            self._changes[key] = True
            self._wake.set()
        waiting = self._waiting.get(key)
        return waiting is None or await asyncio.shield(waiting)

    def remove(self, keys: Iterable[str]) -> None:
        """Keys are not here any more; nor is who waits for one to be known."""
        keys = list(keys)
        self._answer({key: self._waiting[key] for key in keys if key in self._waiting}, False)
        if self.up or self._entering:
            self._changes.update(dict.fromkeys(keys, False))
            self._wake.set()

    def doubt(self) -> None:
        """Something went wrong: write all of it anew."""
        self._doubt = True
        self.up = False
        self._wake.set()

    def beat_soon(self) -> None:
        """Beat before it is time: something may have been forgotten."""
        self._early = True
        self._wake.set()

    def look(self) -> None:
        """Whether the broker hears has changed."""
        self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._until_it_hears()
                await self._enter()
                self._backoff.reset()
                await self._keep()
                self._down("nothing can be heard")
            except Failure as failure:
                self._down(str(failure))
                await asyncio.sleep(self._backoff.next_s())
            except Exception:  # to begin anew is better than to beat no more
                log.exception("bus.register.failed")
                self._down("a mistake of our own")
                await asyncio.sleep(self._backoff.next_s())

    async def _until_it_hears(self) -> None:
        while not self._hears():
            self._wake.clear()
            await self._wake.wait()

    async def _keep(self) -> None:
        """Write what changes, and beat, for as long as all goes well; raises Failure."""
        beat_at = self._clock.monotonic() + self._interval_s
        while self._hears():
            left_s = beat_at - self._clock.monotonic()
            if self._doubt:
                await self._enter()
            elif left_s <= 0 or self._early:
                self._early = False
                await self._beat()
                beat_at = self._clock.monotonic() + self._interval_s
            elif self._changes:
                await self._change()
            else:
                self._wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._wake.wait()

    async def _enter(self) -> None:
        """Write everything down anew."""
        self._doubt = False
        self._entering = True
        # What changes from now on is written after it; what waits is part of it.
        self._changes = {}
        waiting = dict(self._waiting)
        try:
            brokers = await self._write(list(self._owner.keys()))
        finally:
            self._entering = False
        self.up = not self._doubt
        if self.up:
            self._owner.entered(brokers)
        if waiting:
            # Who waited for one of them waits until all have forgotten what they knew.
            self._owner.wrote(list(waiting), brokers, partial(self._answer, waiting))

    async def _write(self, keys: list[str]) -> set[str]:
        """All of it in one step; very many keys are laid aside first."""
        where, written = self._keys_of(self._name), keys
        if len(keys) > KEYS_AT_ONCE:
            aside, written = f"{where[-1]}:aside", []
            await self._calls.run(aside, ("DEL", aside))
            for start in range(0, len(keys), KEYS_AT_ONCE):
                part = keys[start : start + KEYS_AT_ONCE]
                # Nobody else would ever remove it.
                expire = ("PEXPIRE", aside, ASIDE_MS)
                await self._calls.run(aside, ("SADD", aside, *part), expire)
            where.append(aside)
        (found,) = await self._calls.run_script(ENTER, where, [self._name, *written])
        return read_names(found)

    async def _beat(self) -> None:
        """K3: register again, refresh the beat, look for the dead."""
        late_ms = round(2 * self._interval_s * 1000)
        where = self._keys_of(self._name)
        ((known, count, late),) = await self._calls.run_script(BEAT, where, [self._name, late_ms])
        for one in read_names(late):
            await self._bury(one, late_ms)
        keys = self._owner.keys()
        if not known:
            self._owner.gone("this broker was forgotten, or taken for dead")
        # What is written meanwhile counts on neither side.
        differs = not self._changes and count != len(keys)
        self._beats += 1
        if not known or differs or len(keys) <= KEYS_AT_ONCE or not self._beats % ALL_BEATS:
            await self._enter()

    async def _bury(self, broker: str, late_ms: int) -> None:
        """K4: remove who is dead; it looks once more, atomically."""
        (gone,) = await self._calls.run_script(BURY, self._keys_of(broker), [broker, late_ms])
        if gone:
            self.buried += 1
            log.info("bus.buried", broker=ascii(broker))

    async def _change(self) -> None:
        taken = dict(list(self._changes.items())[:KEYS_AT_ONCE])
        for key in taken:
            del self._changes[key]
        added = [key for key, here in taken.items() if here]
        removed = [key for key, here in taken.items() if not here]
        waiting = {key: self._waiting[key] for key in added if key in self._waiting}
        registered, brokers = await self._run_change(added, removed)
        if not registered:
            self._owner.gone("this broker was forgotten, or taken for dead")
            self.doubt()
        self._owner.knows(brokers)
        if added:
            self._owner.wrote(added, brokers, partial(self._answer, waiting))

    async def _run_change(self, added: list[str], removed: list[str]) -> tuple[bool, set[str]]:
        where = [self._names.brokers, self._names.keys(self._name)]
        ((registered, found),) = await self._calls.run_script(
            CHANGE, where, [self._name, len(added), *added, *removed]
        )
        return bool(registered), read_names(found)

    def _keys_of(self, broker: str) -> list[str]:
        return [self._names.brokers, self._names.beats, self._names.keys(broker)]

    def _down(self, reason: str) -> None:
        self.up = False
        self._answer(dict(self._waiting), known=False)
        self._changes = {}
        self._owner.gone(reason)

    def _answer(self, waiting: dict[str, asyncio.Future[bool]], known: bool) -> None:
        """Answer those who wait for keys to be known; they do not wait for what comes later."""
        for key, one in waiting.items():
            if not one.done():
                one.set_result(known)
            if self._waiting.get(key) is one:
                del self._waiting[key]
