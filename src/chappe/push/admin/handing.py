"""Handing notes to comets: what cannot be handed over waits for its client's next login."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from chappe.errors import Overload, Unreachable
from chappe.push.comets import Comets, Handed
from chappe.push.note import Note
from chappe.push.state.states import States
from chappe.wire.pushlink import Withdraw


class Located(NamedTuple):
    """The comets that clients are on, and who is on none."""

    there: dict[int, list[str]]
    offline: list[str]


class Handing:
    """Finds the comets of clients, and hands notes over; each comet in its own time."""

    def __init__(self, states: States, comets: Comets, batch: int) -> None:
        self._states = states
        self._comets = comets
        self._batch = batch

    async def locate(self, clients: Sequence[str]) -> Located:
        """Where clients are; raises StorageError. To be asked after the note waits for them: who
        logs in later finds it, and who did before has a route."""
        routes = await self._states.route.find(clients)
        there: dict[int, list[str]] = {}
        for client, server in routes.items():
            there.setdefault(server, []).append(client)
        return Located(there, [client for client in clients if client not in routes])

    def names(self, servers: Iterable[int]) -> list[str]:
        """What those of these comets are called that live."""
        living = self._comets.living()
        return sorted(living[server].name for server in servers if server in living)

    async def deliver(self, note: Note, there: dict[int, list[str]]) -> Handed:
        """Hand a note to clients; those whose comet does not take it are absent."""
        handed = await asyncio.gather(
            *(self._deliver(server, note, clients) for server, clients in there.items())
        )
        absent = [client for each in handed for client in each.absent]
        return Handed(sum(each.taken for each in handed), tuple(absent))

    async def broadcast(self, note: Note, servers: Sequence[int]) -> int:
        """Hand a topic's note to comets; how many subscribers got it."""
        handed = await asyncio.gather(*(self._broadcast(server, note) for server in servers))
        return sum(handed)

    def withdraw(self, note: Note, clients: list[str]) -> None:
        """Take a note back from clients that have it; comets also keep bodies, so all are told.

        Where these are not known, as of a topic, a comet goes through all it has.
        """
        starts = range(0, max(1, len(clients)), self._batch)
        ops = [
            Withdraw(note.app, note.id, clients[start : start + self._batch], note.topic)
            for start in starts
        ]
        for server in self._comets.desks():
            for op in ops:
                self._comets.tell(server, op)

    async def _deliver(self, server: int, note: Note, clients: list[str]) -> Handed:
        taken, absent = 0, list[str]()
        for start in range(0, len(clients), self._batch):
            batch = clients[start : start + self._batch]
            try:
                handed = await self._comets.deliver(server, note, batch)
            except (Unreachable, Overload):
                handed = Handed(0, tuple(batch))
            taken += handed.taken
            absent += handed.absent
        return Handed(taken, tuple(absent))

    async def _broadcast(self, server: int, note: Note) -> int:
        try:
            return (await self._comets.broadcast(server, note)).taken
        except (Unreachable, Overload):
            return 0
