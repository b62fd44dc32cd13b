"""What is known of a client, in few bytes.

    +-----------+---+-------------------+--------------+------------------+
    | app, 6:   | n | n buckets of 3    | device:      | user: the same,  |
    | a digest  |   | that its tokens   | length, text | or nothing       |
    |           |   | are in            |              |                  |
    +-----------+---+-------------------+--------------+------------------+

A length is a byte; 254 stands before four that tell it, 255 for a UUID in its usual form, which
takes 16 bytes: most devices have one.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID

from chappe.push.state.redis.packing import encoded

APP_BYTES = 6
BUCKET_BYTES = 3
TOKEN_BUCKETS_MAX = 255
_LONG, _UUID = 254, 255
_uuid = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


class ClientRecord(NamedTuple):
    """A client as it is stored."""

    app: bytes
    device: str
    user: str | None = None
    # The buckets that its tokens are in, so that all can be found: far smaller than the tokens.
    tokens: tuple[int, ...] = ()

    def pack(self) -> bytes:
        """In bytes."""
        buckets = b"".join(bucket.to_bytes(BUCKET_BYTES, "big") for bucket in self.tokens)
        user = b"" if self.user is None else _packed(self.user)
        return self.app + bytes([len(self.tokens)]) + buckets + _packed(self.device) + user


def unpack_client(raw: bytes) -> ClientRecord:
    """From bytes."""
    count, at = raw[APP_BYTES], APP_BYTES + 1
    end = at + count * BUCKET_BYTES
    buckets = (raw[i : i + BUCKET_BYTES] for i in range(at, end, BUCKET_BYTES))
    device, rest = _taken(raw[end:])
    user = _taken(rest)[0] if rest else None
    return ClientRecord(
        raw[:APP_BYTES], device, user, tuple(int.from_bytes(one, "big") for one in buckets)
    )


def _packed(text: str) -> bytes:
    if _uuid.fullmatch(text):
        return bytes([_UUID]) + UUID(text).bytes
    raw = encoded(text)
    if len(raw) < _LONG:
        return bytes([len(raw)]) + raw
    return bytes([_LONG]) + len(raw).to_bytes(4, "big") + raw


def _taken(raw: bytes) -> tuple[str, bytes]:
    """The first text, and what is after it."""
    if raw[0] == _UUID:
        return str(UUID(bytes=raw[1:17])), raw[17:]
    at, end = (5, 5 + int.from_bytes(raw[1:5], "big")) if raw[0] == _LONG else (1, 1 + raw[0])
    return raw[at:end].decode(), raw[end:]
