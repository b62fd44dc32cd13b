"""Targets: the clients that an order is for, and the names that nobody has."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from chappe.push.admin.clients import Clients
from chappe.push.admin.order import Aim
from chappe.push.job import Job
from chappe.push.note import Note
from chappe.push.state.states import States

_clients_decoder = msgspec.msgpack.Decoder(list[str])


class Missing(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who was named and is not there."""

    clients: list[str] = []
    devices: list[str] = []
    users: list[str] = []

    @property
    def count(self) -> int:
        """How many names."""
        return len(self.clients) + len(self.devices) + len(self.users)


class Resolved(NamedTuple):
    """Clients, each once; and who is not there."""

    clients: list[str]
    missing: Missing


class Targets:
    """Finds clients by whatever they are called."""

    def __init__(self, states: States, clients: Clients) -> None:
        self._states = states
        self._clients = clients

    async def resolve(self, app: str, aim: Aim) -> Resolved:
        """The clients of an order that is for no topic."""
        found: dict[str, None] = {}
        own = {client.id for client in await self._clients.own(app, aim.clients)}
        found.update(dict.fromkeys(id_ for id_ in aim.clients if id_ in own))
        devices = await self._of_devices(app, aim)
        found.update(dict.fromkeys(devices.values()))
        users = await self._of_users(app, aim)
        for clients in users.values():
            found.update(dict.fromkeys(clients))
        missing = Missing(
            [id_ for id_ in dict.fromkeys(aim.clients) if id_ not in own],
            [device for device in dict.fromkeys(aim.devices) if device not in devices],
            [user for user in dict.fromkeys(aim.users) if user not in users],
        )
        return Resolved(list(found), missing)

    async def remember(self, note: Note, clients: list[str]) -> None:
        """Write down whom a note to many is for: a job's record has no room for them."""
        encoded = msgspec.msgpack.encode(clients)
        await self._states.meta.keep(_name(note), encoded, note.expires_ms)

    async def recall(self, job: Job, note: Note) -> list[str]:
        """The clients that a note was for; nobody knows those of a topic's."""
        if note.topic is not None:
            return []
        if job.aim == "many":
            kept = await self._states.meta.kept(_name(note))
            return _clients_decoder.decode(kept) if kept is not None else []
        return (await self.resolve(note.app, aim_of(job))).clients

    async def _of_devices(self, app: str, aim: Aim) -> dict[str, str]:
        if not aim.devices:
            return {}
        return await self._states.user.clients_of_devices(app, aim.devices)

    async def _of_users(self, app: str, aim: Aim) -> dict[str, list[str]]:
        if not aim.users:
            return {}
        found = await self._states.user.clients_of_users(app, aim.users)
        return {user: clients for user, clients in found.items() if clients}


def aim_of(job: Job) -> Aim:
    """To whom a job went that named one."""
    if job.aim == "client":
        return Aim(clients=(job.target,))
    if job.aim == "device":
        return Aim(devices=(job.target,))
    return Aim(users=(job.target,)) if job.aim == "user" else Aim(topic=job.target)


def _name(note: Note) -> str:
    return f"aim:{note.id}"
