"""Clients of an app: found by their id or their device, never those of another app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chappe.errors import BadRequest, Unreachable
from chappe.push.admin.counting import Counting
from chappe.push.comets import Comets
from chappe.push.names import check_device, check_name, is_id
from chappe.push.state.states import States
from chappe.push.state.user import Client
from chappe.wire.pushlink import Close, Why


class Which(NamedTuple):
    """One client, by its own id or by its device's."""

    client: str | None = None
    device: str | None = None


class Seen(NamedTuple):
    """A client, the comet it is on, if any, and the topics it subscribes to."""

    client: Client
    server: int | None
    topics: list[str]


class Clients:
    """Finds clients, and the users they belong to (P8)."""

    def __init__(self, states: States, comets: Comets, counting: Counting) -> None:
        self._states = states
        self._counting = counting
        self._comets = comets

    async def find(self, app: str, which: Which) -> Client:
        """A client of the app; raises BadRequest or Unreachable."""
        id_, device = which
        if (id_ is None) == (device is None):
            raise BadRequest("client: either it or a device is named")
        if device is not None:
            check_device(device)
            id_ = (await self._states.user.clients_of_devices(app, [device])).get(device)
        found = await self.own(app, [id_] if id_ is not None else [])
        if not found:
            raise Unreachable(f"{'client' if device is None else 'device'}: the app has no such")
        return found[0]

    async def own(self, app: str, ids: Sequence[str]) -> list[Client]:
        """Those of these clients that are there and the app's."""
        asked = [id_ for id_ in ids if is_id(id_, "c")]
        if not asked:
            return []
        found = await self._states.user.clients(asked)
        return [found[id_] for id_ in asked if id_ in found and found[id_].app == app]

    async def look(self, app: str, which: Which) -> Seen:
        """What is known of a client."""
        client = await self.find(app, which)
        routes = await self._states.route.find([client.id])
        topics = await self._states.topic.topics_of(app, client.id)
        return Seen(client, routes.get(client.id), sorted(topics))

    async def remove(self, app: str, which: Which) -> Client:
        """Forget a client: its tokens, user, topics, what waits for it; its connection ends."""
        client = await self.find(app, which)
        await self._states.user.remove_client(client.id)
        await self._states.topic.remove(app, client.id)
        await self._counting.removed(client.id)
        self.close(client.id, Why.REMOVED)
        return client

    async def bind(self, app: str, user: str, which: Which) -> Client:
        """Let a client belong to a user, and to no other; raises BadRequest if it is full."""
        check_name(user, "user")
        client = await self.find(app, which)
        if not await self._states.user.bind(app, user, client.id):
            raise BadRequest("user: it has as many clients as a user may have")
        return client._replace(user=user)

    async def unbind(self, app: str, which: Which) -> Client:
        """Let a client belong to nobody; whose it was."""
        client = await self.find(app, which)
        user = await self._states.user.unbind(app, client.id)
        return client._replace(user=user)

    async def of_user(self, app: str, user: str) -> list[Client]:
        """The clients of a user."""
        check_name(user, "user")
        found: Mapping[str, list[str]] = await self._states.user.clients_of_users(app, [user])
        return await self.own(app, found.get(user, []))

    def close(self, client: str, why: Why, digest: bytes = b"") -> None:
        """End a client's connection wherever it is: it may be logging in, on no route yet."""
        for server in self._comets.living():
            self._comets.tell(server, Close(client, why, digest=digest))
