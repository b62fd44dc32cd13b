"""An application that pushes: a tenant, with a key that names it and a secret to sign with."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What an app may use; 0: no limit."""

    sends_per_s: float = 1000.0
    devices_max: int = 0
    # Notes to one device in an hour, live and stored together.
    device_notes_per_h: int = 0


class PushApp(msgspec.Struct, frozen=True, kw_only=True):
    """An app as it is stored: its secret is sealed."""

    key: str
    # Its users are those of the hub's app with this name.
    name: str
    # Whether devices may take tokens from `web` themselves (P10).
    open: bool
    sealed_secret: bytes
    created_ms: int
    enabled: bool = True
    limits: Limits = Limits()
