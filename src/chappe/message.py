"""The message: what one endpoint says to another."""

from __future__ import annotations

from typing import Any

import msgspec

from chappe.errors import RemoteProtocolError

# The packed code of a delivered message.
DELIVERY = 33


class Message(msgspec.Struct, gc=False, frozen=True, array_like=True, tag=DELIVERY):
    """A message on its way through a hub.

    The payload is the sender's bytes, never decoded by the hub: JSON text, or, with `binary`, any
    bytes. A Struct, and one whose fields lie as they travel packed, because making and encoding it
    is on the path of every message: a whole run of them is encoded by one call.
    """

    id: int
    sender: str
    to: str
    ts_ms: int
    payload: bytes
    binary: bool = False
    # Its place in the history of its topic; 0 where none is kept.
    offset: int = 0

    @property
    def data(self) -> Any:
        """The payload as its receiver wants it: bytes when binary, else the JSON value.

        Raises RemoteProtocolError for JSON that no Python value stands for, such as 1e999,
        or that is nested more deeply than this program can follow.
        """
        if self.binary:
            return self.payload
        try:
            return msgspec.json.decode(self.payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"data: {error}") from None
