"""What a device gets: notes, and that one of them is taken back."""

from __future__ import annotations

import msgspec

# Types from here on are the system's own; apps have those below.
SYSTEM_TYPES = 240
# The type of a message that takes another back: its content is the other's id.
RETRACT = 255


class Note(msgspec.Struct, frozen=True, gc=False):
    """Something to show. `id` begins with p if it was sent to this device or its user, with m if
    it was sent to a topic. `sent_ms` is the server's time, in milliseconds since 1970."""

    id: str
    job: str
    type: int
    sent_ms: int
    content: bytes

    @property
    def id_once(self) -> str:
        """By what it is known to have been shown."""
        return self.id


class Retraction(msgspec.Struct, frozen=True, gc=False):
    """A note is taken back: whoever shows it, ends that. It may be one that never came here."""

    # Of the note that is meant.
    note: str
    # Its own id, and when it was sent.
    id: str
    sent_ms: int

    @property
    def id_once(self) -> str:
        """By what it is known to have been shown, whatever note has the same id."""
        return f"-{self.id}"
