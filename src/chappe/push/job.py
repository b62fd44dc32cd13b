"""A job: what one send was for, and what became of it (P9)."""

from __future__ import annotations

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A send, as it was asked for."""

    id: str
    app: str
    note: str
    # client, device, user, many or topic; and which, shortened.
    aim: str
    target: str
    name: str
    created_ms: int
    expires_ms: int
    cancelled_ms: int = 0


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How a job does: clients that it was aimed at, that it was handed to, that acknowledged it,
    that clicked it; that were offline when it was sent; that do not get it any more, as it was
    taken back or crowded out, shown once elsewhere, or they were removed."""

    aimed: int = 0
    sent: int = 0
    arrived: int = 0
    clicked: int = 0
    offline: int = 0
    dropped: int = 0
