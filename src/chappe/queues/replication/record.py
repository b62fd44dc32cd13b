"""A broker's record in the registry: who is its master, and who may become it.

It is one value that is changed by compare-and-set, so all of it is agreed on at once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from chappe.errors import ClusterError

Mode = Literal["async", "acknowledged"]


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster agrees on about one broker."""

    owner: str
    # Larger with each new master, and each new beginning of the same one.
    epoch: int
    # Who has all that was ever acknowledged, the master among them.
    insync: tuple[str, ...]
    # The other nodes that are to have a copy, whether they have it already or not.
    replicas: tuple[str, ...] = ()
    mode: Mode = "async"

    def others(self, name: str) -> list[str]:
        """All nodes that may have a copy, but that one."""
        return [node for node in dict.fromkeys((*self.insync, *self.replicas)) if node != name]


def record_path(broker: str) -> str:
    """Where a broker's record is."""
    return f"/queues/{broker}"


def lease_path(broker: str) -> str:
    """What a broker's master holds."""
    return f"/queues/{broker}/master"


_decoder = msgspec.json.Decoder(BrokerRecord)
# As JSON, so that whoever looks into the registry can read it.
encode_broker = msgspec.json.Encoder().encode


def decode_broker(value: bytes, where: str) -> BrokerRecord:
    """Read a record; raises ClusterError that says where it is."""
    try:
        return _decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise ClusterError(f"{where}: not a broker's record: {error}") from None
