"""Small forms of what there are a hundred million of.

An id (P5) without its first letter is 63 bits, so the top bit is free for who stores it:

    +---+------------------+--------------------+-------------------+
    | 0 | server, 11 bits  | sequence, 20 bits  | seconds, 32 bits  |
    +---+------------------+--------------------+-------------------+

A name within an app is known by a digest of both: 12 bytes of it in a bucket that 4 more bytes
choose, so that nobody finds two names that are taken for one.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

from chappe.errors import StorageError

ID_BYTES = 8
TIME_BYTES = 6
_ID = re.compile(r"[cpmj]([0-9a-z]{2})([0-9a-f]{5})([0-9a-f]{8})", re.ASCII)
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def maybe_pack(prefix: str, id: str) -> bytes | None:
    """An id in 8 bytes; None if it is no id of that prefix."""
    found = _ID.fullmatch(id)
    if found is None or id[0] != prefix:
        return None
    server, sequence, seconds = int(found[1], 36), int(found[2], 16), int(found[3], 16)
    return (server << 52 | sequence << 32 | seconds).to_bytes(ID_BYTES, "big")


def pack(prefix: str, id: str) -> bytes:
    """An id in 8 bytes; raises StorageError if it is none."""
    packed = maybe_pack(prefix, id)
    if packed is None:
        raise StorageError(f"{id[:40]!r} is no id that begins with {prefix}")
    return packed


def unpack(prefix: str, packed: bytes) -> str:
    """The id that was packed, whatever its top bit is used for."""
    value = int.from_bytes(packed, "big") & (1 << 63) - 1
    server, sequence, seconds = value >> 52, value >> 32 & 0xFFFFF, value & 0xFFFFFFFF
    return f"{prefix}{_BASE36[server // 36]}{_BASE36[server % 36]}{sequence:05x}{seconds:08x}"


def split(packed: bytes) -> list[bytes]:
    """Ids that lie one behind the other."""
    return [packed[at : at + ID_BYTES] for at in range(0, len(packed), ID_BYTES)]


def encoded(text: str) -> bytes:
    """Text in bytes; raises StorageError for what is none."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise StorageError("a name has a character that cannot be written") from None


class Spot(NamedTuple):
    """Where something is: its bucket, and its field there."""

    bucket: int
    field: bytes


class Buckets:
    """So many small hashes instead of a key for everything.

    Redis keeps a hash of up to 128 fields of up to 64 bytes each as one string of bytes
    (`hash-max-listpack-entries` and `-value`): an entry costs two bytes more than what is in it,
    where a key would cost seventy. Their number cannot change while there is anything in them.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def of_id(self, packed: bytes) -> int:
        """The bucket of an id."""
        return crc32(packed) % self.count

    def of_digest(self, digest: bytes) -> int:
        """The bucket of a token."""
        return int.from_bytes(digest[:4], "big") % self.count

    def of_name(self, app: str, name: str) -> Spot:
        """Where a name of an app is."""
        told = encoded(app)
        digest = blake2b(b"%d:%b%b" % (len(told), told, encoded(name)), digest_size=16).digest()
        return Spot(int.from_bytes(digest[12:], "big") % self.count, digest[:12])


def short_digest(text: str, size: int) -> bytes:
    """A few bytes that stand for a text, among few."""
    return blake2b(encoded(text), digest_size=size).digest()
