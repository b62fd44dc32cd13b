"""The bus over Redis: the second fabric that joins processes, beside the mesh.

    added, removed --> register --> Redis: brokers, beats, keys
    forward ---------> lookup ----> Redis: who has the key
            `--------> mail ------> Redis: PUBLISH to the channel of each of them
    Redis: own channel --> listener --> audience: sessions here; or an answer; or a change

It is *up* while it listens and all that is here is written down. While it is not, sessions here go
on, what is for others is refused or kept, and it heals by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from random import Random
from typing import Any

import structlog

from chappe.backoff import Backoff
from chappe.clock import Clock
from chappe.cluster.bus.keeping import Keeping
from chappe.cluster.bus.listener import Listener
from chappe.cluster.bus.lookup import Lookup
from chappe.cluster.bus.mail import Mail, Question
from chappe.cluster.bus.names import Names, read_names
from chappe.cluster.bus.register import Register
from chappe.errors import BusAway, ConfigError, Overload, RemoteProtocolError
from chappe.keys.bus import Audience
from chappe.keys.options import KeysOptions
from chappe.message import Message
from chappe.redis.calls import Calls, Failure
from chappe.redis.place import parse_url
from chappe.redis.servers import open_servers
from chappe.registry import errand
from chappe.wire.bus import Answers, BusOp, Changed, Close, Deliver, decode_envelope
from chappe.wire.keyed import PREFIX

log = structlog.get_logger()

_BACKOFF_FIRST_S = 0.05
_BACKOFF_MAX_S = 2.0
# How long those who were there before are waited for when Redis is back without anything: as long
# as it takes them to try again.
_SETTLE_S = 3.0
_SETTLE_LOOK_S, _SETTLE_ANSWER_S = 0.05, 0.5
# What was kept goes out in so many at once.
_DRAIN_AT_ONCE = 100


class RedisBus:
    """Joins a broker to all others that name the same Redis and prefix."""

    def __init__(
        self, url: str, name: str, options: KeysOptions, *, clock: Clock, rng: Random
    ) -> None:
        """Raises ConfigError for an address that is none."""
        self.name = name
        self._options = options
        self._place = parse_url(url, "bus", frozenset())
        self._servers = open_servers(self._place, options.timeout_s)
        self._calls = calls = Calls(self._servers, self._place.shown, options.timeout_s)
        self._names = names = Names(self._place.prefix)
        # Whether channels are spread over the servers of a Cluster; None until they have said so.
        self._sharded = None if self._place.kind == "cluster" else False
        self._audience: Audience
        # Why it is not up, and why it does not listen.
        self._away = self._deaf = f"{self._place.shown}: it has not been reached yet"
        self._keeping = Keeping(clock, options.keep_s, options.keep_bytes_max)
        self._lookup = Lookup(
            calls,
            names,
            name,
            clock,
            cache_s=options.cache_s,
            cache_keys_max=options.cache_keys_max,
            failed=self._failed,
            forgotten=self._forgotten,
        )
        self._mail = Mail(
            name,
            self._publish,
            outgoing_bytes_max=options.outgoing_bytes_max,
            failed=self._not_sent,
        )
        self._listener = Listener(
            self._servers,
            names.channel(name),
            sharded=self._are_sharded,
            timeout_s=options.timeout_s,
            backoff=Backoff(_BACKOFF_FIRST_S, _BACKOFF_MAX_S, rng),
            heard=self._heard,
            changed=self._hearing_changed,
            failed=self._unheard,
        )
        self._register = Register(
            calls,
            names,
            name,
            clock,
            self,
            interval_s=options.interval_s,
            backoff=Backoff(_BACKOFF_FIRST_S, _BACKOFF_MAX_S, rng),
            hears=lambda: self._listener.up,
        )
        self._entered = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        # Tells others to forget what they know of this broker; sends what was kept.
        self._telling: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None
        # Who was there before Redis went, and waits for them to be there again.
        self._before: set[str] = set()
        self._settling: asyncio.Task[None] | None = None
        self._stopping = False
        self._forwarded = self._refused = self._malformed = 0

    async def start(self, audience: Audience) -> None:
        """Join the others; raises ConfigError when Redis says that this is not allowed.

        A Redis that is away is waited for no longer than a request, and then joined when it is
        back.
        """
        self._audience = audience
        brokers = self._names.brokers
        try:
            await self._calls.run(brokers, ("SISMEMBER", brokers, self.name))
        except Failure as failure:
            if failure.denied or not failure.temporary:
                await self._servers.close()
                raise ConfigError(f"bus: {failure}") from None
            log.warning("bus.away", reason=str(failure))
        self._listener.start()
        self._register.start()
        try:
            async with asyncio.timeout(self._options.timeout_s):
                await self._entered.wait()
        except TimeoutError:
            log.warning("bus.away", reason=self._away)

    async def _are_sharded(self) -> bool:
        """Whether the servers spread channels; raises Failure."""
        if self._sharded is None:
            (found,) = await self._calls.run(self._names.brokers, ("COMMAND", "INFO", "SPUBLISH"))
            self._sharded = bool(found) and found[0] is not None
        return self._sharded

    async def stop(self) -> None:
        """Leave the others: they know at once."""
        self._stopping = True
        await self._register.stop()
        await self._listener.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._mail.stop()
        await self._lookup.stop()
        await self._servers.close()

    async def added(self, key: str, *, first: bool) -> bool:
        """A session here has a key; returns when all brokers know it."""
        known = await self._register.add(key, first=first)
        if known and self._telling is not None:
            await asyncio.wait([self._telling])
        return known

    def removed(self, keys: Iterable[str]) -> None:
        """No session here has these keys any more."""
        self._register.remove(keys)

    async def forward(self, message: Message) -> tuple[int, Collection[str]]:
        """Hand a message to the brokers that have its key; how many sessions that reached."""
        if not self._up or self._draining is not None:
            # Behind what is kept, so that it does not overtake it.
            self._keep(message)
            return 0, ()
        found = await self._find(message.to.removeprefix(PREFIX), message)
        if not found:
            return 0, ()
        question = await self._mail.ask(found, _delivery(message), self._options.answer_s)
        self._check_outcome(question)
        self._forwarded += 1
        return question.count, question.answered

    async def close(self, key: str, code: int, reason: str) -> int:
        """Close the sessions of others that have a key; how many there were."""
        if not self._up:
            raise self._refuse()
        found = await self._find(key, None)
        if not found:
            return 0
        question = await self._mail.ask(
            found, lambda number: Close(number, key, code, reason), self._options.answer_s
        )
        self._check_outcome(question)
        return question.count

    def counts(self) -> dict[str, int]:
        """What has happened so far."""
        return {
            "bus_up": int(self._up),
            "bus_forwarded": self._forwarded,
            "bus_refused": self._refused,
            "bus_kept": len(self._keeping),
            "bus_expired": self._keeping.expired,
            "bus_lookups": self._lookup.asked,
            "bus_remembered": self._lookup.remembered,
            "bus_envelopes": self._mail.sent,
            "bus_unanswered": self._mail.unanswered,
            "bus_deaf": self._mail.deaf,
            "bus_unsure": self._mail.unsure,
            "bus_malformed": self._malformed,
            "bus_buried": self._register.buried,
        }

    @property
    def _up(self) -> bool:
        """Whether others can be asked, and those who were there before are there."""
        return self._register.up and self._settling is None

    async def _find(self, key: str, message: Message | None) -> Collection[str]:
        found = self._lookup.fresh(key)
        if found is None:
            try:
                found = await self._lookup.find(key)
            except Failure as failure:
                # Nobody was asked: it can be kept.
                self._away = str(failure)
                if message is None:
                    raise self._refuse() from None
                self._keep(message)
                return ()
        return found

    def _check_outcome(self, question: Question) -> None:
        if question.failure is not None or not question.said:
            self._refused += 1
            why = question.failure or f"{self._place.shown}: no answer in time"
            raise BusAway(f"bus: {why}", outcome_unknown=True)

    def _keep(self, message: Message) -> None:
        """Keep what cannot be forwarded now, or refuse it."""
        if self._options.away == "refuse":
            raise self._refuse()
        try:
            self._keeping.keep(message)
        except Overload as error:
            self._refused += 1
            raise BusAway(error.reason) from None
        if self._up:
            self._send_kept()

    def _refuse(self) -> BusAway:
        self._refused += 1
        return BusAway(f"bus: it is away, and other processes were not asked: {self._away}")

    def _send_kept(self) -> None:
        """Begin to send what was kept, unless that is being done."""
        if len(self._keeping) and self._draining is None:
            self._draining = self._spawn(self._drain())

    async def _drain(self) -> None:
        """Send what was kept, in order, as long as the bus is there: nobody waits for answers."""
        turns = 0
        try:
            while self._up and (message := self._keeping.oldest()) is not None:
                turns += 1
                if not turns % _DRAIN_AT_ONCE:
                    await asyncio.sleep(0)  # others have their turn
                key = message.to.removeprefix(PREFIX)
                found = self._lookup.fresh(key)
                if found is None:
                    found = await self._lookup.find(key)
                self._mail.check()
                self._mail.tell(found, _delivery(message)(0))
                self._keeping.let_go(message)
                self._forwarded += bool(found)
        except Failure as failure:
            # It is kept still; whoever was asked has noticed.
            log.info("bus.kept", messages=len(self._keeping), reason=str(failure))
        except Overload:
            await self._mail.settled()
        finally:
            self._draining = None
        if self._up:
            self._send_kept()

    async def _publish(self, envelopes: list[tuple[str, bytes]]) -> list[int | Failure | None]:
        word = "SPUBLISH" if self._sharded else "PUBLISH"
        commands = [(word, self._names.channel(broker), data) for broker, data in envelopes]
        if self._place.kind == "cluster":
            # Each of them is with another server: who does not reach one reaches the others.
            return list(await asyncio.gather(*(self._publish_one(one) for one in commands)))
        try:
            return list(await self._calls.run(self._names.brokers, *commands))
        except Failure as failure:
            return [failure] * len(envelopes)

    async def _publish_one(self, command: tuple[str, str, bytes]) -> int | Failure | None:
        try:
            (count,) = await self._calls.run(command[1], command)
        except Failure as failure:
            return failure
        # Without shards a server counts those alone that listen on it.
        return int(count) if self._sharded else None

    def _heard(self, data: bytes) -> None:
        try:
            envelope = decode_envelope(data)
        except RemoteProtocolError as error:
            self._malformed += 1
            if self._malformed == 1:
                log.warning("bus.malformed", reason=error.reason)
            return
        for op in envelope.ops:
            self._take(envelope.sender, op)

    def _take(self, sender: str, op: BusOp) -> None:
        if isinstance(op, Answers):
            self._mail.heard(sender, op.counts)
            return
        self._mail.heard(sender, [])
        if isinstance(op, Deliver):
            message = Message(op.id, "", PREFIX + op.key, op.ts_ms, op.payload, op.binary)
            count = self._audience.deliver(message, sender)
        elif isinstance(op, Close):
            count = self._audience.close_here(op.key, op.code, op.reason)
        else:
            self._lookup.forget(op.keys)
            if op.keys is None:
                # It began anew, maybe as Redis had forgotten it; then this broker, too.
                self._register.beat_soon()
            count = 0
        if op.number:
            self._mail.answer(sender, op.number, count)

    def keys(self) -> Collection[str]:
        """All keys that some session here has."""
        return self._audience.keys()

    def knows(self, brokers: set[str]) -> None:
        """All brokers there are."""
        self._lookup.know(brokers)
        self._mail.forget(brokers)

    def entered(self, brokers: set[str]) -> None:
        """All that is here is written down."""
        self.knows(brokers)
        if self._entered.is_set():
            self._send_kept()
            return
        log.info("bus.up", redis=self._place.shown, broker=self.name, brokers=len(brokers))
        self._lookup.listening = True
        self._entered.set()
        # Who looked for one of its keys while it was not there may remember that nobody has it.
        if self._before or len(self._keeping):
            self._telling = self._settling = self._spawn(self._settle(brokers))
        else:
            self._telling = self._spawn(self._tell_changed(None, brokers, lambda known: None))

    async def _settle(self, brokers: set[str]) -> None:
        """Wait a while until those who were there before listen, and are written down, again: they
        come back each in its time. All are told to forget what they remember."""
        loop, name = asyncio.get_running_loop(), self._names.brokers
        deadline, told = loop.time() + _SETTLE_S, {self.name}
        try:
            while self._register.up and loop.time() < deadline:
                if others := (self._before | brokers) - told:
                    told |= await self._tell_to_forget(others)
                if self._before and self._before <= told & brokers:
                    break
                await asyncio.sleep(_SETTLE_LOOK_S)
                (found,) = await self._calls.run(name, ("SMEMBERS", name))
                brokers = read_names(found)
        except Failure as failure:
            self._failed(failure)
        except Overload as full:
            log.warning("bus.not.told", reason=full.reason)
        finally:
            # Unless it has begun anew meanwhile.
            last = self._settling is asyncio.current_task()
            if last:
                self._settling = None
        if last and self._register.up:
            self.knows(brokers)
            self._before = set()
            self._send_kept()

    async def _tell_to_forget(self, brokers: set[str]) -> set[str]:
        """Let others forget whatever they remember; who said that it has."""
        forget = await self._mail.ask(
            brokers, lambda number: Changed(number, None), _SETTLE_ANSWER_S, patient=True
        )
        return forget.answered

    def gone(self, reason: str) -> None:
        """What is written down may not be so any more."""
        self._before |= self._lookup.known - self._mail.silent
        self._away = reason if self._listener.up else self._deaf
        self._stop_trusting()
        if self._entered.is_set():
            self._entered.clear()
            if not self._stopping:
                log.warning("bus.away", reason=self._away)

    def wrote(self, keys: list[str], brokers: set[str], done: Callable[[bool], None]) -> None:
        """New keys are written down: others are to forget what they knew of them."""
        self._spawn(self._tell_changed(keys, brokers, done))

    async def _tell_changed(
        self, keys: list[str] | None, brokers: set[str], done: Callable[[bool], None]
    ) -> None:
        """Let others forget what they knew of some keys, or wait until it is not fresh any more."""
        others, known = brokers - {self.name}, False
        try:
            if others:
                changed = await self._mail.ask(
                    others,
                    lambda number: Changed(number, keys),
                    self._options.cache_s,
                    patient=True,
                )
                known = changed.failure is None
            else:
                known = True
        except Overload:
            # They are not told, and do not remember it for longer.
            await asyncio.sleep(self._options.cache_s)
            known = True
        finally:
            done(known)

    def _hearing_changed(self) -> None:
        if not self._listener.up:
            # What was said meanwhile was not heard: begin anew, as if Redis had been away.
            self._register.doubt()
            self.gone(self._deaf)
        self._register.look()

    def _stop_trusting(self) -> None:
        self._lookup.listening = False
        self._lookup.forget(None)

    def _failed(self, failure: Failure) -> None:
        """A request failed: what else is written down may be in doubt."""
        self._register.doubt()
        self.gone(str(failure))

    def _forgotten(self) -> None:
        """Redis does not know this broker: it may know nobody."""
        self._register.doubt()
        self.gone("this broker was forgotten, or taken for dead")

    def _not_sent(self, failure: Failure) -> None:
        """Something may not have been sent: to one broker of a Cluster, or to anybody."""
        if failure.everywhere:
            self._failed(failure)

    def _unheard(self, reason: str) -> None:
        self._away = self._deaf = f"{self._place.shown}: {reason}"

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = errand.run(work, "bus", ends=True)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _delivery(message: Message) -> Callable[[int], BusOp]:
    key = message.to.removeprefix(PREFIX)
    return lambda number: Deliver(
        number, message.id, message.ts_ms, key, message.payload, message.binary
    )
