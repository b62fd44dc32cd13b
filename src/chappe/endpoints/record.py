"""Records: what administrators have made, each with the version that decides which one stands.

Nodes tell each other their records in any order and as often as they like: of two with the same
address the larger version stands everywhere, and of two equal versions the larger content.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from chappe.errors import StorageError

Version = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
WallMs = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is known of one address in an app; packed, an array of these fields in this order."""

    app: str
    # `avatar:x`, `topic:news`, `queue:jobs`; `token:ID` for a token that was revoked.
    address: str
    version: Version
    # Packed by whoever made it; None for a tombstone: what was there has been removed.
    value: bytes | None = None
    # When nobody needs it any more, in milliseconds since 1970; 0: it stands for ever.
    until_ms: WallMs = 0

    @property
    def kind(self) -> str:
        """What kind of address it is about."""
        return self.address.partition(":")[0]

    def beats(self, other: Record) -> bool:
        """Whether this one stands and the other does not."""
        return self._rank() > other._rank()

    def expired(self, now_ms: int) -> bool:
        """Whether nobody needs it any more."""
        return 0 < self.until_ms <= now_ms

    def _rank(self) -> tuple[int, bool, bytes, int]:
        return self.version, self.value is not None, self.value or b"", self.until_ms


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def record_key(record: Record) -> str:
    """The key of a record in the store; an app's name holds no slash."""
    return f"{record.app}/{record.address}"


def encode_record(record: Record) -> bytes:
    """A record as the store keeps it."""
    return _encoder.encode(record)


def decode_record(key: str, raw: bytes) -> Record:
    """Read a record of the store; raises StorageError naming its key."""
    try:
        record = _decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise StorageError(f"directory: the record {key!r} cannot be read: {error}") from None
    if record_key(record) != key:
        raise StorageError(f"directory: the record {key!r} is another's")
    return record
