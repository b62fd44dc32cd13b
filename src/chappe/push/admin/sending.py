"""Sending: an order becomes a job, a note, and what waits for clients or lies in a topic (P7, P8).

    clients   limits -> job -> body -> waits for each -> where they are -> comets
    a topic   limits -> job -> place in the topic -> body -> comets with subscribers

A kill between any two loses nothing that was answered: what no comet took waits. What was not
answered may have happened, and asked again with the same key it goes on as the same job: every
step may be made twice.
"""

from __future__ import annotations

import msgspec

from chappe.clock import Clock
from chappe.errors import Unreachable
from chappe.ids import PrefixedIds
from chappe.push.admin.counting import Counting, told
from chappe.push.admin.handing import Handing
from chappe.push.admin.limits import DeviceLimits
from chappe.push.admin.options import DeskOptions
from chappe.push.admin.order import Order
from chappe.push.admin.rates import Rates
from chappe.push.admin.repeats import Plan, Repeats
from chappe.push.admin.targets import Missing, Targets
from chappe.push.app import PushApp
from chappe.push.job import Job
from chappe.push.note import Note
from chappe.push.provider import Provider
from chappe.push.state.states import States


class Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of an order so far; the job's tally goes on."""

    job: str
    note: str
    aimed: int
    # Handed to connections, and connected nowhere.
    sent: int
    offline: int
    missing: Missing = Missing()
    # Clients that had as many notes in this hour as they may.
    limited: list[str] = []


