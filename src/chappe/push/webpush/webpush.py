"""The provider of Web Push: what waits for browsers that are not connected is handed to their push
services, off the path of who sends.

One task looks up which clients have subscriptions, another starts attempts, each a task of its own;
apps take turns at both.
Whatever happens here, a note waits for its client until that acknowledges it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import msgspec
import structlog

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.events.pushrecorder import PushRecorder, Told
from chappe.push.note import Note
from chappe.push.state.states import States
from chappe.push.web.tokens import Tokens
from chappe.push.webpush.courier import Courier, Outcome, Verdict
from chappe.push.webpush.line import Lot, Lots, Parcel, Parcels
from chappe.push.webpush.message import text_of
from chappe.push.webpush.options import WebPushOptions
from chappe.push.webpush.subscriptions import KIND, SubscriptionDesk, Subscriptions

log = structlog.get_logger()

# Clients whose subscriptions are looked up in one go.
_BATCH = 500
# Said of one host, and one outcome, at most so often.
_QUIET_S = 60.0
_QUIET_MAX = 1000
# Of which nothing need be said.
_WELL = (Outcome.HANDED, Outcome.GONE, Outcome.NEEDLESS)


class WebPush:
    """Takes notes, and hands them over. Made and started on the running loop."""

    def __init__(
        self,
        states: States,
        subscriptions: Subscriptions,
        courier: Courier,
        *,
        clock: Clock,
        rng: Random,
        recorder: PushRecorder,
        options: WebPushOptions,
    ) -> None:
        self._subscriptions = subscriptions
        self._options = options
        self._states = states
        self._courier = courier
        self._clock = clock
        self._rng = rng
        self._recorder = recorder
        self._lots = Lots(options)
        self._parcels = Parcels(options)
        self._counts: Counter[str] = Counter()
        self._said: dict[tuple[str, str], float] = {}
        # There are lots, or room for parcels, that there were not before.
        self._wanted = asyncio.Event()
        self._stirred = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._attempts: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self) -> None:
        """Begin to hand over."""
        for run in (self._look_up, self._dispatch):
            task = asyncio.create_task(run())
            task.add_done_callback(_say_if_broken)
            self._tasks.add(task)

    async def close(self) -> None:
        """Stop at once: what was not handed over waits for its device."""
        self._closed = True
        if self.waiting:
            log.info("notes were not handed to push services before the end", count=self.waiting)
        tasks = self._tasks | self._attempts
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._courier.close()

    def desk(self, tokens: Tokens) -> SubscriptionDesk:
        """What answers browsers."""
        return SubscriptionDesk(
            self._subscriptions, self._states, tokens, self._courier.public_text, self._options
        )

    def counts(self) -> Mapping[str, int]:
        """How often each outcome there was."""
        return self._counts

    @property
    def waiting(self) -> int:
        """How many notes for clients are still to be looked up, or handed over."""
        return self._lots.clients + len(self._parcels)

    def offline(self, note: Note, clients: Sequence[str]) -> None:
        """A note waits for clients that are on no comet."""
        room = 0 if self._closed else self._lots.room(note.app)
        taken = list(clients[:room])
        if len(taken) < len(clients):
            self._finish(note, clients[room:], Verdict(Outcome.CROWDED_OUT, "queue"), "")
        if taken:
            bare = msgspec.structs.replace(note, content=b"")
            self._lots.put(Lot(bare, text_of(note), taken))
            self._wanted.set()

    def withdrawn(self, note: Note, clients: Sequence[str]) -> None:
        """Nothing to do: before each attempt it is asked whether the note still waits. What the
        push service has, it has: a browser shows something for each message it gets."""

    async def _look_up(self) -> None:
        while True:
            self._wanted.clear()
            while (lot := self._lots.take(self._parcels.has_room, _BATCH)) is not None:
                try:
                    await self._look_up_some(lot)
                except StorageError as error:
                    verdict = Verdict(Outcome.UNKNOWN, str(error))
                    self._finish(lot.note, lot.clients, verdict, "")
            await self._wanted.wait()

    async def _look_up_some(self, lot: Lot) -> None:
        found = await self._subscriptions.find(lot.clients)
        for client in await self._holders(lot.note, list(found)):
            subscription, stored = found[client]
            self._parcels.put(
                Parcel(lot.note, lot.text, client, subscription, stored, subscription.host)
            )
        self._stirred.set()

    async def _holders(self, note: Note, clients: list[str]) -> list[str]:
        if not clients or note.topic is not None:
            return clients
        return await self._states.message.holders(note.id, clients)

    async def _dispatch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._stirred.clear()
            now = loop.time()
            while (parcel := self._parcels.take(now)) is not None:
                task = asyncio.create_task(self._attempt(parcel))
                self._attempts.add(task)
                task.add_done_callback(self._attempts.discard)
                self._wanted.set()
            try:
                async with asyncio.timeout_at(self._due(now)):
                    await self._stirred.wait()
            except TimeoutError:
                continue

    def _due(self, now: float) -> float | None:
        due = self._parcels.due
        # Due already: something else stands in its way, and will stir when it is over.
        return due if due is not None and due > now else None

    async def _attempt(self, parcel: Parcel) -> None:
        loop = asyncio.get_running_loop()
        verdict: Verdict | None = None
        try:
            verdict = await self._try(parcel, loop.time())
        except Exception as error:
            # Whatever nobody thought of must not go unheard. Its text may tell an endpoint.
            verdict = Verdict(Outcome.GAVE_UP, type(error).__name__)
        finally:
            self._parcels.done(parcel, loop.time(), answered=_answered(verdict))
            self._stirred.set()
        if verdict is None:
            return
        if verdict.outcome is Outcome.GONE:
            await self._forget(parcel)
        if verdict.outcome is Outcome.LATER:
            self._put_off(parcel, verdict, loop.time())
        else:
            self._finish(parcel.note, [parcel.client], verdict, parcel.host)

    async def _try(self, parcel: Parcel, now: float) -> Verdict | None:
        """Make an attempt; None: there was none to be made, or not now."""
        rests_until = self._parcels.rests(parcel.host, now)
        if rests_until is not None:
            # Not all at the same moment.
            until = rests_until + self._rng.random() * self._options.retry_first_s
            if not self._keeps(parcel, until, now):
                self._finish(
                    parcel.note, [parcel.client], Verdict(Outcome.GAVE_UP, "rests"), parcel.host
                )
            return None
        if parcel.attempts and not await self._still_waits(parcel):
            return Verdict(Outcome.NEEDLESS, "it waits no more")
        parcel.attempts += 1
        return await self._courier.carry(parcel)

    async def _still_waits(self, parcel: Parcel) -> bool:
        try:
            return bool(await self._holders(parcel.note, [parcel.client]))
        except StorageError:
            # Twice is better than not at all: browsers show each id once.
            return True

    def _put_off(self, parcel: Parcel, verdict: Verdict, now: float) -> None:
        options = self._options
        pause_s = min(options.retry_most_s, options.retry_first_s * 2 ** (parcel.attempts - 1))
        pause_s *= 0.5 + self._rng.random() / 2
        pause_s = max(pause_s, min(options.retry_most_s, verdict.retry_after_s or 0.0))
        self._counts[Outcome.LATER] += 1
        if parcel.attempts >= options.attempts_max or not self._keeps(parcel, now + pause_s, now):
            gave_up = verdict._replace(outcome=Outcome.GAVE_UP)
            self._finish(parcel.note, [parcel.client], gave_up, parcel.host)

    def _keeps(self, parcel: Parcel, until: float, now: float) -> bool:
        """Put a parcel off, if its note lives then and there is room."""
        left_s = (parcel.note.expires_ms - self._clock.wall_ms()) / 1000
        return until - now < left_s and self._parcels.put_off(parcel, until)

    async def _forget(self, parcel: Parcel) -> None:
        try:
            await self._states.user.remove_bridge(parcel.client, KIND, parcel.stored)
        except StorageError as error:
            # The push service will say so again.
            log.warning("a subscription that is gone was not forgotten", error=str(error))

    def _finish(self, note: Note, clients: Sequence[str], verdict: Verdict, host: str) -> None:
        """Count and tell what became of a note."""
        outcome = verdict.outcome
        self._counts[outcome] += len(clients)
        self._recorder.bridged(Told(note.app, note.id, note.job), clients, outcome)
        if outcome not in _WELL and self._may_say(host, outcome):
            # Neither the endpoint nor the keys: who knows them can have messages sent.
            log.warning(
                "a note was not handed to a push service",
                outcome=outcome.value,
                cause=verdict.cause,
                host=host,
                note=note.id,
                clients=len(clients),
            )

    def _may_say(self, host: str, outcome: str) -> bool:
        now = self._clock.monotonic()
        if now - self._said.get((host, outcome), float("-inf")) < _QUIET_S:
            return False
        if len(self._said) >= _QUIET_MAX:
            self._said.clear()
        self._said[host, outcome] = now
        return True


def _answered(verdict: Verdict | None) -> bool | None:
    """Whether the host answered as one that works; None: it was not asked, or that is not known."""
    if verdict is None or verdict.outcome in (Outcome.NEEDLESS, Outcome.GAVE_UP):
        return None
    return verdict.outcome is not Outcome.LATER


def _say_if_broken(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("notes go to push services no more", exc_info=error)
