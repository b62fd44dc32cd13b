"""The message: what one endpoint says to another."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, gc=False, frozen=True):
    """A message on its way through a hub.

    The payload is the sender's bytes, never decoded by the hub: JSON text, or, with `binary`, any
    bytes. A Struct rather than a class because making one is on the path of every message.
    """

    id: int
    sender: str
    to: str
    ts_ms: int
    payload: bytes
    binary: bool = False
