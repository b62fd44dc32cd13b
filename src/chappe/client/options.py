"""The client's options: every bound with its default's reason."""

from __future__ import annotations

from typing import Literal

import msgspec

from chappe.errors import ConfigError


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a client treats its connection; `form` is how ops travel in WebSocket frames."""

    form: Literal["packed", "text"] = "packed"
    # Name look-up, TCP, TLS, upgrade and hello together; a bad mobile link needs a few seconds.
    connect_timeout_s: float = 10.0
    # As long as the hub itself waits for other nodes (5 s), and then some.
    request_timeout_s: float = 10.0
    # Full jitter: a delay is drawn between 0 and a ceiling that doubles from first to max, so that
    # the clients of a restarted hub do not come back all at once.
    backoff_first_s: float = 0.5
    backoff_max_s: float = 30.0
    # Until the hub names its own interval in the reply to hello (H4).
    heartbeat_s: float = 5.0
    heartbeats_missed_max: int = 3
    # A request that waits costs about 1 kB: a hundred megabytes at most.
    requests_max: int = 100_000
    # What may wait for a connection, or for one that takes more.
    outgoing_bytes_max: int = 8 * 1024 * 1024
    # The largest op this side sends: the hub's own default.
    message_bytes_max: int = 1024 * 1024
    # The largest frame it takes. A message grows on its way: by its envelope, and by a third when
    # its bytes travel as base64.
    received_bytes_max: int = 2 * 1024 * 1024
    # Above the first mark a client stops reading unless it awaits an answer, which may lie behind
    # messages; above the second it stops reading whatever it awaits.
    inbox_bytes_pause: int = 1024 * 1024
    inbox_bytes_max: int = 16 * 1024 * 1024
    # Requests to one service that wait for a handler: more than a hub hands to a provider.
    calls_waiting_max: int = 1_000
    # How long requests may finish, and a peer answer a goodbye, before a connection is cut.
    close_timeout_s: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name != "form" and getattr(self, name) <= 0:
                raise ConfigError(f"client.{name}: must be above 0")
        if self.form not in ("packed", "text"):
            raise ConfigError("client.form: must be packed or text")
        if self.inbox_bytes_max < self.inbox_bytes_pause:
            raise ConfigError("client.inbox_bytes_max: must not be below inbox_bytes_pause")
