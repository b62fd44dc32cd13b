"""What waits for a client, in bytes: note by note, see message.py."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.push.state.collapse import COLLAPSE_BYTES
from chappe.push.state.record import Wait
from chappe.push.state.redis.packing import ID_BYTES, pack, unpack

_SECONDS_BYTES = 4
_COLLAPSES = 0x80


def pack_waits(notes: Iterable[Wait]) -> bytes:
    """In bytes; raises StorageError for an id that is none."""
    return b"".join(map(pack_wait, notes))


def pack_wait(note: Wait) -> bytes:
    """One of them."""
    packed = pack("p", note.note)
    if note.collapse:
        packed = bytes([packed[0] | _COLLAPSES]) + packed[1:]
    return packed + note.expires_s.to_bytes(_SECONDS_BYTES, "big") + note.collapse


def unpack_waits(raw: bytes) -> tuple[Wait, ...]:
    """From bytes."""
    notes, at = [], 0
    while at < len(raw):
        seconds = at + ID_BYTES
        same = seconds + _SECONDS_BYTES
        stop = same + (COLLAPSE_BYTES if raw[at] & _COLLAPSES else 0)
        expires_s = int.from_bytes(raw[seconds:same], "big")
        notes.append(Wait(unpack("p", raw[at:seconds]), expires_s, raw[same:stop]))
        at = stop
    return tuple(notes)
