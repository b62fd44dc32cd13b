"""How a device's life ends.

DeviceEnded
  Closed      by its own user
  Replaced    by another connection of the same client (error 2): it does not come back by itself
"""

from __future__ import annotations

from chappe.errors import ChappeError


class DeviceEnded(ChappeError):
    """The device is over: it gets nothing more, and can be asked nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Closed(DeviceEnded):
    """It was closed."""


class Replaced(DeviceEnded):
    """The same client connected elsewhere, and gets the notes now (P15)."""
