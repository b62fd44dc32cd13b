"""A fleet: devices that log in at a bounded rate, beat, and come back; one timer for all."""

from __future__ import annotations

import asyncio
import heapq
import os
import resource
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from random import Random

import msgspec

from chappe.cli.push.fleet.granting import Granting, NoGrant
from chappe.cli.push.fleet.phone import Phone
from chappe.cli.push.fleet.sources import open_socket, source_of
from chappe.cli.push.fleet.tally import Tally
from chappe.device.grant import comet_address
from chappe.errors import ChappeError

_TICK_S = 0.02
_LOGIN_S = 30.0
_BACKOFF_MAX_S = 60.0
# A comet that did not let a device in so often may be gone: the web knows which live.
_ATTEMPTS_BEFORE_ASKING = 2
# Hung up at once, before others get a turn.
_SLICE = 500
_CLOSE_S = 10.0


class FleetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a fleet is to be."""

    count: int
    # Number of the first: fleets of several processes have different devices.
    first: int = 0
    prefix: str = "sim-"
    topics: tuple[str, ...] = ()
    logins_per_s: float = 500.0
    # Under way at once: what waits for a comet longer than others would be waiting in its queue.
    logins_max: int = 200
    heartbeat_s: float = 120.0
    # None: where one address does not do.
    spread: bool | None = None


class Fleet:
    """Devices of one process."""

    def __init__(
        self, options: FleetOptions, granting: Granting, tls: ssl.SSLContext, rng: Random
    ) -> None:
        self._options = options
        self._granting = granting
        self._tls = tls
        self._rng = rng
        self.topics = options.topics
        self.tally = Tally(devices=options.count)
        first = options.first
        self._phones = [Phone(self, index) for index in range(first, first + options.count)]
        # To be connected now, and later.
        self._due = deque(self._phones)
        self._later: list[tuple[float, int]] = []
        self._logging_in: dict[int, Phone] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        # Set when the last has gone.
        self._silent = asyncio.Event()
        # What ends it all: every further attempt would end in the same way.
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.now_s: Callable[[], float] = time.monotonic
        self.entropy: Callable[[int], bytes] = os.urandom

    def wall_ms(self) -> float:
        return time.time() * 1000

    async def run(self) -> None:
        """Keep all connected until cancelled."""
        allowed, beat_due, last = 1.0, 0.0, self.now_s()
        beaten_to = 0.0
        while True:
            now = self.now_s()
            allowed = min(
                allowed + (now - last) * self._options.logins_per_s, self._options.logins_max
            )
            last = now
            while self._later and self._later[0][0] <= now:
                self._due.append(self._phone(heapq.heappop(self._later)[1]))
            while allowed >= 1 and self._due and len(self._logging_in) < self._options.logins_max:
                allowed -= 1
                self._begin(self._due.popleft())
            if now >= beat_due:
                beat_due = now + 1.0
                beaten_to = self._beat(beaten_to)
                self._give_up(now - _LOGIN_S)
                self._weigh()
            await asyncio.sleep(_TICK_S)

    async def stop(self) -> None:
        """Hang up; devices that are not gone within some seconds are cut off."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        for at in range(0, len(self._phones), _SLICE):
            for phone in self._phones[at : at + _SLICE]:
                phone.close()
            await asyncio.sleep(0)
        if self.tally.connected:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._silent.wait(), _CLOSE_S)
        self._granting.close()
        self._weigh()

    def ready(self, phone: Phone) -> None:
        self._logging_in.pop(phone.index, None)

    def gone(self, phone: Phone) -> None:
        self._logging_in.pop(phone.index, None)
        if not self._stopping:
            self.tally.lost += 1
            self._come_back(phone)
        elif not self.tally.connected:
            self._silent.set()

    def _come_back(self, phone: Phone) -> None:
        if phone.ended or self._stopping:
            return
        phone.attempts += 1
        if phone.attempts >= _ATTEMPTS_BEFORE_ASKING:
            phone.grant = None
        ceiling_s = min(2.0 ** min(phone.attempts, 10), _BACKOFF_MAX_S)
        due_s = self.now_s() + self._rng.uniform(0, ceiling_s)
        heapq.heappush(self._later, (due_s, phone.index))

    def _begin(self, phone: Phone) -> None:
        phone.begun_s = self.now_s()
        self._logging_in[phone.index] = phone
        task = asyncio.get_running_loop().create_task(self._connect(phone))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, phone: Phone) -> None:
        """Connect a device; the rest it does itself."""
        try:
            if phone.grant is None:
                phone.grant = await self._granting.get(f"{self._options.prefix}{phone.index}")
                # How long logging in takes is a comet's doing, not the web's.
                phone.begun_s = self.now_s()
            async with asyncio.timeout(_LOGIN_S):
                await self._open(phone, phone.grant.comet)
        except NoGrant as error:
            if error.temporary:
                self._missed(phone, str(error))
            elif not self.failure.done():
                self.failure.set_exception(error)
        except OSError as error:
            self._missed(phone, f"connect: {error.strerror or type(error).__name__}")
        except ChappeError as error:
            if not self.failure.done():
                self.failure.set_exception(error)

    async def _open(self, phone: Phone, comet: str) -> None:
        host, port, secure = comet_address(comet)
        source = source_of(host, phone.index, self._options.spread)
        made = await open_socket(host, port, source)
        loop = asyncio.get_running_loop()
        try:
            name = host if secure else None
            tls = self._tls if secure else None
            await loop.create_connection(lambda: phone, sock=made, ssl=tls, server_hostname=name)
        except BaseException:
            made.close()
            raise

    def _missed(self, phone: Phone, why: str) -> None:
        self._logging_in.pop(phone.index, None)
        self.tally.fail(why)
        self._come_back(phone)

    def _beat(self, beaten_to: float) -> float:
        """Let the next share of all beat, so that each does once in its time; where to go on."""
        count = len(self._phones)
        until = beaten_to + count / self._options.heartbeat_s
        for at in range(int(beaten_to), min(int(until), count)):
            self._phones[at].beat()
        return until if until < count else 0.0

    def _give_up(self, before_s: float) -> None:
        late = [each for each in self._logging_in.values() if each.begun_s < before_s]
        for phone in late:
            phone.give_up()

    def _weigh(self) -> None:
        self.tally.cpu_s = time.process_time()
        self.tally.rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def _phone(self, index: int) -> Phone:
        return self._phones[index - self._options.first]
