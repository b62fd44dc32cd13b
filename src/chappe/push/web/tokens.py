"""Tokens for devices, and the comets they go to (P1, P10, P11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from chappe.clock import Clock
from chappe.errors import Forbidden, Overload, Throttled, Unreachable
from chappe.ids import PrefixedIds
from chappe.push.admin.clients import Clients, Which
from chappe.push.admin.options import DeskOptions
from chappe.push.admin.rates import Rates
from chappe.push.app import PushApp
from chappe.push.comets import Comets
from chappe.push.identity import Identity
from chappe.push.names import check_device
from chappe.push.state.user import TokenHolder, UserState
from chappe.push.token import TOKEN_CHARS_MAX, make_token, token_digest
from chappe.push.unproven import Unproven
from chappe.push.web.ring import choose_comet
from chappe.wire.pushlink import Why

# An app that is full is so until somebody removes a device.
_FULL_RETRY_S = 60


class Ticket(NamedTuple):
    """What a device needs to connect. It pins the identity (P4)."""

    client: str
    token: str
    comet: str
    identity: str
    expires_ms: int


class Tokens:
    """Gives tokens, and takes them back."""

    def __init__(
        self,
        user: UserState,
        clients: Clients,
        comets: Comets,
        identity: Identity,
        *,
        ids: PrefixedIds,
        clock: Clock,
        entropy: Callable[[int], bytes],
        rates: Rates,
        options: DeskOptions,
    ) -> None:
        self._user = user
        self._clients = clients
        self._comets = comets
        self._identity = identity
        self._ids = ids
        self._clock = clock
        self._entropy = entropy
        self._rates = rates
        self._options = options

    async def give_open(self, app: PushApp, device: str) -> Ticket:
        """For a device that asks by itself; raises Forbidden unless the app is open, Throttled."""
        if not app.open:
            raise Forbidden("app: its devices get tokens from the app's own server")
        self._rates.take(f"tokens {app.key}", self._options.tokens_per_s)
        return await self.give(app, device)

    async def give(self, app: PushApp, device: str) -> Ticket:
        """For a device that the app's server vouches for; raises Throttled when the app has as
        many as it may have, Overload when there is no comet."""
        check_device(device)
        comets = self._comets.living().values()
        # Whether there is one at all, before anything is written.
        choose_comet(device, comets)
        client = await self._claim(app, device)
        token = make_token(self._entropy(32))
        expires_ms = self._clock.wall_ms() + self._options.token_life_s * 1000
        await self._user.put_token(token_digest(token), TokenHolder(client, expires_ms))
        comet = choose_comet(client, comets).address
        return Ticket(client, token, comet, self._identity.public_text, expires_ms)

    async def holder(self, client: str, token: str) -> str:
        """The app of a client that shows its token; raises Unproven."""
        if len(token) <= TOKEN_CHARS_MAX:
            digests = [token_digest(token)]
            (holder,) = await self._user.tokens(digests, self._clock.wall_ms())
            if holder is not None and holder.client == client:
                found = await self._user.clients([client])
                if client in found:
                    return found[client].app
        raise Unproven("token: not this client's, or expired")

    async def revoke(self, app: PushApp, token: str) -> str:
        """Refuse a token from now on, and end the connection that came with it; whose it was.
        Raises Unreachable."""
        digest = token_digest(token)
        (holder,) = await self._user.tokens([digest], self._clock.wall_ms())
        # Another app's token is none of this one's.
        if holder is None or not await self._clients.own(app.key, [holder.client]):
            raise Unreachable("token: the app has no such")
        await self._user.revoke(digest)
        self._clients.close(holder.client, Why.REVOKED, digest)
        return holder.client

    async def revoke_all(self, app: PushApp, which: Which) -> tuple[str, int]:
        """The same for all tokens of a client; which, and how many there were."""
        client = await self._clients.find(app.key, which)
        count = await self._user.revoke_client(client.id)
        self._clients.close(client.id, Why.REVOKED)
        return client.id, count

    async def _claim(self, app: PushApp, device: str) -> str:
        most = app.limits.devices_max
        try:
            client = await self._user.claim_client(app.key, device, self._ids.next("c"), most)
        except Overload:
            raise Throttled(
                f"app: it has {most} devices, and may have no more", _FULL_RETRY_S
            ) from None
        return client.id
