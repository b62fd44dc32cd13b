"""What admin and web allow: every bound with its default's reason."""

from __future__ import annotations

import msgspec

from chappe.errors import ConfigError

_DAY_S = 24 * 3600


class DeskOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much one may ask for, and how long it lasts."""

    # P5.
    token_life_s: int = 7 * _DAY_S
    # Tokens that devices of one app may take from one process: a stranger who knows the app's key
    # may take as many, and each is a record for a week.
    tokens_per_s: float = 1000.0
    # A frame holds 65,535 bytes, with ids and the cipher's tag.
    content_bytes_max: int = 60_000
    # A list of ids of this length is a request of 200 kB.
    targets_max: int = 10_000
    # P6.
    ttl_s: int = _DAY_S
    # Below the 30 days after which its job is forgotten.
    ttl_s_max: int = 28 * _DAY_S
    waiting_max: int = 1000
    topic_notes_max: int = 10_000
    client_topics_max: int = 100
    # A send that is repeated within this time is the same one.
    repeat_s: int = _DAY_S
    # Clients in one op to a comet, and in one change of a store: others get their turn between.
    batch: int = 1000
    # The hub's apps whose administrators see all apps of push; others see their own.
    operators: tuple[str, ...] = ("default",)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, tuple) and value <= 0:
                raise ConfigError(f"push.desk.{name}: must be above 0")
