"""The HTTP edge's options: every bound with its default's reason."""

from __future__ import annotations

import msgspec

from chappe.errors import ConfigError


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the HTTP edge treats its connections."""

    # A stranger that sends its headers byte by byte holds a descriptor for this long, no longer.
    header_timeout_s: float = 10.0
    # The largest body at 70 kB a second, a poor mobile link.
    body_timeout_s: float = 30.0
    keep_alive_s: int = 15
    # Far more than any browser sends, and a token of 8 kB still fits.
    header_bytes_max: int = 32 * 1024
    connections_max: int = 100_000
    # Below the half minute at which proxies commonly cut a silent request, and below the lease.
    poll_wait_ms_max: int = 30_000
    # For the answer to an op, beyond what the op itself may wait: twice what a node gives another.
    answer_timeout_s: float = 10.0
    stop_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise ConfigError(f"http.{name}: must be above 0")
