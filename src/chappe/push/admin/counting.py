"""Counting what became of jobs: what was done is done, whether or not it can be counted."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from chappe.errors import StorageError
from chappe.events.pushrecorder import PushRecorder, Reason, Told
from chappe.push.note import Note
from chappe.push.state.states import States

log = structlog.get_logger()


class Counting:
    """Adds to tallies (P9), and tells the recorder."""

    def __init__(self, states: States, recorder: PushRecorder) -> None:
        self._states = states
        self.recorder = recorder

    async def count(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Add to the tallies of jobs; a store that cannot is logged, for nobody can act on it."""
        counts = {job: added for job, some in counts.items() if (added := _above_zero(some))}
        if not counts:
            return
        try:
            await self._states.meta.count(counts)
        except StorageError as error:
            log.warning("push tallies were not counted", jobs=len(counts), error=str(error))

    async def left(self, job: str) -> int:
        """Whom a job was for and who has not acknowledged it, by what is counted until now; 0 where
        a store cannot tell."""
        try:
            told = (await self._states.meta.jobs([job])).get(job)
        except StorageError as error:
            log.warning("push tallies were not read", job=job, error=str(error))
            return 0
        return 0 if told is None else max(0, told[1].aimed - told[1].arrived - told[1].dropped)

    async def crowded_out(self, by: Note, displaced: Mapping[str, str]) -> None:
        """A note took the places of others, by client."""
        try:
            bodies = await self._states.message.bodies(list(dict.fromkeys(displaced.values())))
        except StorageError as error:
            log.warning("push notes that were displaced are not known", error=str(error))
            return
        clients: dict[str, list[str]] = {}
        for client, id_ in displaced.items():
            clients.setdefault(id_, []).append(client)
        for id_, note in bodies.items():
            collapsed = by.collapse is not None and note.collapse == by.collapse
            reason: Reason = "collapsed" if collapsed else "crowded_out"
            self.recorder.dropped(told(note), reason, clients[id_])
        await self.count({note.job: {"dropped": len(clients[id_])} for id_, note in bodies.items()})

    async def removed(self, client: str) -> None:
        """A client is no more: what waits for it waits no more."""
        message = self._states.message
        waiting = (await message.waiting([client])).get(client, [])
        if not waiting:
            return
        bodies = await message.bodies(waiting)
        gone = (await message.settle({client: waiting})).get(client, [])
        notes = [bodies[id_] for id_ in gone if id_ in bodies]
        for note in notes:
            self.recorder.dropped(told(note), "removed", [client])
        await self.count({note.job: {"dropped": 1} for note in notes})


def told(note: Note) -> Told:
    """A note, as events name it."""
    return Told(note.app, note.id, note.job)


def _above_zero(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
