"""Topics: subscribed to by devices themselves, and here on their behalf."""

from __future__ import annotations

from collections.abc import Sequence

from chappe.clock import Clock
from chappe.errors import BadRequest
from chappe.push.admin.clients import Clients, Which
from chappe.push.admin.options import DeskOptions
from chappe.push.comets import Comets
from chappe.push.names import check_name
from chappe.push.state.states import States
from chappe.wire.pushlink import Subscribed

# The route of a client that is on no comet.
_NOWHERE = -1


class Topics:
    """An app's topics. One is there while somebody subscribes to it."""

    def __init__(
        self, states: States, clients: Clients, comets: Comets, clock: Clock, options: DeskOptions
    ) -> None:
        self._states = states
        self._clients = clients
        self._comets = comets
        self._clock = clock
        self._most = options.client_topics_max

    async def subscribe(self, app: str, which: Which, topics: Sequence[str]) -> str:
        """Subscribe a client; which one. Raises BadRequest if it would have too many."""
        client = (await self._clients.find(app, which)).id
        names = self._checked(topics)
        server = (await self._states.route.find([client])).get(client, _NOWHERE)
        now = self._clock.wall_ms()
        if not await self._states.topic.subscribe(app, client, names, server, now, self._most):
            raise BadRequest(f"topics: a client has {self._most} at the most")
        await self._tell(app, client)
        return client

    async def unsubscribe(self, app: str, which: Which, topics: Sequence[str]) -> str:
        """Unsubscribe a client; which one."""
        client = (await self._clients.find(app, which)).id
        await self._states.topic.unsubscribe(app, client, self._checked(topics))
        await self._tell(app, client)
        return client

    async def page(self, app: str, after: str, limit: int) -> list[tuple[str, int]]:
        """Topics by name, and how many subscribe to each."""
        return await self._states.topic.list_topics(app, after, limit)

    async def subscribers(
        self, app: str, topic: str, after: str, limit: int
    ) -> tuple[int, list[str]]:
        """How many subscribe to a topic, and some of them."""
        check_name(topic, "topic")
        count = await self._states.topic.count(app, topic)
        return count, await self._states.topic.list_clients(app, topic, after, limit)

    async def _tell(self, app: str, client: str) -> None:
        # Asked for after the change: who logged in meanwhile read its topics before or hears of it.
        server = (await self._states.route.find([client])).get(client)
        if server is not None:
            self._comets.tell(server, Subscribed(app, client))

    def _checked(self, topics: Sequence[str]) -> list[str]:
        if not 0 < len(topics) <= self._most:
            raise BadRequest(f"topics: 1 to {self._most} are named")
        return list(dict.fromkeys(check_name(topic, "topics") for topic in topics))