class Sending:
    """Carries orders out."""

    def __init__(
        self,
        states: States,
        targets: Targets,
        handing: Handing,
        counting: Counting,
        provider: Provider,
        *,
        ids: PrefixedIds,
        clock: Clock,
        rates: Rates,
        options: DeskOptions,
    ) -> None:
        self._states = states
        self._targets = targets
        self._handing = handing
        self._counting = counting
        self._provider = provider
        self._ids = ids
        self._clock = clock
        self._rates = rates
        self._options = options
        self._repeats = Repeats(states.meta, options.repeat_s)
        self._limits = DeviceLimits(states.meta, self._repeats, clock)

    async def send(self, app: PushApp, order: Order) -> Sent:
        """Send; raises BadRequest, Throttled, Unreachable if nobody is there to have it, and
        StorageError if it may not have happened."""
        order.check(self._options)
        self._rates.take(f"sends {app.key}", app.limits.sends_per_s, order.aim.named)
        if order.repeat is None:
            return await self._run(app, order)
        name, digest = _key(app, order), order.digest()
        if before := await self._repeats.done(name, digest):
            return msgspec.msgpack.decode(before, type=Sent)
        sent = await self._run(app, order)
        answer = msgspec.msgpack.encode(sent)
        await self._repeats.end(name, digest, self._clock.wall_ms(), answer)
        return sent

    async def _run(self, app: PushApp, order: Order) -> Sent:
        if order.aim.topic is not None:
            return await self._to_topic(app, order)
        resolved = await self._targets.resolve(app.key, order.aim)
        if not resolved.clients:
            raise Unreachable(f"{order.aim.kind}: the app has no such client, device or user")
        sent = await self._to_clients(app, order, resolved.clients)
        return msgspec.structs.replace(sent, missing=resolved.missing)

    async def _plan(self, app: PushApp, order: Order) -> Plan:
        """What a send is known by. Made when nothing forbids it any more: its note's life begins
        then."""
        note = self._ids.next("p" if order.aim.topic is None else "m")
        plan = Plan(self._ids.next("j"), note, self._clock.wall_ms(), order.digest())
        return plan if order.repeat is None else await self._repeats.begin(_key(app, order), plan)

    async def to_holders(self, app: PushApp, order: Order, holders: list[str]) -> Sent:
        """Send to clients of the app that are known to wait; raises as `send` does."""
        order.check_note(self._options)
        self._rates.take(f"sends {app.key}", app.limits.sends_per_s, len(holders))
        return await self._to_clients(app, order, holders)

    async def _to_clients(self, app: PushApp, order: Order, clients: list[str]) -> Sent:
        came_us = self._clock.wall_us()
        charge = None if order.repeat is None else f"{_key(app, order)}:{order.digest()}"
        clients, limited = await self._limits.allow(app, clients, charge)
        plan = await self._plan(app, order)
        note, job = self._make(app, order, plan)
        await self._states.meta.put_job(job, len(clients))
        if order.aim.kind == "many":
            await self._targets.remember(note, clients)
        await self._states.message.put(note)
        await self._let_wait(note, clients)
        there, offline = await self._handing.locate(clients)
        self._tell(note, job, len(clients), came_us, len(offline), list(there))
        handed = await self._handing.deliver(note, there)
        offline = [*offline, *handed.absent]
        if offline:
            self._provider.offline(note, offline)
        await self._counting.count({job.id: {"sent": handed.taken, "offline": len(offline)}})
        return Sent(
            job=job.id,
            note=note.id,
            aimed=len(clients),
            sent=handed.taken,
            offline=len(offline),
            limited=limited,
        )

    async def _to_topic(self, app: PushApp, order: Order) -> Sent:
        came_us, topic = self._clock.wall_us(), order.aim.topic or ""
        aimed = await self._states.topic.count(app.key, topic)
        if not aimed:
            raise Unreachable("topic: nobody subscribes to it")
        plan = await self._plan(app, order)
        note, job = self._make(app, order, plan)
        await self._states.meta.put_job(job, aimed)
        note = msgspec.structs.replace(note, position=await self._append(note))
        await self._states.message.put(note)
        servers = await self._states.topic.servers(app.key, topic)
        self._tell(note, job, aimed, came_us, None, servers)
        sent = await self._handing.broadcast(note, servers)
        # Somebody may have come or gone meanwhile.
        offline = max(0, aimed - sent)
        await self._counting.count({job.id: {"sent": sent, "offline": offline}})
        return Sent(job=job.id, note=note.id, aimed=aimed, sent=sent, offline=offline)

    async def _append(self, note: Note) -> int:
        return await self._states.topic.append(
            note.app,
            note.topic or "",
            note.id,
            self._clock.wall_ms(),
            note.expires_ms,
            note.collapse,
            self._options.topic_notes_max,
        )

    async def _let_wait(self, note: Note, clients: list[str]) -> None:
        batch, displaced = self._options.batch, dict[str, str]()
        for start in range(0, len(clients), batch):
            some = clients[start : start + batch]
            displaced |= await self._states.message.add(note, some, self._options.waiting_max)
        if displaced:
            await self._counting.crowded_out(note, displaced)

    def _make(self, app: PushApp, order: Order, plan: Plan) -> tuple[Note, Job]:
        expires_ms = plan.ts_ms + (order.ttl_s or self._options.ttl_s) * 1000
        note = Note(
            id=plan.note,
            job=plan.job,
            app=app.key,
            type=order.type,
            ts_ms=plan.ts_ms,
            expires_ms=expires_ms,
            content=order.content,
            priority=order.priority,
            collapse=order.collapse,
            topic=order.aim.topic,
            user=order.aim.target if order.aim.kind == "user" else None,
            once=order.once,
        )
        job = Job(
            id=plan.job,
            app=app.key,
            note=plan.note,
            aim=order.aim.kind,
            target=order.aim.target,
            name=order.name,
            created_ms=plan.ts_ms,
            expires_ms=expires_ms,
        )
        return note, job

    def _tell(
        self,
        note: Note,
        job: Job,
        aimed: int,
        came_us: int,
        offline: int | None,
        servers: list[int],
    ) -> None:
        self._counting.recorder.sent(
            told(note),
            f"{job.aim}:{'' if job.aim == 'many' else job.target}",
            aimed,
            len(note.content),
            came_us,
            note.expires_ms * 1000,
            offline,
            self._handing.names(servers),
        )


def _key(app: PushApp, order: Order) -> str:
    return f"{app.key}:{order.repeat}"
