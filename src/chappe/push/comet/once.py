"""Notes that are shown on one of a user's devices: acknowledged there, the others lose them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from chappe.events.pushrecorder import PushRecorder
from chappe.push.comet.parcel import Brief
from chappe.push.comet.tallies import Tallies
from chappe.push.comets import Comets
from chappe.push.state.states import States
from chappe.wire.pushlink import Withdraw

# What waits to be taken back while the store is away; a device that keeps one too many shows it.
WAITING_MAX = 100_000
# Asked of the store at once.
AT_ONCE = 64


class _Once(NamedTuple):
    brief: Brief
    user: str
    client: str


class Onces:
    """Takes notes back from a user's other clients."""

    __slots__ = ("_comets", "_recorder", "_states", "_tallies", "_tried", "_waiting")

    def __init__(
        self, states: States, comets: Comets, tallies: Tallies, recorder: PushRecorder
    ) -> None:
        self._states = states
        self._comets = comets
        self._tallies = tallies
        self._recorder = recorder
        self._waiting: deque[_Once] = deque(maxlen=WAITING_MAX)
        # Who had notes when the store was asked to settle them and did not answer: it may have
        # settled them, and then does not say again who had them.
        self._tried: dict[_Once, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, brief: Brief, client: str) -> None:
        """A client was the first to acknowledge such a note."""
        assert brief.once_of is not None
        self._waiting.append(_Once(brief, brief.once_of, client))

    async def take_back(self) -> None:
        """Take back what there is to be; raises StorageError, and goes on from there then."""
        while self._waiting:
            some = list(islice(self._waiting, AT_ONCE))
            await self._take_back(some)
            for _ in some:
                self._waiting.popleft()

    async def _take_back(self, some: list[_Once]) -> None:
        held = await asyncio.gather(*[self._held(once) for once in await self._others(some)])
        before, self._tried = self._tried, dict(held)
        clients = list(dict.fromkeys(client for _, holders in held for client in holders))
        if not clients:
            return
        routes = await self._states.route.find(clients)
        settled: dict[str, list[str]] = {}
        for once, holders in held:
            for client in holders:
                settled.setdefault(client, []).append(once.brief.told.id)
        waited = await self._states.message.settle(settled)
        self._tried = {}
        for once, holders in held:
            tried = before.get(once, ())
            self._count(
                once,
                [
                    client
                    for client in holders
                    if once.brief.told.id in waited.get(client, ()) or client in tried
                ],
            )
            self._tell(once, holders, routes)

    def _count(self, once: _Once, lost: list[str]) -> None:
        """These do not get it any more; who acknowledged it meanwhile is none of them."""
        if lost:
            told = once.brief.told
            self._recorder.dropped(told, "withdrawn", lost)
            self._tallies.add(told.job, "dropped", len(lost))

    async def _others(self, some: list[_Once]) -> list[tuple[_Once, list[str]]]:
        """The other clients of each user that has any."""
        by_app: dict[str, list[_Once]] = {}
        for once in some:
            by_app.setdefault(once.brief.told.app, []).append(once)
        found: list[tuple[_Once, list[str]]] = []
        for app, onces in by_app.items():
            users = list(dict.fromkeys(once.user for once in onces))
            clients = await self._states.user.clients_of_users(app, users)
            for once in onces:
                others = [each for each in clients.get(once.user, ()) if each != once.client]
                found += [(once, others)] if others else []
        return found

    async def _held(self, asked: tuple[_Once, list[str]]) -> tuple[_Once, list[str]]:
        once, others = asked
        holders = await self._states.message.holders(once.brief.told.id, others)
        return once, list(dict.fromkeys([*holders, *self._tried.get(once, ())]))

    def _tell(self, once: _Once, holders: list[str], routes: Mapping[str, int]) -> None:
        by_server: dict[int, list[str]] = {}
        for client in holders:
            if client in routes:
                by_server.setdefault(routes[client], []).append(client)
        app, note_id, _ = once.brief.told
        for server, there in by_server.items():
            self._comets.tell(server, Withdraw(app, note_id, there))
