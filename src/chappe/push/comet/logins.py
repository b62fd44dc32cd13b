"""Logins: who devices say they are, looked up many at once (P3, P4)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import NamedTuple

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.push.app import PushApp
from chappe.push.comet.batch import Batch
from chappe.push.comet.counters import Counters
from chappe.push.comet.session import DeviceSession, State
from chappe.push.identity import Identity
from chappe.push.options import CometOptions
from chappe.push.state.states import States
from chappe.push.state.user import Client, TokenHolder
from chappe.push.token import token_digest
from chappe.wire.push import Auth, AuthSuccess, PushError, encode_response
from chappe.wire.pushcipher import CometAgreement

# Of an X25519 key.
_PRIVATE_BYTES = 32
# Keys made in one turn of the loop: 2 ms.
_KEYS_AT_ONCE = 16


class Refusal(NamedTuple):
    """Why a device may not log in."""

    code: PushError
    reason: str


class _Login(NamedTuple):
    session: DeviceSession
    client: str
    digest: bytes


Refuse = Callable[[DeviceSession, PushError, str], None]
Answer = Callable[[DeviceSession, bytes], None]


class Logins:
    """Devices that have said who they are and wait for an answer."""

    def __init__(
        self,
        options: CometOptions,
        states: States,
        identity: Identity,
        entropy: Callable[[int], bytes],
        clock: Clock,
        counters: Counters,
        answer: Answer,
        refuse: Refuse,
    ) -> None:
        self._states = states
        self._identity = identity
        self._entropy = entropy
        self._clock = clock
        self._counters = counters
        self._answer = answer
        self._refuse = refuse
        self._batch: Batch[_Login] = Batch(
            "logins", self._work, at_once=options.login_batch, most=options.logins_max
        )

    def __len__(self) -> int:
        return len(self._batch)

    def begin(self, session: DeviceSession, auth: Auth) -> None:
        """Look a device up."""
        login = _Login(session, auth.client_id, token_digest(auth.token))
        if self._batch.put(login):
            session.state = State.CHECKING
        else:
            self._refuse(session, PushError.SERVER, "too many devices log in; try again later")

    async def idle(self) -> None:
        """Wait until nobody waits."""
        await self._batch.idle()

    def cancel(self) -> None:
        """Look nobody up any more."""
        self._batch.cancel()

    async def _work(self, logins: list[_Login]) -> None:
        logins = [login for login in logins if not login.session.closed]
        try:
            holders = await self._states.user.tokens(
                [login.digest for login in logins], self._clock.wall_ms()
            )
            clients = await self._states.user.clients([login.client for login in logins])
            apps = await self._states.meta.apps(sorted({each.app for each in clients.values()}))
        except StorageError:
            self._counters.store_failures["logins"] += 1
            for login in logins:
                self._refuse(login.session, PushError.SERVER, "the store is away; try again later")
            return
        for at, (login, holder) in enumerate(zip(logins, holders, strict=True)):
            if login.session.closed:
                continue
            client = clients.get(login.client)
            refusal = _judge(login.client, holder, client, apps)
            if refusal is not None:
                self._refuse(login.session, *refusal)
            elif client is not None and holder is not None:
                self._offer(login, client, holder)
                if at % _KEYS_AT_ONCE == _KEYS_AT_ONCE - 1:
                    await asyncio.sleep(0)

    def _offer(self, login: _Login, client: Client, holder: TokenHolder) -> None:
        """Say the comet's part of a key."""
        session = login.session
        # One object for the app of all its devices.
        session.app = sys.intern(client.app)
        session.client = client.id
        session.digest = login.digest
        session.expires_ms = holder.expires_ms
        key = CometAgreement(client.id, self._entropy(_PRIVATE_BYTES), self._identity.key)
        session.key = key
        session.state = State.OFFERED
        self._answer(session, encode_response(AuthSuccess(key.encrypt_key)))


def _judge(
    claimed: str, holder: TokenHolder | None, client: Client | None, apps: dict[str, PushApp]
) -> Refusal | None:
    if client is None:
        return Refusal(PushError.CLIENT_NOT_FOUND, "client_id: no such client")
    if holder is None:
        return Refusal(PushError.TOKEN_EXPIRED, "token: expired, revoked or never given")
    if holder.client != claimed:
        return Refusal(PushError.CLIENT_NOT_FOUND, "token: of another client")
    app = apps.get(client.app)
    if app is None or not app.enabled:
        return Refusal(PushError.CLIENT_NOT_FOUND, "client_id: its app is not served")
    return None
