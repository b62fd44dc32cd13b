"""Subscriptions of clients: given and taken back by browsers, and found for who hands over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from chappe.errors import StorageError, Unreachable
from chappe.push.names import is_id
from chappe.push.note import Note
from chappe.push.seal import Seal
from chappe.push.state.states import States
from chappe.push.web.tokens import Tokens
from chappe.push.webpush.options import WebPushOptions
from chappe.push.webpush.subscription import Subscription, pack, read_subscription, unpack

log = structlog.get_logger()

# Of bridges.
KIND = "webpush"


class Found(NamedTuple):
    """A subscription, and what the store has of it."""

    subscription: Subscription
    stored: bytes


class Subscriptions:
    """Keeps one for each client: the last one it gave. Sealed, they tell a store nothing."""

    def __init__(self, states: States, seal: Seal) -> None:
        self._states = states
        self._seal = seal

    async def find(self, clients: Sequence[str]) -> dict[str, Found]:
        """Those of these clients that have one; raises StorageError."""
        stored = await self._states.user.bridges(clients, KIND)
        opened = ((client, self._open(client, value)) for client, value in stored.items())
        return {client: found for client, found in opened if found is not None}

    async def put(self, client: str, subscription: Subscription) -> bool:
        """Write a client's, in place of what it had; False if there is no such client."""
        sealed = self._seal.close(pack(subscription), _label(client))
        return await self._states.user.put_bridge(client, KIND, sealed)

    async def remove(self, client: str) -> bool:
        """Forget a client's; whether it had one."""
        return await self._states.user.remove_bridge(client, KIND)

    def _open(self, client: str, stored: bytes) -> Found | None:
        try:
            return Found(unpack(self._seal.open(stored, _label(client))), stored)
        except StorageError as error:
            # One that was sealed under another key; others are not to suffer from it.
            log.warning("a subscription cannot be read", client=client, error=str(error))
            return None


class SubscriptionDesk:
    """What browsers ask, which show their tokens."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        states: States,
        tokens: Tokens,
        public_text: str,
        options: WebPushOptions,
    ) -> None:
        # The key that browsers subscribe with.
        self.public_text = public_text
        self._subscriptions = subscriptions
        self._states = states
        self._tokens = tokens
        self._options = options

    async def subscribe(
        self, client: str, token: str, endpoint: str, p256dh: str, auth: str
    ) -> None:
        """Hand a client's notes to its push service from now on; raises BadRequest, Unproven."""
        subscription = read_subscription(endpoint, p256dh, auth, self._options)
        await self._tokens.holder(client, token)
        if not await self._subscriptions.put(client, subscription):
            raise Unreachable("client: it was removed")

    async def unsubscribe(self, client: str, token: str) -> bool:
        """Do so no more; whether it was done. Raises Unproven."""
        await self._tokens.holder(client, token)
        return await self._subscriptions.remove(client)

    async def fetch(self, client: str, token: str, id: str) -> Note:
        """A note that was too large to be handed over, while it waits for the client; raises
        Unproven, or Unreachable."""
        await self._tokens.holder(client, token)
        if is_id(id, "p") and await self._states.message.holders(id, [client]):
            note = (await self._states.message.bodies([id])).get(id)
            if note is not None:
                return note
        raise Unreachable("note: it does not wait for the client")


def _label(client: str) -> str:
    return f"the subscription of {client}"
