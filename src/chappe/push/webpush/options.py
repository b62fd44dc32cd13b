"""What Web Push may use: every bound with its default's reason."""

from __future__ import annotations

import msgspec

from chappe.errors import ConfigError


class WebPushOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How notes go to the push services of browsers."""

    enabled: bool = False
    # `mailto:` or `https:`: whom a push service may tell when something is wrong. Some refuse those
    # who do not say.
    contact: str = ""
    # Push services that are on this machine, or in private networks, or not encrypted: for tests.
    allow_private: bool = False
    # Endpoints have to be on these hosts, or below them; without any, on whichever is public.
    hosts: tuple[str, ...] = ()
    # Notes to clients that wait to be handed over, and bytes of their contents. What is beyond is
    # not lost: it waits for the device.
    queue_max: int = 100_000
    queue_bytes_max: int = 64 * 1024 * 1024
    # Attempts under way, in all and at one host: one that answers slowly leaves room for others.
    concurrency_max: int = 64
    host_concurrency_max: int = 48
    # Notes to clients that are tried again later.
    retries_max: int = 10_000
    # For the whole of an attempt.
    timeout_s: float = 10.0
    # Over some four minutes; a push service that asks for more time gets it.
    attempts_max: int = 8
    retry_first_s: float = 2.0
    retry_most_s: float = 3600.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and value <= 0:
                raise ConfigError(f"push.webpush.{name}: must be above 0")
        if self.contact and not self.contact.startswith(("mailto:", "https://")):
            raise ConfigError("push.webpush.contact: begins with mailto: or https://")
