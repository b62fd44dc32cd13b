"""The bounds of services: each with its default's reason."""

from __future__ import annotations

import msgspec

from chappe.errors import ConfigError


class ServiceLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all services of a node may use."""

    services_max: int = 100_000
    # Requests that one provider has in hand: more would wait inside it, where nobody else can help.
    in_flight_max: int = 100
    # Requests of one service for which no provider is free.
    waiting_max: int = 10_000
    # The payloads of one service that are kept: those that wait, and those that may be repeated.
    bytes_max: int = 64 * 1024 * 1024
    # Requests that one session has open.
    requests_max: int = 1_000
    services_per_provider_max: int = 1_000
    # H18: never later than this.
    timeout_s: float = 30.0
    # Providers that an idempotent request may go to: one that kills them must not kill them all.
    attempts_max: int = 16
    stall_s: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"services.{name}: must be above 0")
