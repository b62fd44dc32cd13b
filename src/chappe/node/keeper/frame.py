"""What goes over the keeper's socket: a length, then one packed array.

    +----------------+---------------------------------------------+
    | length, 4 big  | msgpack array of so many bytes              |
    +----------------+---------------------------------------------+

    request  [id, method, arguments]        id from 1
    reply    [id, result]
    refusal  [id, kind, text, detail]       raised again where it was asked
    ring     [0, path]                      something at this path of the ledger has changed

Both ends are forked from one program, so there is no version in it.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import msgspec

from chappe.errors import ChappeError, ClusterError, Conflict, Held, StorageError
from chappe.registry.ledger import SessionOver

# Above any batch of changes that a node makes at once, and below what would hurt.
FRAME_BYTES_MAX = 64 * 1024 * 1024

_LENGTH_BYTES = 4
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Any])
_KINDS: dict[str, type[ChappeError]] = {
    "session_over": SessionOver,
    "cluster": ClusterError,
    "storage": StorageError,
}


def pack(*parts: Any) -> bytes:
    """Make a frame; raises OSError when it would be too large."""
    body = _encoder.encode(parts)
    if len(body) > FRAME_BYTES_MAX:
        most = f"{len(body)} bytes at once, where {FRAME_BYTES_MAX} are the most"
        raise OSError(errno.EMSGSIZE, most)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


async def read(reader: asyncio.StreamReader) -> list[Any]:
    """Read a frame; raises EOFError at the end, ConnectionError for what is no frame."""
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    if length > FRAME_BYTES_MAX:
        raise ConnectionAbortedError(f"a frame of {length} bytes")
    try:
        return _decoder.decode(await reader.readexactly(length))
    except msgspec.DecodeError as error:
        raise ConnectionAbortedError(f"no frame: {error}") from None


def pack_refusal(request: int, error: ChappeError) -> bytes:
    """Make the frame that lets an error be raised at the other end."""
    if isinstance(error, Conflict):
        return pack(request, "conflict", _path(error), error.found)
    if isinstance(error, Held):
        return pack(request, "held", _path(error), error.holder)
    # The first that fits: what is more special stands before what it is a kind of.
    kind = next((kind for kind, type_ in _KINDS.items() if isinstance(error, type_)), "storage")
    return pack(request, kind, str(error), None)


def refusal(kind: str, text: str, detail: Any) -> ChappeError:
    """Make the error that a refusal's frame stands for."""
    if kind == "conflict":
        return Conflict(text, None if detail is None else (detail[0], detail[1]))
    if kind == "held":
        return Held(text, detail)
    return _KINDS[kind](text)


def _path(error: ClusterError) -> str:
    """The path that an error's message begins with; a path may hold colons, the rest does not."""
    return str(error).rsplit(":", 1)[0]
