"""Notes that were sent: taken back, or replaced, for those who have not seen them yet (P7)."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import msgspec

from chappe.clock import Clock
from chappe.errors import Unreachable
from chappe.push.admin.counting import Counting, told
from chappe.push.admin.handing import Handing
from chappe.push.admin.order import Aim, Order
from chappe.push.admin.sending import Sending, Sent
from chappe.push.admin.targets import Targets, aim_of
from chappe.push.app import PushApp
from chappe.push.job import Job
from chappe.push.names import is_id
from chappe.push.note import Note
from chappe.push.provider import Provider
from chappe.push.state.states import States


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a note says from now on; what is None stays as it was, its end too."""

    content: bytes
    type: int | None = None
    ttl_s: int | None = None


class _Found(NamedTuple):
    job: Job
    note: Note
    # Whom it was for, and who of them has not acknowledged it; of a topic's nobody is known.
    clients: list[str]
    holders: list[str]


class Notes:
    """Takes notes back. Who has acknowledged one keeps what it has."""

    def __init__(
        self,
        states: States,
        targets: Targets,
        handing: Handing,
        counting: Counting,
        provider: Provider,
        sending: Sending,
        clock: Clock,
    ) -> None:
        self._states = states
        self._targets = targets
        self._handing = handing
        self._counting = counting
        self._provider = provider
        self._sending = sending
        self._clock = clock

    async def cancel(self, app: PushApp, id: str) -> int:
        """Take a note back; from how many that waited: of a topic, who has not acknowledged it as
        far as is counted by now. Raises Unreachable if the app has no such note, or it expired."""
        return await self._cancel(await self._find(app, id))

    async def replace(self, app: PushApp, id: str, change: Change) -> Sent:
        """Send another in a note's place to those who have not acknowledged it; of a topic, to all
        who subscribe. Raises as `send` does, and Unreachable if everybody has it."""
        found = await self._find(app, id)
        order = _order(found, change, self._clock.wall_ms())
        # The new one goes first: a kill in between leaves a device with both, not with none.
        if found.note.topic is not None:
            sent = await self._sending.send(app, order)
        elif found.holders:
            sent = await self._sending.to_holders(app, order, found.holders)
        else:
            raise Unreachable("note: nobody waits for it any more")
        await self._cancel(found)
        return sent

    async def _find(self, app: PushApp, id: str) -> _Found:
        note = (await self._states.message.bodies([id])).get(id) if is_id(id, "pm") else None
        if note is None or note.app != app.key:
            raise Unreachable("note: the app has no such, or it expired or was taken back")
        job = (await self._states.meta.jobs([note.job])).get(note.job)
        if job is None:
            raise Unreachable("note: its job is not known")
        clients = await self._targets.recall(job[0], note)
        holders = await self._states.message.holders(id, clients) if clients else []
        return _Found(job[0], note, clients, holders)

    async def _cancel(self, found: _Found) -> int:
        note = found.note
        # First the body, without which nobody gets it; then what leads to it.
        await self._states.message.cancel(note.id)
        if note.topic is not None:
            await self._states.topic.take_out(note.app, note.topic, note.id)
        dropped: list[str] = []
        if found.holders:
            waited = {client: [note.id] for client in found.holders}
            settled = await self._states.message.settle(waited)
            dropped = [client for client, ids in settled.items() if ids]
        self._handing.withdraw(note, found.clients)
        self._provider.withdrawn(note, dropped)
        count = len(dropped)
        if await self._states.meta.cancel_job(found.job.id, self._clock.wall_ms()):
            self._tell(note, dropped)
            if note.topic is not None:
                # Nobody is named: it is all who are left.
                count = await self._counting.left(found.job.id)
        await self._counting.count({found.job.id: {"dropped": count}})
        return count

    def _tell(self, note: Note, dropped: list[str]) -> None:
        if note.topic is not None:
            self._counting.recorder.dropped(told(note), "cancelled")
        elif dropped:
            self._counting.recorder.dropped(told(note), "cancelled", dropped)


def _order(found: _Found, change: Change, now_ms: int) -> Order:
    job, note, _, holders = found
    left_s = max(1, ceil((note.expires_ms - max(now_ms, note.ts_ms)) / 1000))
    return Order(
        aim=Aim(clients=tuple(holders)) if job.aim == "many" else aim_of(job),
        content=change.content,
        type=note.type if change.type is None else change.type,
        ttl_s=left_s if change.ttl_s is None else change.ttl_s,
        priority=note.priority,
        collapse=note.collapse,
        once=note.once,
        name=job.name,
    )
