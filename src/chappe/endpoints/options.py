"""The options of hooks, apart from them: a node without a hook needs no HTTP client."""

from __future__ import annotations

import math
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from chappe.errors import ConfigError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class HookOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an app's own server is told what happened, and how hard that is tried."""

    url: str
    secret_file: str
    events: tuple[Literal["gone", "came"], ...] = ("gone", "came")
    # Beside the machine's own, for servers whose certificate a company signs itself.
    ca_file: str | None = None
    # Who is online is nobody else's business: beyond loopback it travels by TLS.
    allow_plaintext: bool = False
    # For a whole attempt. A server that needs longer should answer first and work later.
    timeout_s: float = 5.0
    attempts_max: int = 10
    # Doubled from one attempt to the next, up to the other, each with up to half of it left out.
    retry_first_s: float = 1.0
    retry_last_s: float = 60.0
    # What is older than this is not tried again: by then the app has asked somebody else.
    give_up_s: float = 900.0
    # The users of a node that dies, all at once.
    waiting_max: int = 100_000
    concurrency_max: int = 8

    def __post_init__(self) -> None:
        try:
            url = urlsplit(self.url)
        except ValueError as error:
            raise ConfigError(f"hooks.url: {error}") from None
        if url.scheme not in ("https", "http") or not url.hostname:
            raise ConfigError("hooks.url: an address that starts with https:// is meant here")
        if url.username or url.password:
            raise ConfigError("hooks.url: no password in an address; requests are signed")
        if url.scheme == "http" and url.hostname not in _LOOPBACK and not self.allow_plaintext:
            raise ConfigError("hooks.url: http only to this machine, or with allow_plaintext")
        if not self.events:
            raise ConfigError("hooks.events: an empty list; leave the hook out instead")
        for name in (
            "timeout_s",
            "attempts_max",
            "retry_first_s",
            "retry_last_s",
            "give_up_s",
            "waiting_max",
            "concurrency_max",
        ):
            # So written, it refuses NaN as well.
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"hooks.{name}: must be above 0, and finite")
