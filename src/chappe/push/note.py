"""A note: what is pushed to devices. It is stored once, and delivered by its id (P8)."""

from __future__ import annotations

import msgspec

# Types from here on are the system's own; applications have those below.
SYSTEM_TYPES = 240
# Take back the note whose id is the content.
RETRACT = 255


class Note(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A message to clients, or to a topic.

    `id` begins with p (private) or m (topic), `job` with j. Times are milliseconds since 1970.
    """

    id: str
    job: str
    app: str
    type: int
    ts_ms: int
    expires_ms: int
    content: bytes
    # 0: low, 1: normal, 2: high. What is higher goes first, where several wait.
    priority: int = 1
    # Of notes with one key that a client has not got yet, the last one counts.
    collapse: str | None = None
    # Where it was sent by topic: its place among the topic's notes, which grows.
    topic: str | None = None
    position: int = 0
    # Whose it is, if it was sent to a user; with `once`, shown on one of the user's devices it is
    # taken back on the others.
    user: str | None = None
    once: bool = False
