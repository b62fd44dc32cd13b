"""The gate of app servers: requests that are signed, once, in time (P10)."""

from __future__ import annotations

from collections.abc import Mapping

from chappe.clock import Clock
from chappe.errors import Forbidden, Unreachable
from chappe.push.admin.apps import Apps
from chappe.push.app import PushApp
from chappe.push.signing import (
    APP,
    NONCE,
    REMEMBERED_MS,
    BadSignature,
    Signature,
    check_mac,
    check_time,
    read_signature,
)
from chappe.push.state.meta import MetaState


class SignedGate:
    """Lets in who signs with an app's secret."""

    __slots__ = ("_apps", "_clock", "_meta")

    def __init__(self, apps: Apps, meta: MetaState, clock: Clock) -> None:
        self._apps = apps
        self._meta = meta
        self._clock = clock

    async def announced(self, headers: Mapping[str, str]) -> tuple[Signature, PushApp]:
        """Which app says that it asks, before what it asks is read; raises BadSignature."""
        signature = read_signature(headers)
        check_time(signature, self._clock.wall_ms())
        try:
            return signature, await self._apps.find(signature.app)
        except Unreachable:
            raise BadSignature(f"{APP}: no app has this key") from None

    async def admit(
        self, signature: Signature, app: PushApp, method: str, target: str, body: bytes
    ) -> None:
        """Let a request in; raises BadSignature, or Forbidden if the app is switched off."""
        check_mac(signature, self._apps.secret_of(app), method, target, body)
        # Only now: a stranger who cannot sign is not to fill the store with nonces.
        until_ms = signature.time_ms + REMEMBERED_MS
        if not await self._meta.claim(f"{app.key}:{signature.nonce}", until_ms):
            raise BadSignature(f"{NONCE}: replay; this request was made before")
        if not app.enabled:
            raise Forbidden("app: it is switched off")
