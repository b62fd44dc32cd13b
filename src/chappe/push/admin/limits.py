"""Limits of devices: how many notes each may have in an hour, whoever sends them."""

from __future__ import annotations

from typing import NamedTuple

from chappe.clock import Clock
from chappe.errors import Throttled
from chappe.push.admin.repeats import Repeats
from chappe.push.app import PushApp
from chappe.push.state.meta import MetaState

_HOUR_MS = 3600 * 1000


class Allowed(NamedTuple):
    """Clients that may have another note, and those that may not."""

    clients: list[str]
    limited: list[str]


class DeviceLimits:
    """Charges devices with notes; all processes of a deployment together."""

    def __init__(self, meta: MetaState, repeats: Repeats, clock: Clock) -> None:
        self._meta = meta
        self._repeats = repeats
        self._clock = clock

    async def allow(self, app: PushApp, clients: list[str], send: str | None) -> Allowed:
        """Who may have another note in this hour; raises Throttled if nobody may.

        A send that has a name is charged once, and is for the same clients when it is repeated.
        """
        most = app.limits.device_notes_per_h
        if not most:
            return Allowed(clients, [])
        limited = None if send is None else await self._repeats.limited(send)
        if limited is None:
            limited = await self._spend(most, clients)
            if send is not None:
                limited = await self._repeats.charge(send, limited, self._clock.wall_ms())
        refused = set(limited)
        return Allowed([client for client in clients if client not in refused], limited)

    async def _spend(self, most: int, clients: list[str]) -> list[str]:
        """Which clients had as many as they may."""
        now_ms = self._clock.wall_ms()
        hour = now_ms // _HOUR_MS
        names = [f"{client}:{hour}" for client in clients]
        within = await self._meta.spend(names, most, (hour + 1) * _HOUR_MS)
        limited = [client for client, may in zip(clients, within, strict=True) if not may]
        if len(limited) == len(clients):
            left_s = ((hour + 1) * _HOUR_MS - now_ms) // 1000 + 1
            raise Throttled(f"device: more than {most} notes in an hour", left_s)
        return limited
