"""The device's options: every bound with its default's reason."""

from __future__ import annotations

import math

import msgspec

from chappe.errors import ConfigError


class DeviceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a device treats its connection, and its user."""

    # Name look-up, TCP, TLS, and the key: a bad mobile link needs some seconds.
    connect_timeout_s: float = 30.0
    # What a comet expects: it takes a device for gone that is silent for two of them and a half.
    heartbeat_s: float = 120.0
    # How long any answer may take before the connection is taken for dead.
    answer_timeout_s: float = 30.0
    # For subscribing and clicking: several attempts, over several connections if need be.
    request_timeout_s: float = 60.0
    # Full jitter: a delay is drawn between 0 and a ceiling that doubles from first to max, so that
    # the devices of a restarted comet do not come back all at once.
    backoff_first_s: float = 1.0
    backoff_max_s: float = 120.0
    # A connection that held so long was a good one: the next loss begins with a short delay.
    steady_s: float = 10.0
    # A token is renewed so long before it expires: there is time to find the web.
    renew_ahead_s: float = 86_400.0
    # Beyond that a device stops reading until its user has taken some.
    inbox_bytes_max: int = 1024 * 1024
    # Ids of what was shown, to show nothing twice: more than may wait for a client (1,000), and
    # than may come of topics in between.
    shown_max: int = 5_000
    # How long acknowledgements may take to leave when a device is closed.
    close_timeout_s: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            # So written, NaN is refused as well.
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"device.{name}: must be above 0, and finite")
