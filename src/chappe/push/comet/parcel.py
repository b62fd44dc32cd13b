"""A parcel: a note made ready for devices, once for all of them."""

from __future__ import annotations

from typing import NamedTuple

from chappe.events.pushrecorder import Told, Why
from chappe.push.note import Note
from chappe.wire.push import message_frame, message_head, message_struct
from chappe.wire.pushcipher import TAG_BYTES, Sealing


class Brief(NamedTuple):
    """What is to be known of a note when it is acknowledged; without its content, which is
    large."""

    told: Told
    topic: str | None
    position: int
    # Whose other devices are to take it back.
    once_of: str | None


class Flight(NamedTuple):
    """A note in the hands of a device: since when, in seconds of the wheel, and how it came."""

    since: int
    why: Why
    brief: Brief


class Parcel:
    """A note, its head encoded. What follows is encrypted for each device when it is written."""

    __slots__ = ("_before", "_flight", "brief", "head", "note", "size")

    def __init__(self, note: Note) -> None:
        self.note = note
        self.head = message_head(note.type, note.id, note.job, note.ts_ms)
        self.brief = Brief(
            Told(note.app, note.id, note.job),
            note.topic,
            note.position,
            note.user if note.once else None,
        )
        sealed = bytes(len(note.content) + TAG_BYTES)
        frame = message_frame(message_struct(self.head, sealed))
        # All of a frame but what is encrypted: that is as long for every device.
        self._before = frame[: -len(sealed)]
        # As it travels, lengths and type of a frame included.
        self.size = len(frame)
        self._flight: Flight | None = None

    def flight(self, now: int, why: Why) -> Flight:
        """One object for all who are handed it in a second, for the same reason."""
        flight = self._flight
        if flight is None or flight.since != now or flight.why != why:
            flight = self._flight = Flight(now, why, self.brief)
        return flight

    def frame(self, sealing: Sealing) -> bytes:
        """The frame for one device; raises LocalProtocolError when its key is used up."""
        return self._before + sealing.seal(self.head, self.note.content)

    def sealed(self, sealing: Sealing) -> bytes:
        """The message_struct for one device; raises LocalProtocolError when its key is used up."""
        return message_struct(self.head, sealing.seal(self.head, self.note.content))
